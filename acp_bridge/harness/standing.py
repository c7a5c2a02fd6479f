"""Rows that say what stands for the requests to come: birth, system message, request header.

Each is written where it differs from what the log says already, so an unchanged session pays
nothing. Pure but for ids.
"""

from acp_bridge.harness.desk import Desk
from acp_bridge.harness.instructions import system_prompt
from acp_bridge.harness.memory import NOTICE_ROW, PLACE_ROW, SCRIPTED
from acp_bridge.harness.modes import mode_rows
from acp_bridge.harness.requests import tool_list
from acp_bridge.vocabulary import Draft, JsonObject, JsonValue


def birth_rows(desk: Desk) -> list[Draft]:
    """Mode and place, if the log does not hold them yet, and what the user must be told."""
    rows = [] if desk.memory.sets_up else mode_rows(desk.choices.mode, before=None)
    if desk.model.provider == SCRIPTED and desk.memory.place != desk.place:
        rows.append(Draft(PLACE_ROW, {"place": desk.place}, ignorable=True))
    said = desk.news if desk.notice is None else [desk.notice, *desk.news]
    rows += [Draft(NOTICE_ROW, {"text": text}, ignorable=True) for text in said]
    return rows


def system_rows(desk: Desk, *, turn: int, step: int) -> list[Draft]:
    """The system message: first of the surface, replaced in place when its text changed."""
    surface = desk.committer.writer.state.surface
    is_delegated = desk.committer.writer.header.origin == "subagent"
    text = system_prompt(
        desk.cwd,
        desk.choices.mode,
        folder=desk.folder,
        folders=desk.given.folders,
        instructions=desk.project.found.instructions,
        given=desk.given.system_prompt,
        is_delegated=is_delegated,
    )
    message: JsonObject = {
        "role": "system",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "system-prompt"},
        "id": desk.world.new_id(),
    }
    data: JsonObject = {"turn": turn, "step": step, "message": message}
    if not surface:
        return [Draft("system/message", data, surface_op="append")]
    head = desk.committer.told[surface[0]]
    if head.type != "system/message":
        # Appending one now would make the log unreadable (dsh section 3, "Trap").
        return []
    assert isinstance(head.data, dict)
    old = head.data["message"]
    if isinstance(old, dict) and old.get("content") == message["content"]:
        return []
    place = (head.seq, head.seq)
    return [Draft("system/message", data, surface_op=place, source_event_seqs=(head.seq,))]


def request_rows(desk: Desk) -> list[Draft]:
    """``request/header`` and ``request/context`` where they differ from the last ones."""
    model = desk.model
    tools: list[JsonValue] = list(tool_list(desk))
    config: JsonObject = {"provider": model.provider, "model": model.name}
    context: JsonObject = {**config, "contextWindow": model.context_window}
    if desk.choices.effort is not None:
        config["reasoningEffort"] = desk.choices.effort
    header: JsonObject = {"config": config, "tools": tools}
    rows: list[Draft] = []
    reason = desk.memory.header_reason(header)
    if reason is not None:
        data: JsonObject = {"header": header, "reason": reason}
        if desk.memory.is_cut and reason != "series":
            data["startsSeries"] = True
        rows.append(Draft("request/header", data))
    if context != desk.memory.request_context:
        rows.append(Draft("request/context", context))
    return rows
