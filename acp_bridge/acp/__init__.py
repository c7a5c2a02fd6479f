"""The ACP face: pinned schema, generated types, converter, agent-side method table, client calls.

Owns: ACP's names and shapes (protocol version 1), which of a client's mistakes are forgiven, and
the text of the errors for those that are not.

Does not know: sessions, runtimes, prompts' meaning, or what a client is shown; `bridge` does.

Invariants: `cattrs` is called from `converter` alone; `types` is generated and never edited;
`hello`, `agent_side` and this module import neither attrs nor cattrs, so that ``initialize`` is
answered before they are loaded; no class name and no library's wording reaches an error's text;
nothing here reads a clock, writes a file (but the generator), or starts a task.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["schema_files"]


def schema_files() -> "dict[str, Path]":
    """The pinned official JSON schemas by name: ``stable`` and ``unstable`` (a superset)."""
    from pathlib import Path

    folder = Path(__file__).parent / "schema"
    return {
        "stable": folder / "schema.json",
        "unstable": folder / "schema.unstable.json",
    }
