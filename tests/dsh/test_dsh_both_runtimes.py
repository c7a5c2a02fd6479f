"""The same steps on both runtimes: a client is told the same, but for what is meant to differ."""

import copy
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from bridge_rig import DshPlace
from dsh_rig import GATE, Message, Model, loopback_model, pieces, text, tool
from mcp_rig import tiny
from process_rig import BRIDGE, Bridge, eventually

pytestmark = [pytest.mark.dsh, pytest.mark.process]

TURNS = 12
"""Turns until a server must be there: a busy machine takes some, and both runtimes as many."""

MODEL = ("--model", "deepseek:deepseek-v4-pro")


class EmbeddedPlace(DshPlace):
    """The same folders and model; its bridges run the embedded harness."""

    def command(self, *flags: str) -> list[str]:
        return [*BRIDGE, "--home", str(self.home), *flags]


class Stage:
    """One runtime, and the script of its model."""

    def __init__(self, place: DshPlace, model: Model) -> None:
        self.place = place
        self.model = model
        self.is_embedded = isinstance(place, EmbeddedPlace)

    def answer(self, session: str, *blocks: Message) -> None:
        """Script an answer. Only the real runtime tells the model whose request it is."""
        self.model.answer("" if self.is_embedded else session, *blocks)

    def is_offered(self, session: str, name: str) -> bool:
        """Whether the last request offered a tool."""
        request = self.model.requests["" if self.is_embedded else session][-1]
        return name in {one["name"] for one in request["tools"]}

    def params(self, session: str) -> Message:
        return {"sessionId": session, "cwd": str(self.place.work), "mcpServers": []}


Play = Callable[[Stage, Bridge], int | None]
"""What is done; from which message on it is compared, if not from the first."""


def plain(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    stage.answer(session, pieces("One ", "two."))
    bridge.answer_to(bridge.prompt(session), wait_s=60)


def permission(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    stage.answer(session, tool("c1", "bash", command="echo hello", description="Say hello"))
    stage.answer(
        session, tool("c2", "write", file_path=str(stage.place.work / "a.txt"), content="x\n")
    )
    stage.answer(session, text("Both done."))
    prompt = bridge.prompt(session)
    for call_id, option in (("c1", "allow-once"), ("c2", "reject-once")):
        bridge.allow(question_on(bridge, call_id), option)
    bridge.answer_to(prompt, wait_s=60)


def cancel(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    stage.answer(session, pieces("Half", GATE, " done."))
    prompt = bridge.prompt(session)
    bridge.update("agent_message_chunk")
    bridge.cancel(session)
    bridge.answer_to(prompt, wait_s=60)
    stage.answer(session, text("Again."))
    bridge.answer_to(bridge.prompt(session, "again"), wait_s=60)


def load(stage: Stage, bridge: Bridge) -> None:
    permission(stage, bridge)
    session = session_of(bridge)
    bridge.result("session/close", sessionId=session)
    bridge.result("session/load", **stage.params(session))


def fork(stage: Stage, bridge: Bridge) -> None:
    plain(stage, bridge)
    session = session_of(bridge)
    made = bridge.result("session/fork", **stage.params(session))["sessionId"]
    stage.answer(made, text("In the fork."))
    bridge.answer_to(bridge.prompt(made, "go on"), wait_s=60)
    bridge.result("session/close", sessionId=made)
    bridge.result("session/load", **stage.params(made))


def commands(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    for typed in ("/mode accept-edits", "/mode bogus", "/title  A name", "/title"):
        bridge.answer_to(bridge.prompt(session, typed), wait_s=60)
    bridge.result("session/close", sessionId=session)
    bridge.result("session/load", **stage.params(session))


def steering(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    at = "" if stage.is_embedded else session
    todos = [{"content": "look", "status": "pending"}]
    stage.answer(session, pieces("look", GATE, "ing"), tool("c1", "todo_write", todos=todos))
    stage.answer(session, text("As you say."))
    prompt = bridge.prompt(session)
    eventually(lambda: bridge.text(session) == "look", wait_s=60)
    said: Message = {"sessionId": session, "prompt": [{"type": "text", "text": "the other way"}]}
    assert bridge.result("_session/steering", **said) == {"outcome": "injected"}
    stage.model.go(at)
    bridge.answer_to(prompt, wait_s=60)
    assert "the other way" in stage.model.asked(at)
    idle = {"_meta": {"steering": {"idleBehavior": "promptRequired"}}}
    assert bridge.result("_session/steering", **said, **idle)["outcome"] == "promptRequired"
    bridge.result("session/close", sessionId=session)
    bridge.result("session/load", **stage.params(session))


def servers(stage: Stage, bridge: Bridge) -> int:
    """Compared from where the server is there: in which turn that is depends on the machine."""
    given = tiny()
    server = {"name": "tiny", "command": given.command, "args": list(given.args), "env": []}
    params = {"cwd": str(stage.place.work), "mcpServers": [server]}
    session = str(bridge.result("session/new", **params)["sessionId"])
    for number in range(TURNS):
        bridge.answer_to(bridge.prompt(session, "hello"), wait_s=60)
        if not stage.is_offered(session, "mcp__tiny__add"):
            time.sleep(1 + number)
    assert stage.is_offered(session, "mcp__tiny__add")
    since = len(bridge.heard)
    stage.answer(session, tool("c1", "mcp__tiny__add", a=2, b=3))
    stage.answer(session, tool("c2", "mcp__tiny__add", a=3, b=3))
    stage.answer(session, tool("c3", "mcp__tiny__env", name="NOTHING"))
    stage.answer(session, tool("c4", "mcp__tiny__fail"))
    stage.answer(session, text("All done."))
    prompt = bridge.prompt(session)
    for call_id, option in (("c1", "allow-always"), ("c3", "reject-once"), ("c4", "allow-once")):
        bridge.allow(question_on(bridge, call_id), option)
    bridge.answer_to(prompt, wait_s=60)
    return since


def questions(stage: Stage, bridge: Bridge) -> None:
    session = bridge.new(stage.place.work)
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    question = {"id": "q1", "question": "Which?", "header": "Paint", "options": options}
    stage.answer(session, tool("c1", "ask_user_question", questions=[question]))
    stage.answer(session, text("So be it."))
    prompt = bridge.prompt(session)
    asked = bridge.asked("elicitation/create")
    bridge.send({"id": asked["id"], "result": {"action": "accept", "content": {"q1": "Blue"}}})
    bridge.answer_to(prompt, wait_s=60)


def question_on(bridge: Bridge, call_id: str) -> Message:
    """The question about a call."""
    return bridge.wait_for(
        lambda message: (
            message.get("method") == "session/request_permission"
            and message["params"]["toolCall"]["toolCallId"] == call_id
        )
    )


def session_of(bridge: Bridge) -> str:
    return next(
        str(one["result"]["sessionId"])
        for one in bridge.heard
        if "sessionId" in one.get("result", {})
    )


@attrs.frozen
class Difference:
    """What is meant to differ, why, and what makes both sides equal in it."""

    reason: str
    level: Callable[[Message], Message | None]


def told(message: Message) -> Message:
    """The update or the asked call of a message; both may be changed."""
    params: Message = message.get("params", {})
    found: Message = params.get("update") or params.get("toolCall") or {}
    return found


def unlearned(message: Message) -> Message | None:
    update = told(message)
    chosen = {one["id"]: one["currentValue"] for one in update.get("configOptions", [])}
    is_menu = update.get("sessionUpdate") == "config_option_update"
    return None if is_menu and chosen["effort"] == "default" else message


def unwished(message: Message) -> Message:
    for command in told(message).get("availableCommands", []):
        if command["name"] == "compact":
            command.pop("input", None)
    return message


def unopened(message: Message) -> Message | None:
    call = told(message)
    if call.get("status") in {"pending", "in_progress"}:
        call["status"] = "open"
    is_bare = set(call) == {"sessionUpdate", "toolCallId", "status"}
    return None if is_bare and call["status"] == "open" else message


def unseen(message: Message) -> Message | None:
    call = told(message)
    if not any(part["type"] == "diff" for part in parts(call)):
        return message
    if call.get("sessionUpdate") == "tool_call_update":
        return None
    del call["content"]
    for place in call["locations"]:
        place.pop("line", None)
    return message


def parts(call: Message) -> list[Message]:
    content = call.get("content")
    return content if isinstance(content, list) else []


def uncoded(message: Message) -> Message:
    output = told(message).get("rawOutput", {})
    output.pop("exitCode", None)
    if "text" in output:
        output["text"] = output["text"].removesuffix("[exit code: 0]")
    return message


def unworded(message: Message) -> Message:
    call = told(message)
    if call.get("status") == "failed":
        call["content"] = call["rawOutput"] = "refused"
    return message


MEANT = {
    "wish": Difference("the /compact of dsh takes no wish", unwished),
    "menu": Difference("the models are those that dsh has, told once it is up", unlearned),
    "status": Difference(
        "dsh writes a call before it is known whether it asks, so it is shown as running",
        unopened,
    ),
    "preview": Difference(
        "the plugin gives the arguments of a call that asks; the change itself dsh does not tell",
        unseen,
    ),
    "exit code": Difference(
        "dsh tells the model no exit code of a command that went well, so there is none to show",
        uncoded,
    ),
    "words": Difference("what the model is told of a refusal is each runtime's own text", unworded),
}

OFFERED = frozenset({"wish", "menu"})
CALLS = frozenset({"status", "preview", "exit code", "words"})

PLAYS = [
    (plain, OFFERED),
    (permission, OFFERED | CALLS),
    (cancel, OFFERED),
    (load, OFFERED | CALLS),
    (fork, OFFERED),
    (commands, OFFERED),
    (steering, OFFERED),
    (servers, frozenset({"status", "words"})),
    (questions, OFFERED),
]
"""Each play with the differences that it shows."""


def performed(place: DshPlace, play: Play) -> list[Message]:
    """What a client is told in a play, with names in the place of ids and folders."""
    with place.bridge(*MODEL) as bridge:
        bridge.hello(elicitation={"form": {}})
        since = play(Stage(place, place.loopback), bridge) or 0
        heard = bridge.heard[since:]
        shown = [one for one in heard if "method" in one or "stopReason" in one["result"]]
        names = {str(place.root): "ROOT"}
        for one in bridge.heard:
            if "sessionId" in one.get("result", {}):
                names.setdefault(one["result"]["sessionId"], f"SESSION-{len(names)}")
            for command in re.findall(r'"command\.([^".]+)', json.dumps(one)):
                names.setdefault(command, f"COMMAND-{len(names)}")
        raw = json.dumps([{**one, "id": None} for one in shown])
    for text_, name in names.items():
        raw = raw.replace(text_, name)
    found: list[Message] = json.loads(raw)
    return found


def levelled(messages: list[Message], differences: frozenset[str]) -> list[Message]:
    """The messages without these differences, the chunks of one message as one."""
    kept: list[Message] = []
    for message in copy.deepcopy(messages):
        level: Message | None = message
        for name in sorted(differences):
            level = None if level is None else MEANT[name].level(level)
        if level is None:
            continue
        update, before = told(level), told(kept[-1]) if kept else {}
        chunk = ("sessionUpdate", "messageId")
        if "messageId" in update and all(update[key] == before.get(key) for key in chunk):
            before["content"]["text"] += update["content"]["text"]
        else:
            kept.append(level)
    return kept


@pytest.mark.parametrize(("play", "differences"), PLAYS)
def test_a_client_is_told_the_same_by_both_runtimes_but_for_what_is_meant(
    play: Play, differences: frozenset[str], tmp_path: Path
) -> None:
    heard = []
    for kind in (EmbeddedPlace, DshPlace):
        root = tmp_path / kind.__name__
        root.mkdir()
        with loopback_model() as model:
            heard.append(performed(kind(root, model), play))
    embedded, dsh = heard
    assert levelled(dsh, differences) == levelled(embedded, differences)
    for name in differences:
        rest = differences - {name}
        assert levelled(dsh, rest) != levelled(embedded, rest), f"no difference any more: {name}"
