"""A client that lives through a stored session again: it sends and answers what the user did.

It plays against the real bridge and a scripted model, and what happens becomes the scenario's
steps. It waits as a person would, for what it sees, so the steps can wait for the same.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs

from acp_bridge.testing.client import ScenarioError, ScriptedClient
from acp_bridge.testing.recording.likeness import named
from acp_bridge.testing.recording.log import Call, Said, Turn, terminal_of
from acp_bridge.testing.recording.paths import Placer
from acp_bridge.testing.recording.steps import Mark
from acp_bridge.testing.runner import PROTOCOL_VERSION
from acp_bridge.testing.transcript import Entry, arr, obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

IDLE_S = 60.0
"""So long may nothing happen in a turn: far above what a scripted one takes."""

BESIDE_S = 1.0
"""So long a question or a command waits for what works beside it: that may wait for it in turn."""

POLL_S = 0.01
"""How often the client looks whether its moment has come."""

FORM = "elicitation/create"

QUESTIONS = "ask_user_question"
"""The tool that puts questions to the user, as a form."""

_AGAIN = re.compile(r"[#~]\d+$")
"""What the bridge puts behind the id of a call that another call had before."""


@attrs.frozen(slots=True)
class Moment:
    """Something to do in a turn as soon as ``is_due``. ``steps`` are for the scenario alone.

    ``says`` is what the user says into the turn then.
    """

    is_due: Callable[[], bool]
    act: Callable[[], None] | None = None
    says: tuple[JsonValue, ...] = ()
    steps: tuple[JsonObject, ...] = ()
    cancels: bool = False
    before_prompt: bool = False
    waits_for_update: bool = True


@attrs.frozen(slots=True)
class Plan:
    """All that a session's logs say of its user. ``writes`` and ``gates`` are by answer."""

    turns: list[Turn]
    calls: list[Call]
    writes: Mapping[tuple[str, int], Mapping[str, str]]
    gates: Mapping[tuple[str, int], str]
    child_gates: Sequence[tuple[str, int, int]]
    """Of subagents' answers: name, after which turn of the session, and after how many of all."""


class ReliveClient:
    """One life of a session; ``entries`` and ``marks`` are what `steps_of` needs."""

    def __init__(
        self, client: ScriptedClient, entries: list[Entry], plan: Plan, placer: Placer, cwd: Path
    ) -> None:
        self._client = client
        self.entries = entries
        self.marks: list[Mark] = []
        self._plan = plan
        self._placer = placer
        self._cwd = cwd
        self._seen = 0
        self._requests = 0
        self._steered = 0
        self._to_say = 0
        self._by_tool_call: dict[str, Call | None] = {}
        self._left: dict[str, list[Call]] = defaultdict(list)
        for call in plan.calls:
            self._left[call.call_id].append(call)
        self._commands = [call for call in plan.calls if call.name == "bash"]
        self._terminals: dict[str, Call] = {}
        self._held: list[JsonObject] = []
        self._replies: list[tuple[JsonObject, JsonObject, Callable[[], bool]]] = []
        self._held_calls: set[str] = set()
        self._asked: list[Call] = []
        self._session = ""
        self._turn_start = 0

    async def live(self, *, stored: Callable[[str], int], release: Callable[[str], None]) -> None:
        """From `initialize` to the end of the last turn.

        ``stored`` gives how many rows of a type all logs hold.
        """
        offers: JsonObject = {"terminal": True} if self._commands else {}
        if any(call.name == QUESTIONS for call in self._plan.calls):
            offers["elicitation"] = {"form": {}}
        await self._call(
            "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": offers}
        )
        made = await self._call("session/new", {"cwd": str(self._cwd), "mcpServers": []})
        self._session = str(obj(made.get("result")).get("sessionId"))
        mode = "ask"
        for group in _groups(self._plan.turns):
            if group[0].mode != mode:
                mode = group[0].mode
                await self._call("session/set_mode", {"sessionId": self._session, "modeId": mode})
            moments = [m for turn in group for m in self._moments(turn, stored, release)]
            for prompt in group[0].prompts:
                await self._prompt(prompt, moments)
                moments = []

    async def _prompt(self, prompt: Sequence[JsonValue], moments: list[Moment]) -> None:
        blocks = named(list(prompt), {"{{cwd}}": str(self._cwd)})
        params: JsonObject = {"sessionId": self._session, "prompt": blocks}
        while moments and moments[0].before_prompt:
            self._do(moments.pop(0))
        await self._call("session/prompt", params, moments)

    async def _call(
        self, method: str, params: JsonObject, moments: list[Moment] | None = None
    ) -> JsonObject:
        """Send a request and do what there is to do until its answer."""
        self._requests += 1
        self._turn_start = len(self.entries)
        request_id = f"r{self._requests}"
        await self._client.send({"id": request_id, "method": method, "params": params})
        left = moments or []
        while True:
            with anyio.move_on_after(IDLE_S) as limit:
                entry = await self._next(left)
            if limit.cancelled_caught:
                raise ScenarioError(f"nothing more came of {method}\n{self._client.seen()}")
            if entry is None and self._replies and self._replies[0][2]():
                message, result, _ = self._replies.pop(0)
                await self._client.send({"id": message["id"], "result": result})
            elif entry is None:
                moment = left.pop(0)
                self._do(moment)
                if moment.says:
                    await self._steer(moment.says)
                if moment.cancels:
                    told: JsonObject = {"sessionId": self._session}
                    await self._client.send({"method": "session/cancel", "params": told})
            elif "method" in entry and "id" in entry:
                await self._answer(entry)
            elif entry.get("id") == request_id and "method" not in entry:
                await self._close_held()
                return entry

    async def _steer(self, words: Sequence[JsonValue]) -> None:
        self._steered += 1
        params: JsonObject = {
            "sessionId": self._session,
            "prompt": named(list(words), {"{{cwd}}": str(self._cwd)}),
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        }
        request_id = f"s{self._steered}"
        await self._client.send({"id": request_id, "method": "_session/steering", "params": params})

    def _are_heard(self, count: int) -> bool:
        """Whether so many words into turns have been answered."""
        wanted = {f"s{number}" for number in range(1, count + 1)}
        return wanted <= {
            str(entry.message.get("id"))
            for entry in self.entries
            if entry.to == "client" and "method" not in entry.message
        }

    async def _next(self, moments: list[Moment]) -> JsonObject | None:
        """The next message to the client; None when a command may end or a moment has come."""
        while True:
            while self._seen < len(self.entries):
                entry = self.entries[self._seen]
                self._seen += 1
                if entry.to == "client":
                    self._note(entry.message)
                    return entry.message
            if (self._replies and self._replies[0][2]()) or (moments and moments[0].is_due()):
                return None
            if self._client.ended:
                why = self._client.fault or "the agent closed its output"
                raise ScenarioError(f"{why}\n{self._client.seen()}")
            await anyio.sleep(POLL_S)

    def _do(self, moment: Moment) -> None:
        is_update = moment.waits_for_update and not moment.before_prompt
        for step in moment.steps:
            self.marks.append(Mark(len(self.entries), step, after_update=is_update))
        if moment.act is not None:
            moment.act()

    async def _close_held(self) -> None:
        """Answer what a cancel left open, after the turn: any earlier it would race with it."""
        for message in self._held:
            outcome: JsonObject = {"outcome": {"outcome": "cancelled"}}
            if message["method"] == FORM:
                outcome = {"action": "cancel"}
            await self._client.send({"id": message["id"], "result": outcome})
        self._held.clear()

    # --- moments --------------------------------------------------------------------------------

    def _moments(
        self, turn: Turn, stored: Callable[[str], int], release: Callable[[str], None]
    ) -> list[Moment]:
        """What there is to do in a turn, in order, besides answering."""
        found: list[Moment] = []
        before: Said | None = None
        for said in turn.answers:
            asked = ("1", said.number)
            steps: tuple[JsonObject, ...] = tuple(
                {"write": {"path": path, "text": text}}
                for path, text in self._plan.writes.get(asked, {}).items()
            )
            if steps:
                write = self._writer(self._plan.writes[asked])
                gate = self._plan.gates.get(asked)
                if gate is None or before is None:
                    found.append(Moment(lambda: True, write, steps=steps, before_prompt=True))
                else:
                    found.append(
                        Moment(
                            self._are_closed(before.calls),
                            _both(write, gate, release),
                            steps=(*steps, {"release": gate}),
                        )
                    )
            found += self._said_during(turn, said.number, stored, release)
            before = said
        if turn.is_cancelled:
            found.append(Moment(self._cancel_moment(turn), cancels=True))
            return found
        for name, own, count in self._plan.child_gates:
            if own == turn.ordinal:
                row: JsonObject = {"await": {"row": {"type": "turn/end"}, "times": count}}
                found.append(
                    Moment(
                        partial(_reached, stored, "turn/end", count),
                        partial(release, name),
                        steps=(row, {"release": name}),
                    )
                )
        return found

    def _said_during(
        self, turn: Turn, number: int, stored: Callable[[str], int], release: Callable[[str], None]
    ) -> list[Moment]:
        """What the user says while an answer waits for it, and the end of that wait."""
        found: list[Moment] = []
        gate = self._plan.gates.get(("1", number), "")
        for one in turn.steered:
            if one.number == number:
                self._to_say += 1
                row: JsonObject = {"await": {"row": {"type": "step/start"}, "times": one.step}}
                found.append(
                    Moment(
                        partial(_reached, stored, "step/start", one.step),
                        says=one.words,
                        steps=(row,),
                        waits_for_update=False,
                    )
                )
        if found:
            found.append(
                Moment(
                    partial(self._are_heard, self._to_say),
                    partial(release, gate),
                    steps=({"release": gate},),
                    waits_for_update=False,
                )
            )
        return found

    def _writer(self, texts: Mapping[str, str]) -> Callable[[], None]:
        def write() -> None:
            for path, text in texts.items():
                file = self._cwd / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.replace("{{cwd}}", str(self._cwd)), "utf-8", newline="")

        return write

    def _cancel_moment(self, turn: Turn) -> Callable[[], bool]:
        if not turn.answers:
            return lambda: True
        last, *others = reversed(turn.answers)
        if last.is_cut and last.text is not None:
            return self._is_said(last.text)
        if last.is_cut:
            return self._are_closed(others[0].calls) if others else lambda: True
        calls = {call.call_id: call for call in self._plan.calls if call.call_id in last.calls}
        whole = [one for one in last.calls if not calls[one].was_cut]
        cut = [one for one in calls.values() if one.was_cut]
        held = [
            one.call_id
            for one in cut
            if one.decision == "cancelled" or (one.code == "ABORTED" and one.name == "bash")
        ]
        running = [one.call_id for one in cut if one.code == "ABORTED" and one.call_id not in held]
        closed, started = self._are_closed(whole), self._have_status(running, {"in_progress"})
        return lambda: closed() and started() and self._held_calls.issuperset(held)

    def _is_said(self, text: str) -> Callable[[], bool]:
        start = len(self.entries)
        wanted = self._placer.text(text).replace("{{cwd}}", str(self._cwd))

        def is_said() -> bool:
            return any(
                obj(self._update(entry).get("content")).get("text") == wanted
                for entry in self.entries[start:]
            )

        return is_said

    def _are_closed(self, calls: Sequence[str], start: int | None = None) -> Callable[[], bool]:
        return self._have_status(calls, {"completed", "failed"}, start)

    def _have_status(
        self, calls: Sequence[str], wanted: set[str], start: int | None = None
    ) -> Callable[[], bool]:
        start = len(self.entries) if start is None else start

        def have() -> bool:
            updates = [self._update(entry) for entry in self.entries[start:]]
            reached = {
                _AGAIN.sub("", str(update.get("toolCallId")))
                for update in updates
                if update.get("status") in wanted
            }
            return reached.issuperset(calls)

        return have

    def _update(self, entry: Entry) -> JsonObject:
        return obj(obj(entry.message.get("params")).get("update")) if entry.to == "client" else {}

    # --- answers --------------------------------------------------------------------------------

    def _note(self, message: JsonObject) -> None:
        """Calls by the id that the client knows them by, in the order in which they appear."""
        params = obj(message.get("params"))
        for one in (obj(params.get("update")), obj(params.get("toolCall"))):
            tool_call = text_or_none(one.get("toolCallId"))
            if tool_call is not None and tool_call not in self._by_tool_call:
                self._by_tool_call[tool_call] = self._take(tool_call)

    def _take(self, tool_call: str) -> Call | None:
        base = _AGAIN.sub("", tool_call)
        for call_id in (base, *(one for one in self._left if base.endswith(one))):
            if left := self._left.get(call_id):
                return left.pop(0)
        return None

    async def _answer(self, message: JsonObject) -> None:
        params = obj(message.get("params"))
        result: JsonObject = {}
        match message["method"]:
            case "session/request_permission":
                call = self._by_tool_call.get(str(obj(params["toolCall"])["toolCallId"]))
                self._asked += [call] if call is not None else []
                if call is not None and call.decision == "cancelled" and call.was_cut:
                    self._held.append(message)
                    self._held_calls.add(call.call_id)
                    return
                self._replies.append((message, _decided(call, params), self._beside(call)))
                return
            case "elicitation/create":
                call = self._by_tool_call.get(str(params.get("toolCallId")))
                self._asked += [call] if call is not None else []
                if call is not None and call.was_cut:
                    self._held.append(message)
                    self._held_calls.add(call.call_id)
                    return
                self._replies.append((message, _filled_in(call), self._beside(call)))
                return
            case "terminal/create":
                terminal = f"terminal-{len(self._terminals) + 1}"
                call = self._command(str(arr(params.get("args"))[-1]))
                self._terminals[terminal] = call
                self._replies.append((message, {"terminalId": terminal}, self._next_asked(call)))
                return
            case "terminal/wait_for_exit":
                call = self._terminals[str(params["terminalId"])]
                if call.was_cut:
                    self._held_calls.add(call.call_id)
                else:
                    self._replies.append((message, terminal_of(call)[1], self._beside(call)))
                return
            case "terminal/output":
                output, status = terminal_of(self._terminals[str(params["terminalId"])])
                shown = self._placer.text(output).replace("{{cwd}}", str(self._cwd))
                result = {"output": shown, "truncated": False, "exitStatus": status}
            case "terminal/kill" | "terminal/release":
                pass
            case method:
                raise ScenarioError(f"the agent asks for {method}, which nobody offered")
        await self._client.send({"id": message["id"], "result": result})

    def _beside(self, call: Call | None) -> Callable[[], bool]:
        """Whether all that works beside a call is done: so their order is always the same."""
        late = anyio.current_time() + BESIDE_S
        for turn in self._plan.turns:
            for said in turn.answers:
                if call is not None and call.place == "1" and call.call_id in said.calls:
                    quick = [
                        one.call_id
                        for one in self._plan.calls
                        if one.call_id in said.calls
                        and one.call_id != call.call_id
                        and one.name != "bash"
                        and one.decision is None
                        and not one.was_cut
                    ]
                    closed = self._are_closed(quick, start=self._turn_start)
                    return lambda: closed() or anyio.current_time() > late
        return lambda: True

    def _next_asked(self, command: Call) -> Callable[[], bool]:
        """Whether the question that follows a command's, in the same answer, has come."""
        late = anyio.current_time() + BESIDE_S
        for said in (said for turn in self._plan.turns for said in turn.answers):
            if command.place == "1" and command.call_id in said.calls:
                behind = said.calls[said.calls.index(command.call_id) + 1 :]
                asked = [
                    one
                    for one in self._plan.calls
                    if one.call_id in behind and one.decision is not None
                ]
                if asked:
                    first = asked[0]
                    return lambda: first in self._asked or anyio.current_time() > late
        return lambda: True

    def _command(self, line: str) -> Call:
        for call in self._commands:
            placed = self._placer.text(str(call.arguments.get("command")))
            if placed.replace("{{cwd}}", str(self._cwd)) == line:
                self._commands.remove(call)
                return call
        raise ScenarioError(f"a command that the session did not run: {line}")


def _decided(call: Call | None, params: JsonObject) -> JsonObject:
    """The user's answer; what ran without a question is allowed, once."""
    kinds = {"allowed-always": "allow_always", "rejected": "reject_once"}
    if call is not None and call.decision in {"cancelled", "unavailable"}:
        return {"outcome": {"outcome": "cancelled"}}
    kind = kinds.get(str(call.decision) if call is not None else "", "allow_once")
    options = list(map(obj, arr(params.get("options"))))
    chosen = next((one for one in options if one.get("kind") == kind), options[0])
    outcome: JsonObject = {"outcome": "selected", "optionId": chosen["optionId"]}
    return {"outcome": outcome}


def _filled_in(call: Call | None) -> JsonObject:
    """The form as the user gave it back, as far as the result of the call tells it."""
    try:
        answers = arr(obj(json.loads(str(call and call.text))).get("answers"))
    except ValueError:
        return {"action": "decline"}
    assert call is not None
    content: JsonObject = {}
    questions = map(obj, arr(call.arguments.get("questions")))
    pairs = zip(questions, map(obj, answers), strict=False)  # of another program, maybe
    for number, (question, answer) in enumerate(pairs, start=1):
        key, selected, typed = f"q{number}", arr(answer.get("selected")), answer.get("custom")
        if selected:
            content[key] = selected if question.get("multi_select") is True else selected[0]
        if typed is not None:
            content[f"{key}_other" if question.get("options") else key] = typed
    return {"action": "accept", "content": content}


def _groups(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Each turn that the user began, with those that began by themselves before his next one."""
    groups: list[list[Turn]] = []
    for turn in turns:
        if turn.prompts:
            groups.append([turn])
        elif groups:
            groups[-1].append(turn)
    return groups


def _reached(stored: Callable[[str], int], row: str, count: int) -> bool:
    return stored(row) >= count


def _both(
    write: Callable[[], None], gate: str, release: Callable[[str], None]
) -> Callable[[], None]:
    def act() -> None:
        write()
        release(gate)

    return act
