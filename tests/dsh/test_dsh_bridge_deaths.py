"""The process that sessions share dies or hangs under all of them: each is told, and goes on.

Every bridge is checked for processes that it left behind, commands of the model's among them.
"""

import os
import signal
from collections import Counter
from typing import Any

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import GATE, pieces, text, tool
from process_rig import Bridge, eventually

from acp_bridge.runtime.dsh.host import ANSWER_WAIT_S
from acp_bridge.runtime.dsh.session import CANCEL_WAIT_S

pytestmark = [pytest.mark.dsh, pytest.mark.process]

KILL_WAIT_S = 10.0
"""What the end of a process that ignores us may add, on a loaded machine."""


class Three:
    """Sessions of one process: one in the middle of an answer, one idle, one that asks."""

    def __init__(self, place: DshPlace, bridge: Bridge) -> None:
        self.place, self.bridge = place, bridge
        self.idle, self.speaking, self.asking = (bridge.new(place.work) for _ in range(3))
        assert end_of(bridge, self.idle, "idle before") == "end_turn"
        place.loopback.answer(self.speaking, pieces("Half", GATE, " done."))
        self.spoken = bridge.prompt(self.speaking, "speaking before")
        eventually(lambda: bridge.text(self.speaking) == "Half", wait_s=60)
        place.loopback.answer(
            self.asking, tool("c1", "bash", command="sleep 600.25", description="Wait")
        )
        self.asked = bridge.prompt(self.asking, "asking before")
        self.question = bridge.asked(sessionId=self.asking)
        self.pid = place.dsh_of()

    def go_on(self) -> None:
        """Each takes another prompt, and its model knows what was said before."""
        for session in (self.asking, self.speaking, self.idle):
            self.place.loopback.script[session].clear()
            assert end_of(self.bridge, session, "go on") == "end_turn"
        assert "idle before" in self.place.loopback.asked(self.idle)
        assert "speaking before" in self.place.loopback.asked(self.speaking)
        assert "asking before" in self.place.loopback.asked(self.asking)

    def check_logs(self) -> None:
        """Nothing was lost, and nothing is there twice."""
        for session, before in (
            (self.idle, "idle before"),
            (self.speaking, "speaking before"),
            (self.asking, "asking before"),
        ):
            rows = self.place.stored(session)
            kinds = Counter(row.type for row in rows)
            assert kinds["turn/start"] == kinds["turn/end"] == 2
            said = [spoken(row.data) for row in rows if is_the_users(row)]
            assert said == [before, "go on"]
            ids = [row.data["id"] for row in rows if is_the_users(row)]  # type: ignore[index,call-overload]
            assert len(set(ids)) == 2


def is_the_users(row: Any) -> bool:
    return bool(row.type == "user/message" and row.data["source"]["kind"] == "user")


def spoken(data: Any) -> str:
    return "".join(block["text"] for block in data["content"])


def withdrawn(bridge: Bridge, question: Any) -> bool:
    """Whether the client was told that a question is void."""
    return any(
        m.get("method") == "$/cancel_request" and m["params"]["requestId"] == question["id"]
        for m in bridge.heard
    )


def test_a_death_under_three_sessions_is_told_where_it_matters_and_all_go_on(
    place: DshPlace,
) -> None:
    with place.editor(checked=False) as bridge:
        three = Three(place, bridge)
        os.killpg(three.pid, signal.SIGKILL)
        for prompt in (three.spoken, three.asked):
            error = bridge.answer_to(prompt)["error"]
            assert "was ended by signal 9" in error["data"]["details"]
            assert "The session goes on with the next prompt." in error["data"]["details"]
        eventually(lambda: withdrawn(bridge, three.question))
        three.go_on()
        assert bridge.text(three.speaking) == "HalfHi from the loopback."
        shown = {one: bridge.text(one) for one in (three.idle, three.speaking, three.asking)}
    three.check_logs()
    with place.editor() as bridge:
        for session, said in shown.items():
            bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
            # The piece of an answer that died with its process was never in the log.
            assert bridge.text(session) == said.removeprefix("Half")


def test_a_cancel_ends_a_process_that_hangs_and_all_its_sessions_go_on(place: DshPlace) -> None:
    with place.editor(checked=False) as bridge:
        three = Three(place, bridge)
        late = bridge.prompt(three.idle, "into the void")
        eventually(lambda: "into the void" in place.loopback.asked(three.idle), wait_s=60)
        os.killpg(three.pid, signal.SIGSTOP)
        bridge.cancel(three.speaking)
        end = bridge.answer_to(three.spoken, wait_s=CANCEL_WAIT_S + ANSWER_WAIT_S + KILL_WAIT_S)
        assert end["result"]["stopReason"] == "cancelled"
        for prompt in (three.asked, late):
            answer = bridge.answer_to(prompt)
            if "error" in answer:
                details = answer["error"]["data"]["details"]
                assert "did not answer any more and was ended" in details
                assert "The session goes on with the next prompt." in details
        assert "error" in bridge.answer_to(three.asked)
        eventually(lambda: withdrawn(bridge, three.question))
        eventually(lambda: three.pid not in place.processes())
        for session in (three.asking, three.speaking, three.idle):
            place.loopback.script[session].clear()
            assert end_of(bridge, session, "go on") == "end_turn"


def test_a_process_that_hangs_does_not_keep_a_session_from_being_closed_and_opened(
    place: DshPlace,
) -> None:
    with place.editor(checked=False) as bridge:
        session = bridge.new(place.work)
        assert end_of(bridge, session, "before") == "end_turn"
        os.killpg(place.dsh_of(), signal.SIGSTOP)
        bridge.result("session/close", sessionId=session)
        params = {"sessionId": session, "cwd": str(place.work), "mcpServers": []}
        bridge.result("session/resume", **params)
        place.loopback.answer(session, text("It goes on."))
        assert end_of(bridge, session, "after") == "end_turn"
        assert "before" in place.loopback.asked(session)


def test_a_command_outlives_the_process_and_a_compaction_that_dies_with_it_is_told(
    place: DshPlace,
) -> None:
    with place.editor(checked=False) as bridge:
        session = bridge.new(place.work)
        for words in ("first", "second"):
            place.loopback.answer(session, text("All of this is about the parser. " * 400))
            assert end_of(bridge, session, words) == "end_turn"
        first = place.dsh_of()
        os.killpg(first, signal.SIGKILL)
        eventually(lambda: first not in place.processes())
        end = end_of(bridge, session, "/title After the death")
        if end != "end_turn":  # it came before the bridge had seen the death
            assert "The session goes on with the next prompt." in end["data"]["details"]
            assert end_of(bridge, session, "/title After the death") == "end_turn"
        assert "The title is now: After the death" in bridge.text(session)

        place.loopback.answer(session, pieces("A", GATE, " summary."))
        prompt = bridge.prompt(session, "/compact")
        place.loopback.wait_at_gate(session)
        os.killpg(place.dsh_of(), signal.SIGKILL)
        error = bridge.answer_to(prompt, wait_s=60)["error"]
        assert "was ended by signal 9" in error["data"]["details"]
        place.loopback.script[session].clear()
        assert end_of(bridge, session, "third") == "end_turn"
        asked = place.loopback.asked(session)
        assert all(words in asked for words in ("first", "second", "about the parser"))
    assert [row.data for row in place.stored(session) if row.type == "session/title"][-1] == {
        "title": "After the death",
        "messageSeqs": [],
        "source": {"kind": "user"},
    }
