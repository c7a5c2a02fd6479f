"""The descriptor: one row that says durably what a continuable child is. Pure.

Version 3 as the real runtime writes it (``dsh-events``, `subagent/descriptor`). A reader takes any
mode and any provider: those that it does not run are another program's, not damage.
"""

from typing import Final, Literal, TypeAlias

import attrs

from acp_bridge.vocabulary import Draft, JsonObject, JsonValue

DESCRIPTOR_ROW: Final = "subagent/descriptor"
VERSION: Final = 3
"""The only version of the row that is read and written here."""

CONTINUABLE: Final = "continuable"

Fault: TypeAlias = Literal["corrupt", "unsupported"]


@attrs.frozen(slots=True)
class Descriptor:
    """What a continuable child is: who made it (``spawn``, ``fork``), its name, its first model."""

    provider: str
    label: str
    agent_provider: str | None = None
    agent_model: str | None = None
    agent_effort: str | None = None


def descriptor_draft(descriptor: Descriptor) -> Draft:
    """The row to write, once, before the child's first turn."""
    data: JsonObject = {
        "version": VERSION,
        "mode": CONTINUABLE,
        "provider": descriptor.provider,
        "label": descriptor.label,
        "agentProvider": descriptor.agent_provider,
        "agentModel": descriptor.agent_model,
    }
    if descriptor.agent_effort is not None:
        data["agentReasoningEffort"] = descriptor.agent_effort
    return Draft(DESCRIPTOR_ROW, data)


def descriptor_from_data(data: JsonValue) -> Descriptor | Fault | None:
    """The descriptor of a row; None for one of another mode, which is no continuable child's."""
    if not isinstance(data, dict):
        return "corrupt"
    version = data.get("version")
    if isinstance(version, bool) or not isinstance(version, int | float):
        return "corrupt"
    if version != VERSION:
        return "unsupported"
    mode, provider, label = (data.get(name) for name in ("mode", "provider", "label"))
    agent = [data.get(name) for name in _AGENT]
    if not _is_text(mode) or not _is_text(provider):
        return "corrupt"
    if any(name in data and not _is_text(data[name]) for name in _AGENT):
        return "corrupt"
    if mode != CONTINUABLE:
        return None
    if not isinstance(label, str) or not label:
        return "corrupt"
    return Descriptor(str(provider), label, *(None if one is None else str(one) for one in agent))


_AGENT: Final = ("agentProvider", "agentModel", "agentReasoningEffort")


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str) and value != ""
