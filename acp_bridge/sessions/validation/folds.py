"""Compaction, commands, titles, images, subagents: rules of ``dsh-events`` 1.3 to 1.5."""

from acp_bridge.sessions.header import count
from acp_bridge.sessions.validation.blocks import (
    check_no_wrapper,
    image_blocks,
    message_of,
)
from acp_bridge.sessions.validation.messages import span
from acp_bridge.sessions.validation.state import (
    OpenCompaction,
    State,
    is_number,
    nonempty,
    own_range_fault,
    refuse,
)
from acp_bridge.vocabulary import Event, JsonObject, JsonValue


def _same_turn(state: State, turn: JsonValue) -> bool:
    return turn is None if state.turn is None else is_number(turn, state.turn)


def compaction_start(state: State, event: Event, data: JsonObject) -> None:
    """None is open, and it names the open turn or none."""
    if state.compaction is not None:
        refuse(event.seq, "compaction/start while another one is open")
    if not nonempty(data.get("compactionId")):
        refuse(event.seq, "compaction/start without an id")
    if "turn" not in data or not _same_turn(state, data["turn"]):
        refuse(event.seq, "compaction/start names another turn than the open one")
    state.compaction = OpenCompaction(
        data["compactionId"], data.get("sourceCommandId"), state.turn, event.seq
    )


def _open_compaction(state: State, event: Event, data: JsonObject) -> OpenCompaction:
    compaction = state.compaction
    if (
        compaction is None
        or compaction.compaction_id != data.get("compactionId")
        or compaction.command_id != data.get("sourceCommandId")
        or compaction.turn != state.turn
    ):
        refuse(event.seq, f"{event.type} belongs to no open compaction")
    if compaction.crossed_seq is not None:
        refuse(compaction.crossed_seq, "a turn boundary inside a compaction")
    return compaction


def _check_shadow(state: State, seq: int, data: JsonObject) -> None:
    bounds, seqs = data.get("shadowedRange"), data.get("shadowedSeqs")
    if type(bounds) is not dict or type(seqs) is not list:
        refuse(seq, "a compaction row without its range")
    first, end = span(state, seq, bounds.get("start"), bounds.get("end"))
    if [count(one) for one in seqs] != state.surface[first:end]:
        refuse(seq, "shadowedSeqs is not what the model sees in that range")
    if first == 0 and state.has_system_head:
        refuse(seq, "the system message at the head cannot be shadowed")


def compaction_summary(state: State, event: Event, data: JsonObject) -> None:
    """Once per compaction; what it shadows is what the model sees."""
    compaction = _open_compaction(state, event, data)
    if compaction.summary_seq is not None:
        refuse(event.seq, "a second summary of one compaction")
    _check_shadow(state, event.seq, data)
    check_no_wrapper(event.seq, data.get("summary"))
    check_no_wrapper(event.seq, data.get("rawOutput"))
    compaction.summary_seq = event.seq


def compaction_end(state: State, event: Event, data: JsonObject) -> None:
    """With a summary or an error, in the turn of its start."""
    compaction = _open_compaction(state, event, data)
    if "turn" not in data or not _same_turn(state, data["turn"]):
        refuse(event.seq, "compaction/end names another turn than its start")
    if "error" in data:
        if type(data["error"]) is not str:
            refuse(event.seq, "compaction/end whose error is no text")
    elif compaction.summary_seq is None:
        refuse(event.seq, "compaction/end without a summary")
    state.compaction = None


def compaction_prune(state: State, event: Event, data: JsonObject) -> None:
    """What it shadows is what the model sees."""
    _check_shadow(state, event.seq, data)


def command_run(state: State, event: Event, data: JsonObject) -> None:
    """A new command id."""
    command_id = data.get("commandId")
    if not nonempty(command_id) or command_id in state.command_ids:
        refuse(event.seq, "command/run without an id of its own")
    if data.get("name") == "plan" and type(data.get("args", "")) is not str:
        refuse(event.seq, "command/run whose args are no text")
    state.command_ids.add(command_id)
    state.command_seqs.add(event.seq)


def command_done(state: State, event: Event, data: JsonObject) -> None:
    """Settles an earlier command."""
    command_id = data.get("commandId")
    if not nonempty(command_id) or command_id not in state.command_ids:
        refuse(event.seq, "command/done of a command that never ran")
    if "sourceEventSeq" in data:
        source = count(data["sourceEventSeq"])
        if source is None or source >= event.seq or source in state.command_seqs:
            refuse(event.seq, "command/done rests on no earlier row")
        if data.get("kind") != "success":
            refuse(event.seq, "command/done rests on a row although it failed")
    state.command_seqs.add(event.seq)


def _human_seqs(state: State, seq: int, value: JsonValue) -> list[int]:
    seqs = [count(one) for one in value] if type(value) is list else [None]
    good = [one for one in seqs if one is not None and one in state.human_seqs]
    if len(good) != len(seqs) or len(set(good)) != len(good):
        refuse(seq, "messageSeqs names something other than earlier messages of the user")
    return good


def title(state: State, event: Event, data: JsonObject) -> None:
    """Rests on messages of the user, or was given by the user."""
    source = data.get("source")
    if type(source) is not dict:
        refuse(event.seq, "session/title without a source")
    seqs = _human_seqs(state, event.seq, data.get("messageSeqs"))
    if (source.get("kind") == "user") != (not seqs):
        refuse(event.seq, "session/title rests on messages exactly if the user did not give it")


def title_request(state: State, event: Event, data: JsonObject) -> None:
    """Rests on messages of the user and asks with exactly one message."""
    if not _human_seqs(state, event.seq, data.get("messageSeqs")):
        refuse(event.seq, "session/title-llm-request rests on no message")
    match data.get("messages"):
        case [
            {
                "role": "user",
                "source": {"kind": "dsh-session-title-llm"},
                "content": [{"type": "text", "text": str()}],
            }
        ]:
            return
        case _:
            refuse(event.seq, "session/title-llm-request is malformed")


def image_offload(state: State, event: Event, data: JsonObject) -> None:
    """Names images on the surface that are still there."""
    targets = data.get("targets")
    if data.keys() != {"targets"} or type(targets) is not list or not targets:
        refuse(event.seq, "image/offload is malformed")
    seen: set[int] = set()
    for target in targets:
        if type(target) is not dict or target.keys() != {"seq", "imageIndexes"}:
            refuse(event.seq, "image/offload has a malformed target")
        seq = count(target["seq"])
        if seq is None or seq in seen:
            refuse(event.seq, "image/offload names a row twice")
        seen.add(seq)
        _offload(state, event.seq, seq, target["imageIndexes"])


def _offload(state: State, own: int, seq: int, raw: JsonValue) -> None:
    row = state.surface_rows.get(seq)
    indexes = [count(one) for one in raw] if type(raw) is list else []
    good = [one for one in indexes if one is not None]
    if row is None or row.type not in {"user/message", "tool/result"} or not indexes:
        refuse(own, f"image/offload names seq {seq}, which shows no image")
    images = sum(1 for _ in image_blocks(message_of(row).get("content")))
    gone = state.offloaded.setdefault(seq, set())
    if (
        good != indexes
        or good != sorted(set(good))
        or good[-1] >= images
        or not gone.isdisjoint(good)
    ):
        refuse(own, "image/offload names an image that is not there")
    gone.update(good)


def catalog(state: State, event: Event, data: JsonObject) -> None:
    """In the own range: a well-formed child, named once."""
    fault = _catalog_fault(state, data)
    if fault is not None:
        own_range_fault(state, event.seq, f"subagent/catalog {fault}")


def _catalog_fault(state: State, data: JsonObject) -> str | None:
    version, mode = count(data.get("version")), data.get("mode")
    child = data.get("childId")
    if type(child) is not str or count(data.get("childCreatedAt")) is None:
        return "names no child"
    if child in state.child_ids:
        return f"names child {child!r:.100} twice"
    state.child_ids.add(child)
    if version not in {0, 1, 2}:
        return "has an unknown version"
    if mode == "continuable":
        return None if type(data.get("label")) is str else "lacks a label"
    if mode == "one-shot":
        return None
    if (mode == "external" and version == 2) or (mode == "unknown" and version == 1):  # noqa: PLR2004
        return None
    return "has an unknown mode"


def model_policy(state: State, event: Event, data: JsonObject) -> None:  # noqa: ARG001
    """Names at least one model."""
    models = data.get("allowedModels")
    if type(models) is not list or not models:
        refuse(event.seq, "subagent/model-selection-policy allows nothing")
    for model in models:
        if (
            type(model) is not dict
            or not nonempty(model.get("provider"))
            or not nonempty(model.get("model"))
        ):
            refuse(event.seq, "subagent/model-selection-policy names no model")


def team_message(state: State, event: Event, data: JsonObject) -> None:  # noqa: ARG001
    """Holds no retired block."""
    message = data.get("message")
    if type(message) is dict:
        check_no_wrapper(event.seq, message.get("content"))
