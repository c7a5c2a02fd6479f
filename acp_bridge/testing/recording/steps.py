"""A transcript as the steps that make it again: what the client sent, and when. Pure.

What the client sends is a step; what it waited for before is one where that decides anything: an
answer before the next request, a request of the agent before its reply, and the last update before
whatever is sent while a turn runs.
"""

from collections.abc import Mapping, Sequence

import attrs

from acp_bridge.testing.normal import RANDOM_ID
from acp_bridge.testing.transcript import Entry, Line, arr, obj, read, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

_SHORT = {
    "session/new": "new",
    "session/load": "load",
    "session/resume": "resume",
    "session/fork": "fork",
    "session/prompt": "p",
    "_session/steering": "steer",
    "session/set_mode": "mode",
    "session/set_config_option": "option",
    "session/request_permission": "ask",
    "elicitation/create": "form",
    "terminal/create": "create",
    "terminal/wait_for_exit": "exit",
    "terminal/output": "output",
    "terminal/kill": "kill",
    "terminal/release": "release",
    "fs/read_text_file": "read",
    "fs/write_text_file": "write",
}


@attrs.frozen(slots=True)
class Mark:
    """A step that no message shows, before the entry at ``index``: a write, a release, a row."""

    index: int
    step: JsonObject
    after_update: bool = True


@attrs.frozen(slots=True)
class Steps:
    """``client`` is what `initialize` was sent; ``foreign`` are sessions that were there before."""

    client: JsonObject
    steps: list[JsonObject]
    foreign: tuple[str, ...]


def steps_of(entries: Sequence[Entry], *, cwd: str | None, marks: Sequence[Mark] = ()) -> Steps:
    """The steps of a transcript; ``cwd``, by default the first session's, becomes ``{{cwd}}``."""
    fold = _Fold(cwd, {mark.index: [m for m in marks if m.index == mark.index] for mark in marks})
    lines = read(entries)
    for index, line in enumerate(lines):
        fold.take(index, line)
    fold.end(len(lines))
    return Steps(fold.client, fold.steps, tuple(fold.foreign))


class _Fold:
    def __init__(self, cwd: str | None, marks: Mapping[int, list[Mark]]) -> None:
        self.client: JsonObject = {}
        self.steps: list[JsonObject] = []
        self.foreign: dict[str, None] = {}
        self._cwd = cwd
        self._marks = marks
        self._names: dict[str, str] = {}  # of requests, by direction and id
        self._counts: dict[str, int] = {}
        self._sessions: dict[str, JsonValue] = {}
        self._pending: list[str] = []
        self._answered: list[str] = []
        self._update: JsonObject | None = None
        self._closing: JsonObject | None = None  # the last update that ended a call
        self._open: dict[str, Line] = {}  # requests of the agent that no step awaits yet
        self._run = 0

    def take(self, index: int, line: Line) -> None:
        for mark in self._marks.get(index, []):
            self._mark(mark)
        if line.entry.run != self._run:
            if self._run:
                self._wait()
                self.steps.append({"restart": {}})
            self._run = line.entry.run
            self._pending, self._answered, self._update, self._closing = [], [], None, None
            self._open.clear()
        if line.entry.to == "client":
            self._received(line)
        elif line.method == "initialize" and line.kind == "request":
            self.client = obj(self._shown({**line.params}))
            self.client.pop("protocolVersion", None)
        elif line.kind == "request":
            self._request(line)
        elif line.kind == "notification":
            self._wait(with_update=True)
            told = self._shown(line.params)
            self.steps.append({"notify": {"method": line.method, "params": told}})
        else:
            self._reply(line)

    def end(self, index: int) -> None:
        for mark in self._marks.get(index, []):
            self._mark(mark)
        self._wait()

    def _mark(self, mark: Mark) -> None:
        self._wait(with_update=mark.after_update)
        self.steps.append(mark.step)

    def _received(self, line: Line) -> None:
        if line.kind == "response":
            name = self._names.get(f"agent {line.message.get('id')!r}")
            if name is None:
                return
            self._answered.append(name)
            made = text_or_none(obj(line.message.get("result")).get("sessionId"))
            if made is not None:
                self._sessions[made] = {"$ref": f"{name}.result.sessionId"}
        elif line.kind == "request":
            name = self._names[f"client {line.message.get('id')!r}"] = self._name(line.method)
            self._open[name] = line
        elif line.update:
            self._update = line.params
            if line.update.get("status") in {"completed", "failed"}:
                self._closing = line.params

    def _request(self, line: Line) -> None:
        self._wait(beside=True)
        if line.method == "session/new" and self._cwd is None:
            self._cwd = text_or_none(line.params.get("cwd"))
        if line.session is not None and line.session not in self._sessions:
            self.foreign[line.session] = None
        name = self._name(line.method)
        self._names[f"agent {line.message.get('id')!r}"] = name
        self._pending.append(name)
        params = self._shown(line.params)
        self.steps.append({"request": {"id": name, "method": line.method, "params": params}})

    def _reply(self, line: Line) -> None:
        request = line.request
        if request is None:
            return
        # What works beside a question or a command ends before it: so there is one order.
        self._update = self._closing
        self._wait(beside=True)
        name = self._names[f"client {line.message.get('id')!r}"]
        for one in list(self._open):  # all that came before the reply came without it
            self._claim(one)
        kind = _chosen(obj(request.get("params")), line.message)
        if kind is not None:
            self.steps.append({"answer": {"to": name, "choose": kind}})
            return
        reply = {k: self._shown(v) for k, v in line.message.items() if k in {"result", "error"}}
        self.steps.append({"answer": {"to": name, **reply}})

    def _claim(self, name: str) -> None:
        """Await a request of the agent, once."""
        line = self._open.pop(name, None)
        if line is None:
            return
        wanted: JsonObject = {"method": line.method}
        if told := self._told(line.params):
            wanted["params"] = told
        self.steps.append({"await": {"as": name, "request": wanted}})

    def _told(self, params: JsonObject) -> JsonObject:
        """What tells a request of the agent from others of its kind."""
        call = obj(params.get("toolCall"))
        name = "rawInput" if RANDOM_ID.search(str(call.get("toolCallId"))) else "toolCallId"
        if name in call:
            return {"toolCall": {name: self._shown(call[name])}}
        names = ("terminalId", "path", "args", "message")
        return {name: self._shown(params[name]) for name in names if name in params}

    def _wait(self, *, with_update: bool = False, beside: bool = False) -> None:
        """Wait for what came since the last step, as far as the next one may depend on it."""
        for name in self._answered:
            last = self.steps[-1] if self.steps else {}
            request = obj(last.get("request"))
            if request.get("id") == name:
                self.steps[-1] = {"call": request}
            else:
                self.steps.append({"await": {"response": name}})
            if name in self._pending:
                self._pending.remove(name)
        if (with_update or (beside and self._pending)) and self._update is not None:
            self.steps.append({"await": self._awaited(self._update)})
        if with_update:
            for name in list(self._open):
                self._claim(name)
        self._answered, self._update, self._closing = [], None, None

    def _awaited(self, params: JsonObject) -> JsonObject:
        update = obj(params.get("update"))
        members = ("sessionUpdate", "toolCallId", "status", "messageId")
        partial: JsonObject = {
            name: update[name]
            for name in members
            if name in update and not RANDOM_ID.search(str(update[name]))
        }
        text = text_or_none(obj(update.get("content")).get("text"))
        if text is not None:
            partial["content"] = {"text": self._shown(text)}
        return {"update": partial, "session": self._shown(params.get("sessionId"))}

    def _shown(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            if value in self._sessions:
                return self._sessions[value]
            return value.replace(self._cwd, "{{cwd}}") if self._cwd else value
        if isinstance(value, list):
            return [self._shown(item) for item in value]
        if isinstance(value, dict):
            return {key: self._shown(item) for key, item in value.items()}
        return value

    def _name(self, method: str) -> str:
        word = _SHORT.get(method, method.replace("/", "-"))
        number = self._counts[word] = self._counts.get(word, 0) + 1
        return word if number == 1 and word != "p" else f"{word}{number}"


def _chosen(params: JsonObject, reply: JsonObject) -> str | None:
    """The kind of the option that a permission request was answered with."""
    chosen = obj(obj(reply.get("result")).get("outcome")).get("optionId")
    for option in map(obj, arr(params.get("options"))):
        if chosen is not None and option.get("optionId") == chosen:
            return text_or_none(option.get("kind"))
    return None
