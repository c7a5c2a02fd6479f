"""An editor, `acp-bridge --delegation remote`, the service, and workers: each a process."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from machines_rig import DELEGATE, NESTED, Machines, live_pid, said, stop_reason, until_said
from process_rig import Bridge, Message, eventually
from redis_rig import redis_server
from worker_rig import bash, call, text

from acp_bridge.runevents.runs import LEASE_MS

pytestmark = pytest.mark.process

LAPSE_S = LEASE_MS / 1000 + 60


BOTH_LOGS = pytest.mark.parametrize("machines", ["sqlite", "redis"], indirect=True)


@pytest.fixture
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    with ExitStack() as stack:
        log = None
        if getattr(request, "param", "sqlite") == "redis":
            folder = tmp_path / "redis"
            folder.mkdir()
            log = stack.enter_context(redis_server(folder)).url
        made = Machines(tmp_path, log=log)
        stack.callback(made.stop)
        yield made


def runs_shown(bridge: Bridge) -> list[Message]:
    """The tool calls that show subagents' runs."""
    return [
        update
        for update in bridge.updates()
        if update["sessionUpdate"] == "tool_call" and update["title"].startswith("Subagent ")
    ]


def test_a_remote_child_shows_asks_and_answers_as_a_local_one(machines: Machines) -> None:
    place = machines.place
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    place.script([*text("I ", "look. "), bash("echo found > found")], text("Found."), agent="1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        question = bridge.asked()
        assert question["params"]["toolCall"]["rawInput"]["command"] == "echo found > found"
        assert not (place.work / "found").exists()
        bridge.allow(question)
        assert stop_reason(bridge, prompt) == "end_turn"
        assert bridge.text() == "Waiting.It found it."
        (shown,) = runs_shown(bridge)
        assert shown["title"] == "Subagent look"
        titles = [str(update.get("title")) for update in bridge.updates()]
        waits = titles.index("Subagent look: waits for a worker")
        assert titles.index("Subagent look: works on w1") > waits
    assert (place.work / "found").exists()
    (log,) = machines.children(session).values()
    assert said(log) == ["I look. ", "Found."]


def is_asked_after(first: Message, message: Message) -> bool:
    return bool(message.get("method") == first["method"] and message["id"] != first["id"])


@BOTH_LOGS
def test_a_question_outlives_the_service_it_came_by(machines: Machines) -> None:
    place = machines.place
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    pieces = [item for n in range(40) for item in (*text(f"piece {n} "), {"delay_ms": 25})]
    whole = "".join(f"piece {n} " for n in range(40))
    place.script([bash("echo found > found")], [*pieces, bash("echo more", "c2")], agent="1/1")
    place.script(text("Found."), agent="1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        first = bridge.asked()
        machines.server.kill()
        machines.server.start()
        bridge.allow(first)  # to a service that was not there when it was asked
        (child,) = machines.children(session)
        until_said(bridge, child, len(whole) // 3)
        machines.server.kill()
        machines.server.start()
        bridge.allow(bridge.wait_for(lambda message: is_asked_after(first, message)))
        assert stop_reason(bridge, prompt, wait_s=60) == "end_turn"
        assert bridge.text(child) == f"{whole}Found."
    assert (place.work / "found").exists()
    (log,) = machines.children(session).values()
    assert said(log) == [whole, "Found."]
    decided = [event for event in log if event.type == "approval/decided"]
    assert len(decided) == 2


def test_a_question_of_a_remote_child_is_put_to_the_editors_user(machines: Machines) -> None:
    place = machines.place
    options = [{"label": "SQLite"}, {"label": "PostgreSQL"}]
    ask = {"id": "db", "question": "Which?", "header": "Database", "options": options}
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    place.script([call("ask_user_question", questions=[ask])], text("So be it."), agent="1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello(elicitation={"form": {}})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        question = bridge.asked("elicitation/create")
        assert "Which?" in str(question["params"])
        chosen = {"action": "accept", "content": {"q1": "PostgreSQL"}}
        bridge.send({"id": question["id"], "result": chosen})
        assert stop_reason(bridge, prompt) == "end_turn"
    (log,) = machines.children(session).values()
    assert said(log) == ["So be it."]
    assert any("PostgreSQL" in str(row.data) for row in log if row.type == "tool/result")


def test_a_native_client_sees_the_childs_session_and_its_childs(machines: Machines) -> None:
    place = machines.place
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    place.script([NESTED], text("It waits too."), text("Found."), agent="1/1")
    place.script([*text("Deep. "), bash("echo deep > deep")], text("Deeper."), agent="1/1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        question = bridge.asked()
        asker = question["params"]["sessionId"]
        bridge.allow(question)
        assert stop_reason(bridge, prompt) == "end_turn"
        children = machines.children(session)
        assert len(children) == 2
        assert asker in children
        assert said(children[asker]) == ["Deep. ", "Deeper."]
        assert bridge.text(asker) == "Deep. Deeper."
        (child,) = children.keys() - {asker}
        assert bridge.text(child) == "".join(said(children[child])) == "It waits too.Found."
        assert bridge.text(session) == "Waiting.It found it."
    assert (place.work / "deep").exists()


def test_a_fork_begins_elsewhere_with_the_conversation(machines: Machines) -> None:
    place = machines.place
    fork = call("subagent_fork", "f1", description="look", prompt="look around")
    place.script(text("Hello."), [fork], text("Waiting."), text("It found it."))
    place.script(text("I know what you said."), agent="1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        assert stop_reason(bridge, bridge.prompt(session, "hello")) == "end_turn"
        assert stop_reason(bridge, bridge.prompt(session, "fork")) == "end_turn"
        ((child, log),) = machines.children(session).items()
        assert bridge.text(child) == "I know what you said."
    assert said(log) == ["Hello.", "I know what you said."]


def test_a_cancel_reaches_the_worker_and_ends_what_runs_there(machines: Machines) -> None:
    place = machines.place
    place.script([DELEGATE], text("Waiting."))
    place.script([*text("busy"), bash("echo $$ > pid; exec sleep 1000")], agent="1/1")
    machines.worker("w1")
    with machines.bridge("--mode", "full") as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        pid = eventually(lambda: live_pid(place.work / "pid"))
        bridge.cancel(session)
        assert stop_reason(bridge, prompt) == "cancelled"
        eventually(lambda: not Path(f"/proc/{pid}").exists())
    (log,) = machines.children(session).values()
    ends: list[Any] = [event.data for event in log if event.type == "turn/end"]
    assert [end["reason"]["kind"] for end in ends] == ["aborted"]


def test_a_killed_workers_child_fails_and_a_message_lets_another_worker_go_on(
    machines: Machines,
) -> None:
    place = machines.place
    wake = call("send_message", "m1", agent_id="{{subagent 1}}", message="go on")
    place.script([DELEGATE], text("Waiting."), [*text("It failed. "), wake], text("Woken."))
    place.script(text("It found it."))
    place.script([*text("busy"), {"wait": "go"}, *text(" and done")], agent="1/1")
    first = machines.worker("w1")
    with machines.bridge("--mode", "full") as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.wait_for(lambda message: "busy" in str(message.get("params")))
        first.signal(signal.SIGKILL)
        machines.worker("w2")
        place.release("go")
        assert stop_reason(bridge, prompt, wait_s=LAPSE_S) == "end_turn"
        assert bridge.text(session) == "Waiting.It failed. Woken.It found it."
    (log,) = machines.children(session).values()
    assert said(log) == ["busy and done"]
    ends: list[Any] = [event.data for event in log if event.type == "turn/end"]
    assert [end["reason"]["kind"] for end in ends] == ["error", "completed"]


def test_a_service_that_is_killed_on_the_way_loses_nothing_and_tells_nothing_twice(
    machines: Machines,
) -> None:
    place = machines.place
    pieces = [item for n in range(80) for item in (*text(f"piece {n} "), {"delay_ms": 25})]
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    for n in range(2):
        place.script([*pieces, bash(f"echo {n}", f"c{n}")], agent="1/1")
    place.script(text("Found."), agent="1/1")
    machines.worker("w1")
    whole = "".join(f"piece {n} " for n in range(80))
    with machines.bridge("--mode", "full") as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        for kill in range(2):
            child = eventually(lambda: next(iter(machines.children(session)), ""))
            until_said(bridge, child, kill * len(whole) + len(whole) // 3)
            machines.server.kill()
            machines.server.start()
        assert stop_reason(bridge, prompt, wait_s=60) == "end_turn"
        assert bridge.text(child) == whole * 2 + "Found."
    (log,) = machines.children(session).values()
    assert said(log) == [whole, whole, "Found."]
