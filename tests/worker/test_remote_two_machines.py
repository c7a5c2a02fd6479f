"""A home and its worker on two machines (network namespaces), and a wire that is cut."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines_rig import DELEGATE, Link, Machines, live_pid, said, stop_reason, until_said
from pace import patient
from process_rig import eventually
from worker_rig import bash, call, text

from acp_bridge.runevents.runs import LEASE_MS

pytestmark = pytest.mark.process

LEASE_S = LEASE_MS / 1000
CUT_S = 4.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    link = Link()
    try:
        link.make()
    except (subprocess.CalledProcessError, FileNotFoundError):
        link.remove()
        pytest.skip("network namespaces need root and ip")
    try:
        made = Machines(tmp_path, link)
        yield made
        made.stop()
    finally:
        link.remove()


def test_a_child_on_another_machine_asks_and_answers(machines: Machines) -> None:
    place = machines.place
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    where = "ip -br address show dev work0 > where"
    place.script([*text("I look. "), bash(where)], text("Found."), agent="1/1")
    machines.worker("w1")
    with machines.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked())
        assert stop_reason(bridge, prompt) == "end_turn"
    assert "10.77.7.2" in (place.work / "where").read_text()
    (log,) = machines.children(session).values()
    assert said(log) == ["I look. ", "Found."]


def test_a_wire_that_is_cut_for_some_seconds_costs_nothing(machines: Machines) -> None:
    assert machines.link is not None
    place = machines.place
    pieces = [item for n in range(80) for item in (*text(f"piece {n} "), {"delay_ms": 25})]
    whole = "".join(f"piece {n} " for n in range(80))
    place.script([DELEGATE], text("Waiting."), text("It found it."))
    place.script([*pieces, bash("echo 1")], [*pieces, bash("echo 2", "c2")], agent="1/1")
    place.script(text("Found."), agent="1/1")
    machines.worker("w1")
    with machines.bridge("--mode", "full") as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        child = eventually(lambda: next(iter(machines.children(session)), ""))
        until_said(bridge, child, len(whole) // 3)
        machines.link.cut()
        time.sleep(CUT_S)
        machines.link.mend()
        assert stop_reason(bridge, prompt, wait_s=60) == "end_turn"
        assert bridge.text(child) == whole * 2 + "Found."
    assert said(machines.children(session)[child]) == [whole, whole, "Found."]


def test_a_wire_that_stays_cut_ends_the_child_on_both_machines(machines: Machines) -> None:
    assert machines.link is not None
    place = machines.place
    wake = call("send_message", "m1", agent_id="{{subagent 1}}", message="go on")
    place.script([DELEGATE], text("Waiting."), [*text("It failed. "), wake], text("Woken."))
    place.script(text("It found it."))
    place.script([bash("echo $$ > pid; exec sleep 1000")], text("Found."), agent="1/1")
    machines.worker("w1")
    with machines.bridge("--mode", "full") as bridge:
        bridge.hello(subagents={})
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.wait_for(lambda message: "exec sleep" in str(message.get("params")))
        eventually(lambda: live_pid(place.work / "pid"))
        machines.link.cut()
        # The worker hears nothing of it, and stops all the same.
        eventually(lambda: live_pid(place.work / "pid") is None, patient(LEASE_S + 5))
        bridge.wait_for(lambda message: "It failed" in str(message.get("params")))
        machines.link.mend()
        assert stop_reason(bridge, prompt, wait_s=60) == "end_turn"
        assert bridge.text(session) == "Waiting.It failed. Woken.It found it."
    (log,) = machines.children(session).values()
    assert said(log) == ["Found."]
    ends: list[Any] = [event.data for event in log if event.type == "turn/end"]
    assert [end["reason"]["kind"] for end in ends] == ["error", "completed"]
