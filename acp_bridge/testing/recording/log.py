"""What a session's logs say of its model, its user and its client. Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import attrs

from acp_bridge.harness.modes import mode_from_log
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.testing.recording.paths import Placer, arguments_of
from acp_bridge.testing.transcript import arr, obj, text_or_none
from acp_bridge.vocabulary import Event, JsonObject, JsonValue

ANSWERS = {"assistant/message", "assistant/attempt"}
NOT_RUN = {"ABORTED", "ABORTED_BEFORE_DISPATCH"}
ENDED_BADLY = {"interrupted", "aborted"}

FAILURES_WITHOUT_STATUS = {"SERVER": 500, "RATE_LIMIT": 429, "CONTEXT_WINDOW": 400, "AUTH": 401}


@attrs.frozen(slots=True)
class Family:
    """A session and its subagents' sessions, by agent place; ``missing`` are ids without a log.

    ``stored`` is the session's log as it is. In ``logs`` a step whose answer was lost when its
    program ended has an attempt, as one has that was cancelled: the model was asked there.
    """

    stored: StoredLog
    logs: dict[str, StoredLog]
    missing: tuple[str, ...] = ()

    @property
    def root(self) -> StoredLog:
        """The session itself."""
        return self.logs["1"]

    def places(self) -> dict[str, str]:
        """Agent places by session id."""
        return {log.header.session_id: place for place, log in self.logs.items()}


@attrs.frozen(slots=True)
class Call:
    """A tool call of the model as it went. ``decision``: how the question about it was answered."""

    place: str
    call_id: str
    name: str
    arguments: JsonObject
    text: str | None
    meta: JsonObject
    is_error: bool
    code: str | None
    decision: str | None

    @property
    def was_cut(self) -> bool:
        """Whether a cancel ended it, or kept it from running."""
        return self.text is None or self.code in NOT_RUN


@attrs.frozen(slots=True)
class Said:
    """An answer of the model: its number among those of its agent, and its calls."""

    number: int
    text: str | None
    calls: tuple[str, ...]
    is_cut: bool


@attrs.frozen(slots=True)
class Steered:
    """What the user said while a turn ran: the answer of then, which is of the session's nth step.

    The model saw it behind that answer and its calls.
    """

    number: int
    step: int
    words: tuple[JsonValue, ...]


@attrs.frozen(slots=True)
class Turn:
    """A turn of the session: what was sent to it, what was answered, whether it was cancelled.

    ``ordinal`` counts the turns from 1; a command that is no turn has 0.
    """

    prompts: tuple[tuple[JsonValue, ...], ...]
    mode: str
    answers: tuple[Said, ...]
    is_cancelled: bool
    ordinal: int = 0
    steered: tuple[Steered, ...] = ()


def family_of(session_id: str, read: Callable[[str], StoredLog | None]) -> Family:
    """A session with all below it; ``read`` gives None for a log that is not there."""
    logs: dict[str, StoredLog] = {}
    missing: list[str] = []
    stored: list[StoredLog] = []

    def take(one: str, place: str) -> None:
        log = read(one)
        if log is None:
            missing.append(one)
            return
        stored.append(log)
        # Whatever the session was to others, here it is the root, and its seed is its own.
        header = attrs.evolve(log.header, origin=None) if place == "1" else log.header
        log = attrs.evolve(log, header=header, events=_with_lost_answers(log.events))
        logs[place] = log
        children = [e for e in own_range(log) if e.type == "subagent/catalog"]
        for number, event in enumerate(children, start=1):
            take(str(obj(event.data).get("childId")), f"{place}/{number}")

    take(session_id, "1")
    return Family(stored[0], logs, tuple(missing))


def _with_lost_answers(events: Sequence[Event]) -> list[Event]:
    made: list[Event] = []
    is_asked = False
    for event in events:
        if event.type == "step/start":
            is_asked = True
        elif event.type in ANSWERS or event.type == "step/end":
            is_asked = is_asked and event.type == "step/end"
        if is_asked and event.type in {"step/end", "turn/end"}:
            lost: JsonObject = {"stream": []}
            made.append(attrs.evolve(event, type="assistant/attempt", data=lost))
            is_asked = False
        made.append(event)
    return made


def own_range(log: StoredLog) -> list[Event]:
    """The rows that the session itself has, for a subagent; those of a root are all its own."""
    if log.header.origin != "subagent" or not log.header.is_seeded:
        return log.events
    cuts = [
        event.seq
        for event in log.events
        if event.type == "session/end-seed" and obj(event.data).get("inherited") is True
    ]
    return log.events[cuts[-1] + 1 :]


def script_of(
    family: Family, placer: Placer, gates: Mapping[tuple[str, int], str]
) -> list[JsonObject]:
    """The lines of `model.jsonl`; ``gates`` are waits before an answer, by place and number."""
    lines: list[tuple[int, str, JsonObject]] = []
    window: JsonValue = None
    for place, log in family.logs.items():
        number = 0
        started = _started(log, family)
        for event in own_range(log):
            data = obj(event.data)
            if event.type in ANSWERS:
                items = _items(event, placer, started, f"cancelled-{place.replace('/', '.')}")
                if name := gates.get((place, number)):
                    items.insert(0, {"wait": name})
                number += 1
                lines.append((event.time_ms, place, {"agent": place, "stream": [*items]}))
            elif event.type == "compaction/summary":
                blocks = arr(data.get("rawOutput")) or arr(data.get("summary"))
                said: list[JsonValue] = [
                    {"text": placer.text(str(block["text"]))}
                    for block in map(obj, blocks)
                    if block.get("type") == "text"
                ]
                line: JsonObject = {"agent": place, "for": "compact", "stream": said}
                lines.append((event.time_ms, place, line))
            elif event.type == "request/context" and place == "1":
                window = data.get("contextWindow", window)
    made: list[JsonObject] = [line for _, _, line in sorted(lines, key=lambda one: one[0])]
    return [{"context_window": window}, *made] if isinstance(window, int) else made


def calls_of(family: Family) -> list[Call]:
    """Every call of every agent, in the order of the logs."""
    return [call for place, log in family.logs.items() for call in _calls(place, log)]


@attrs.frozen(slots=True)
class Result:
    """What a good tool result tells of files; ``asked``: the answer that it is of."""

    asked: tuple[str, int]
    tool: str
    text: str
    meta: JsonObject


def results_of(family: Family) -> list[Result]:
    """Every good tool result, in the order of time."""
    found: list[tuple[int, int, Result]] = []
    for place, log in family.logs.items():
        number = -1
        tools: dict[str, str] = {}
        for event in own_range(log):
            number += event.type in ANSWERS
            data = obj(event.data)
            message = obj(data.get("message"))
            if event.type == "tool/call":
                tools[str(data.get("callId"))] = str(data.get("name"))
            elif event.type != "tool/result" or event.surface_op != "append":
                continue
            elif message.get("isError") is not True:
                tool = tools.get(str(message.get("toolCallId")), "")
                one = Result((place, number), tool, _text(message), obj(data.get("meta")))
                found.append((event.time_ms, event.seq, one))
    return [one for *_, one in sorted(found, key=lambda one: one[:2])]


def turns_of(log: StoredLog, notes: list[str]) -> list[Turn]:
    """The turns of the session itself, in order; ``notes`` are told what no step can do."""
    fold = _Turns(notes, _compacted(log.events))
    for event in log.events:
        fold.take(event)
    return fold.turns


def _compacted(events: Sequence[Event]) -> set[int]:
    """The commands that made a summary: no other one is of the model's doing."""
    found: set[int] = set()
    command: int | None = None
    for event in events:
        if event.type == "command/run":
            command = event.seq if obj(event.data).get("name") == "compact" else None
        elif event.type == "turn/start":
            command = None
        elif event.type == "compaction/end" and command is not None:
            if obj(event.data).get("error") is None:
                found.add(command)
            command = None
    return found


class _Turns:
    def __init__(self, notes: list[str], commands: Collection[int]) -> None:
        self.turns: list[Turn] = []
        self._notes = notes
        self._commands = commands
        self._sandbox: str | None = None
        self._policy: str | None = None
        self._planning = False
        self._mode = "ask"
        self._prompts: list[tuple[JsonValue, ...]] = []
        self._answers: list[Said] = []
        self._steered: list[Steered] = []
        self._number = 0
        self._steps = 0
        self._ended = 0
        self._open = False

    def take(self, event: Event) -> None:
        data = obj(event.data)
        match event.type:
            case "sandbox/mode":
                self._sandbox = text_or_none(data.get("mode"))
            case "approval/policy":
                self._policy = text_or_none(data.get("policy"))
            case "plan/mode":
                self._planning = data.get("active") is True
            case "command/run":
                words = f"/{data.get('name')} {str(data.get('args') or '').strip()}".rstrip()
                block: JsonValue = {"type": "text", "text": words}
                if event.seq in self._commands:
                    self.turns.append(Turn(((block,),), self._now(), (), is_cancelled=False))
                else:
                    self._notes.append(f"the command {words} is left out")
            case "turn/start":
                self._prompts, self._answers, self._steered = [], [], []
                self._open = True
                self._mode = self._now()
            case "step/start":
                self._steps += 1
            case "user/message" if obj(data.get("source")).get("kind") == "user":
                self._said(tuple(arr(data.get("content"))))
            case "assistant/message" | "assistant/attempt":
                self._answers.append(said_of(event, self._number))
                self._number += 1
            case "turn/end":
                self._end(data)
            case _:
                pass

    def _now(self) -> str:
        return mode_from_log(self._sandbox, self._policy, planning=self._planning)

    def _said(self, words: tuple[JsonValue, ...]) -> None:
        if self._open and self._answers:
            # Its row stands behind the start of the step that first shows it to the model.
            self._steered.append(Steered(self._answers[-1].number, self._steps - 1, words))
        else:
            self._prompts.append(words)

    def _end(self, data: JsonObject) -> None:
        kind = obj(data.get("reason")).get("kind")
        number = data.get("turn")
        by = obj(obj(data.get("reason")).get("reason")).get("kind")
        if kind == "interrupted" or (kind == "aborted" and by != "user"):
            self._notes.append(
                f"turn {number} ended with its program; the scenario cancels it there"
            )
        if not self._answers:
            self._notes.append(f"turn {number} never asked the model: it is left out")
            self._prompts = []
        if len(self._prompts) > 1:
            self._notes.append(
                f"turn {number} began with more than one prompt; they are sent one by one"
            )
        if self._now() != self._mode:
            self._notes.append(
                f"the mode became {self._now()} in the middle of turn {number}; the scenario "
                "changes it after that turn"
            )
        cancelled = kind in ENDED_BADLY
        self._ended += 1
        self.turns.append(
            Turn(
                tuple(self._prompts),
                self._mode,
                tuple(self._answers),
                cancelled,
                self._ended,
                tuple(self._steered),
            )
        )
        self._open = False


def said_of(event: Event, number: int) -> Said:
    """An answer's row."""
    data = obj(event.data)
    blocks = list(map(obj, arr(obj(data.get("message")).get("content"))))
    texts = [str(b["text"]) for b in blocks if b.get("type") in {"text", "reasoning"} and b["text"]]
    calls = tuple(str(block["id"]) for block in blocks if block.get("type") == "tool-call")
    is_cut = data.get("interrupted") is True or (
        event.type == "assistant/attempt" and _failure(data) is None
    )
    return Said(number, texts[-1] if texts else None, calls, is_cut)


def _calls(place: str, log: StoredLog) -> Iterator[Call]:
    asked: dict[str, str] = {}
    decided: dict[str, str] = {}
    open_calls: dict[str, tuple[str, JsonObject]] = {}
    results: dict[str, JsonObject] = {}
    events = own_range(log)
    for event in events:
        data = obj(event.data)
        if event.type == "approval/asked":
            asked[str(data.get("id"))] = str(data.get("callId"))
        elif event.type == "approval/decided":
            decided[asked.get(str(data.get("id")), "")] = str(data.get("outcome"))
        elif event.type == "plugin:acp-bridge/grant" and decided:
            last = next(reversed(decided))
            decided[last] = "allowed-always"
        elif event.type == "assistant/message":
            yield from _done(place, open_calls, results, decided)
            for block in map(obj, arr(obj(data.get("message")).get("content"))):
                if block.get("type") == "tool-call":
                    arguments = arguments_of(block.get("arguments")) or {}
                    open_calls[str(block["id"])] = (str(block["name"]), arguments)
        elif event.type == "tool/result" and event.surface_op == "append":
            results[str(obj(data.get("message")).get("toolCallId"))] = data
    yield from _done(place, open_calls, results, decided)


def _done(
    place: str,
    calls: dict[str, tuple[str, JsonObject]],
    results: dict[str, JsonObject],
    decided: dict[str, str],
) -> Iterator[Call]:
    """The calls of one answer with what became of them; ids may come again in the next."""
    for call_id, (name, arguments) in calls.items():
        data = results.get(call_id)
        message = obj((data or {}).get("message"))
        yield Call(
            place,
            call_id,
            name,
            arguments,
            None if data is None else _text(message),
            obj((data or {}).get("meta")),
            message.get("isError") is True,
            text_or_none(obj((data or {}).get("error")).get("code")),
            decided.get(call_id),
        )
    calls.clear()
    results.clear()
    decided.clear()


def _text(message: JsonObject) -> str:
    blocks = map(obj, arr(message.get("content")))
    return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


def _items(
    event: Event, placer: Placer, started: dict[str, str], cancelled: str
) -> list[JsonValue]:
    """One answer's items."""
    data = obj(event.data)
    content = arr(obj(data.get("message")).get("content"))
    said = said_of(event, 0)
    items: list[JsonValue] = []
    for block in map(obj, content if said.is_cut or not _ended(data) else _ended(data)):
        match block.get("type"):
            case "text" | "reasoning" if block.get("text"):
                items.append({str(block["type"]): placer.text(str(block["text"]))})
            case "tool-call":
                items.append({"tool_call": _call_item(block, placer, started)})
            case _:
                pass
    usage = next((obj(c.get("usage")) for c in _chunks(data) if c.get("type") == "usage"), {})
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    if usage:
        counts = (usage.get(n) for n in ("inputTokens", "outputTokens", "cacheReadTokens"))
        items.append({"usage": {n: c for n, c in zip(names, counts, strict=True) if c}})
    finish = _finish(data)
    if said.is_cut:
        items.append({"wait": cancelled})
    elif (failure := _failure(data)) is not None:
        items.append(_failed(failure, placer))
    elif finish == "max-tokens":
        items.append({"stop": "max_tokens"})
    return items


def _call_item(block: JsonObject, placer: Placer, started: dict[str, str]) -> JsonObject:
    name, text = str(block["name"]), str(block["arguments"])
    arguments = arguments_of(text)
    call: JsonObject = {"id": block["id"], "name": name}
    if arguments is None:
        return {**call, "arguments_text": placer.text(text)}
    placed = placer.arguments(name, arguments)
    return {**call, "arguments": _named(placed, started)}


def _named(value: JsonValue, started: dict[str, str]) -> JsonValue:
    """Subagents by their number instead of their id."""
    if isinstance(value, str):
        for found, name in started.items():
            value = value.replace(found, name)
        return value
    if isinstance(value, dict):
        return {key: _named(item, started) for key, item in value.items()}
    return [_named(item, started) for item in value] if isinstance(value, list) else value


def _started(log: StoredLog, family: Family) -> dict[str, str]:
    """The subagents that a session has started, by id, as a script names them."""
    places = family.places()
    mine = places[log.header.session_id]
    return {
        one: "{{subagent " + place.rpartition("/")[2] + "}}"
        for one, place in places.items()
        if place.rpartition("/")[0] == mine
    }


def _chunks(data: JsonObject) -> list[JsonObject]:
    return [obj(one.get("chunk")) for one in map(obj, arr(data.get("stream"))) if "chunk" in one]


def _ended(data: JsonObject) -> list[JsonValue]:
    """The whole blocks of the stream: a limit takes calls out of the message, not out of it."""
    return [chunk["block"] for chunk in _chunks(data) if chunk.get("type") == "block-end"]


def _finish(data: JsonObject) -> JsonValue:
    ends = [obj(c.get("reason")) for c in _chunks(data) if c.get("type") == "finish"]
    return ends[-1].get("kind") if ends else None


def _failure(data: JsonObject) -> JsonObject | None:
    for chunk in _chunks(data):
        reason = obj(chunk.get("reason"))
        if chunk.get("type") == "finish" and reason.get("kind") == "error":
            return obj(reason.get("failure"))
    return None


def _failed(failure: JsonObject, placer: Placer) -> JsonObject:
    code = text_or_none(failure.get("code")) or ""
    status = failure.get("status", FAILURES_WITHOUT_STATUS.get(code))
    if code == "REFUSAL":
        return {"stop": "refusal"}
    if code == "EMPTY_RESPONSE":
        return {"stop": "end_turn"}
    if not isinstance(status, int):
        return {"disconnect": True}
    message = placer.text(str(failure.get("message", "")))
    return {"error": {"status": status, "message": message, "retry_after_s": 0}}


OUTPUT_CHARS_MAX = 10_000
"""How much of an output that was too long for the log is shown: less than is cut again."""

_MARKS = re.compile(r"\n\[(exit code|signal): ([\w-]+)\]$")
_TIMED_OUT = re.compile(
    r"Error: the command was still running after \d+ ms and was killed\. [^\n]*\n"
)
_FAULT = re.compile(r"Error: [^\n]*cancelled while running[^\n]*\n?")


def terminal_of(call: Call) -> tuple[str, JsonObject]:
    """What the client's terminal showed of a command, and its exit status."""
    text = f"\n{call.text or ''}"
    exit_status: JsonObject = {"exitCode": None, "signal": None}
    while found := _MARKS.search(text):
        text = text[: found.start()]
        if found[1] == "signal":
            exit_status["signal"] = found[2]
        elif found[2].isdecimal():
            exit_status["exitCode"] = int(found[2])
    text = _FAULT.sub("", _TIMED_OUT.sub("", text.removeprefix("\n")))
    if exit_status == {"exitCode": None, "signal": None}:
        exit_status["exitCode"] = 137 if call.code == "TIMEOUT" else int(call.is_error)
    if "outputFile" in call.meta:
        text = text[:OUTPUT_CHARS_MAX]
    return ("" if text == "(no output)" else text + "\n"), exit_status
