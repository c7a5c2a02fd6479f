"""Turns, steps, seed markers, the inbox, and model calls: rules of ``dsh-events`` 1.1 and 1.3.

Two rows can look wrong until a later one explains them, so their verdict waits: a turn row across
an open compaction (an end-seed makes that compaction an orphan), and what only the own range
forbids (an inherited marker moves the row into the inherited range).
"""

from acp_bridge.sessions.header import FORMAT_VERSION, count
from acp_bridge.sessions.validation.blocks import check_content
from acp_bridge.sessions.validation.state import (
    State,
    is_number,
    need_step,
    need_turn,
    nonempty,
    own_range_fault,
    refuse,
)
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

_SPLICE_TARGETS = ("next-turn", "next-step")
_HEADER_REASONS = ("initial", "resume", "change", "series")


def _cross_compaction(state: State, seq: int) -> None:
    if state.compaction is not None and state.compaction.crossed_seq is None:
        state.compaction.crossed_seq = seq


def turn_start(state: State, event: Event, data: JsonObject) -> None:
    """None is open, and the numbers count on."""
    if state.turn is not None:
        refuse(event.seq, f"turn/start while turn {state.turn} is open")
    if not is_number(data.get("turn"), state.last_turn + 1):
        refuse(event.seq, f"turn/start does not count on to turn {state.last_turn + 1}")
    _cross_compaction(state, event.seq)
    state.turn = state.last_turn = state.last_turn + 1
    state.last_step = 0


def turn_end(state: State, event: Event, data: JsonObject) -> None:
    """Ends the open turn, whose steps are over."""
    if state.turn is None or not is_number(data.get("turn"), state.turn):
        refuse(event.seq, "turn/end does not end the open turn")
    if state.step is not None:
        refuse(event.seq, f"turn/end while step {state.turn}/{state.step} is open")
    if state.header.origin == "subagent" and type(data.get("reason")) is not dict:
        refuse(event.seq, "turn/end of a subagent without a reason")
    _cross_compaction(state, event.seq)
    state.turn = None


def step_start(state: State, event: Event, data: JsonObject) -> None:
    """In a turn, no step open, and the numbers count on."""
    need_turn(state, event)
    if state.step is not None:
        refuse(event.seq, f"step/start while step {state.turn}/{state.step} is open")
    if not is_number(data.get("turn"), state.turn):
        refuse(event.seq, f"step/start names another turn than {state.turn}")
    if not is_number(data.get("step"), state.last_step + 1):
        refuse(event.seq, f"step/start does not count on to step {state.last_step + 1}")
    state.step = state.last_step = state.last_step + 1


def step_end(state: State, event: Event, data: JsonObject) -> None:
    """Ends the open step, whose tool calls are all answered."""
    need_step(state, event, data)
    if state.pending:
        refuse(event.seq, f"step/end while tool call {next(iter(state.pending))!r} is unanswered")
    state.step = None


def end_seed(state: State, event: Event, data: JsonObject) -> None:
    """A boundary: whatever compaction was open is an orphan from here on."""
    state.compaction = None
    if data.get("inherited") is not True:
        return
    if not state.header.is_seeded:
        refuse(event.seq, "an inherited end-seed in a session that was not seeded")
    state.has_marker = True
    state.inherited_count = event.seq
    state.own_fault = None
    state.child_ids.clear()


def inbox_spliced(state: State, event: Event, data: JsonObject) -> None:
    """Remove and insert queued messages; no id is queued twice."""
    queue = state.inbox.get(target) if nonempty(target := data.get("target")) else None
    gone_count = data.get("removedCount")
    start, removed = count(data.get("start")), 0 if gone_count is None else count(gone_count)
    inserted = data.get("inserted")
    if queue is None or type(inserted) is not list:
        refuse(event.seq, "the inbox splice is malformed")
    if start is None or removed is None or start + removed > len(queue):
        refuse(event.seq, "the inbox splice reaches beyond the inbox")
    for gone in queue[start : start + removed]:
        if nonempty(gone_id := gone.get("id")):
            state.inbox_ids.discard(gone_id)
    messages = [_inbox_message(state, event.seq, item) for item in inserted]
    queue[start : start + removed] = messages


def _inbox_message(state: State, seq: int, item: JsonValue) -> JsonObject:
    source = item.get("source") if type(item) is dict else None
    if type(item) is not dict or type(source) is not dict or not nonempty(source.get("kind")):
        refuse(seq, "an inbox message without a source")
    if source["kind"] == "plugin" or item.get("role") == "developer":
        refuse(seq, "an inbox message of a kind that cannot be queued")
    content = item.get("content")
    if type(content) is list:
        check_content(seq, content, "user")
    message_id = item.get("id")
    if nonempty(message_id):
        if message_id in state.inbox_ids:
            refuse(seq, f"inbox message {message_id!r} is queued twice")
        state.inbox_ids.add(message_id)
    return item


def request_header(state: State, event: Event, data: JsonObject) -> None:
    """In a turn; config, tools and defaults are sound."""
    need_turn(state, event)
    header = data.get("header")
    config = header.get("config") if type(header) is dict else None
    if type(header) is not dict or type(config) is not dict or "system" in header:
        refuse(event.seq, "request/header without a sound header")
    fault = _config_fault(config) or _tools_fault(header) or _defaults_fault(header, config)
    if fault is not None:
        refuse(event.seq, f"request/header {fault}")
    reason = data.get("reason")
    if reason == "fallback":
        state.unsupported = state.unsupported or f"seq {event.seq} is a fallback request/header"
    elif reason not in _HEADER_REASONS:
        refuse(event.seq, "request/header with an unknown reason")
    state.headers[event.seq] = header
    state.provider = config.get("provider")


def _config_fault(config: JsonObject) -> str | None:
    if not nonempty(config.get("provider")) or not nonempty(config.get("model")):
        return "without provider and model"
    if "reasoningEffort" in config and not nonempty(config["reasoningEffort"]):
        return "with a malformed effort"
    return None


def _tools_fault(header: JsonObject) -> str | None:
    if "tools" not in header:
        return None
    tools = header["tools"]
    if type(tools) is not list or not tools:
        return "with an empty tool list"
    for tool in tools:
        if type(tool) is not dict or tool.get("deferLoading", True) is not True:
            return "with a malformed tool"
    return None


def _defaults_fault(header: JsonObject, config: JsonObject) -> str | None:
    if "adapterDefaults" not in header:
        return None
    defaults = header["adapterDefaults"]
    if type(defaults) is not dict or not defaults:
        return "with empty adapterDefaults"
    for name, value in defaults.items():
        if name not in {"reasoningEffort", "maxTokens"} or value is not True or name not in config:
            return "with malformed adapterDefaults"
    return None


def request_context(state: State, event: Event, data: JsonObject) -> None:  # noqa: ARG001
    """In a turn."""
    need_turn(state, event)


def llm_retry(state: State, event: Event, data: JsonObject) -> None:
    """Belongs to the running step; each chain counts 1, 2, 3 under one id."""
    need_turn(state, event)
    turn, step = data.get("turn"), data.get("step")
    here = state.step if state.step is not None else state.last_step
    if not (is_number(turn, state.turn) and is_number(step, here)):
        refuse(event.seq, "llm/retry names another step than the running one")
    if data.get("provider") != state.provider or state.provider is None:
        refuse(event.seq, "llm/retry names another provider than the last request")
    retry_id, retry, policy = data.get("retryId"), count(data.get("retry")), data.get("policyKey")
    if not nonempty(retry_id) or not nonempty(policy):
        refuse(event.seq, "llm/retry without its ids")
    chain = (state.turn, here, state.provider, policy)
    known_id, known_retry = state.retry_chains.get(chain, (None, 0))
    if retry != known_retry + 1:
        refuse(event.seq, f"llm/retry does not count on to {known_retry + 1}")
    if known_id != retry_id and (known_id is not None or retry_id in state.retry_ids):
        refuse(event.seq, "llm/retry mixes two chains of retries")
    state.retry_chains[chain] = (retry_id, retry)
    state.retry_ids.add(retry_id)
    state.retries[(retry_id, retry, state.turn, here)] = False


def llm_retry_started(state: State, event: Event, data: JsonObject) -> None:
    """Starts a retry that waits, once."""
    retry_id = data.get("retryId")
    key = (
        retry_id if type(retry_id) is str else None,
        *(count(data.get(name)) for name in ("retry", "turn", "step")),
    )
    if state.retries.get(key) is not False:
        refuse(event.seq, "llm/retry-started names no retry that waits")
    state.retries[key] = True


def assistant_attempt(state: State, event: Event, data: JsonObject) -> None:
    """In the open step, with the stream so far."""
    need_step(state, event, data)
    stream = data.get("stream")
    if type(stream) is not list or None in stream:
        refuse(event.seq, "assistant/attempt without a sound stream")


def delivery_accepted(state: State, event: Event, data: JsonObject) -> None:
    """The newer rule of ``sessions.md``: another session's name only in the inherited range."""
    version = count(data.get("sessionFormatVersion", 0))
    if version is None:
        refuse(event.seq, "the delivery row's format version is no count")
    if version != FORMAT_VERSION:
        return
    through, name = count(data.get("throughSeq")), data.get("sessionId")
    if through is None or through >= event.seq or not nonempty(name):
        refuse(event.seq, "the delivery row reaches beyond itself or names no session")
    if name != state.header.session_id:
        own_range_fault(state, event.seq, f"the delivery row names session {name!r:.100}")
