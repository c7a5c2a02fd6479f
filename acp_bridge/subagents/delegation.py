"""What a parent asks for, and the rows that a child begins with. Pure."""

from pathlib import Path

import attrs

from acp_bridge.harness.desk import Choices
from acp_bridge.harness.modes import delegated_rows
from acp_bridge.subagents.activation import ChildMode
from acp_bridge.subagents.descriptor import Descriptor, descriptor_draft
from acp_bridge.vocabulary import CallId, Draft, Mode, SessionId


@attrs.frozen(slots=True, kw_only=True)
class Delegation:
    """A new child: ``label`` is its durable name, ``cwd`` None its parent's folder.

    ``caller_id`` and ``call_id`` are those of the tool call.
    """

    caller_id: SessionId | None
    call_id: CallId
    provider: str
    label: str
    task: str
    cwd: Path | None = None
    mode: ChildMode = "continuable"


def birth_rows(ask: Delegation, choices: Choices, *, before: Mode | None) -> list[Draft]:
    """The descriptor, and the permission that the parent gives; ``before`` is what the log says."""
    rows = delegated_rows(choices.mode, before=before)
    if ask.mode == "one-shot":
        return rows
    descriptor = Descriptor(
        provider=ask.provider,
        label=ask.label,
        agent_provider=choices.model.provider,
        agent_model=choices.model.name,
        agent_effort=choices.effort,
    )
    return [descriptor_draft(descriptor), *rows]
