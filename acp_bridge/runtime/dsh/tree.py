"""Which session belongs to whose tree: a pure graph of delegations, and whom a notification is for.

An edge is a child's newest delegation. The graph only grows, since a child may outlive the run that
started it; it ends with the process that it describes.
"""

from collections.abc import Iterator

from acp_bridge.vocabulary import JsonValue


class SessionTree:
    """Edges from child to parent."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def attach(self, child: str, parent: str) -> None:
        """Make ``parent`` the parent of ``child`` from now on, whoever was before."""
        self._parents[child] = parent

    def lineage(self, session_id: str) -> Iterator[str]:
        """The session, its parent, and so on to the root; each once, also in a cycle."""
        seen: set[str] = set()
        at: str | None = session_id
        while at is not None and at not in seen:
            seen.add(at)
            yield at
            at = self._parents.get(at)


def edge_of(params: JsonValue) -> tuple[str, str] | None:
    """Child and parent that a ``subagent.started`` names; None if that can be no delegation."""
    child, parent = _name(params, "childSessionId"), _name(params, "parentSessionId")
    if child is None or parent is None or child == parent:
        return None
    return child, parent


def subject_of(method: str, params: JsonValue) -> str | None:
    """The session whose tree a notification belongs to; None if it names none.

    The end of a run belongs to the parent that it names: the child's id may have been used again
    since, below another parent.
    """
    match method:
        case "subagent.started":
            return _name(params, "childSessionId")
        case "subagent.finished":
            return _name(params, "parentSessionId")
        case _:
            return _name(params, "sessionId")


def _name(params: JsonValue, member: str) -> str | None:
    value = params.get(member) if isinstance(params, dict) else None
    return value if isinstance(value, str) and value else None
