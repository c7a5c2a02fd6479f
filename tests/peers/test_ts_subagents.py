"""The TypeScript SDK's unstable client, which types subagents, drives the `acp-bridge` process."""

from collections import defaultdict
from typing import Any

import pytest
from test_typescript_sdk import Desk, Seen, bash, call, desk, of_session, prompt

pytestmark = [pytest.mark.peer, pytest.mark.process]

__all__ = ["desk"]

NATIVE: dict[str, Any] = {"unstable": True, "capabilities": {"subagents": {}}}


def delegate(call_id: str, label: str, **more: Any) -> dict[str, Any]:
    return call(call_id, "subagent", description=label, prompt=f"{label}, do it.", **more)


def by_title(seen: Seen) -> dict[str, str]:
    return {u["title"]: u["sessionId"] for u in seen.of_kind("subagent_update") if "title" in u}


def texts(seen: Seen) -> dict[str, str]:
    found: dict[str, str] = defaultdict(str)
    for params in seen.sent:
        if params["update"]["sessionUpdate"] == "agent_message_chunk":
            found[params["sessionId"]] += params["update"]["content"]["text"]
    return found


def states(seen: Seen, child: str) -> list[dict[str, Any]]:
    found = [u for u in seen.of_kind("subagent_update") if u["sessionId"] == child]
    return [u["state"] for u in found if "state" in u]


def test_three_levels_ask_work_and_are_loaded_natively(desk: Desk) -> None:
    desk.answers([{"text": "P1 "}, delegate("c", "first")], [{"text": "P2 "}], [{"text": "P3"}])
    desk.answers([delegate("c", "second")], [{"text": "Wait."}], [{"text": "One."}], agent="1/1")
    desk.answers([delegate("c", "third", wait=True)], [{"text": "Two."}], agent="1/1/1")
    desk.answers([bash("c", "echo made")], [{"text": "Three."}], agent="1/1/1/1")
    live = desk.play([desk.new(), prompt()], **NATIVE)
    kids = by_title(live)
    root = live.answers["new"]["sessionId"]
    assert list(kids) == ["first", "second", "third"]
    assert live.answers["prompt"]["stopReason"] == "end_turn"
    assert [asked["sessionId"] for asked in live.permissions] == [kids["third"]]
    assert texts(live)[kids["third"]] == "Three."
    assert texts(live)[root].startswith("P1 P2 ")
    assert "requires_action" in str(states(live, kids["third"]))
    for kid in kids.values():
        assert states(live, kid)[-1] == {"state": "idle", "stopReason": "end_turn"}
    parents = {
        params["update"]["sessionId"]: params["sessionId"]
        for params in live.sent
        if params["update"]["sessionUpdate"] == "subagent_update"
    }
    assert parents == {
        kids["first"]: root,
        kids["second"]: kids["first"],
        kids["third"]: kids["second"],
    }
    load = {"call": "session/load", "params": desk.place(sessionId=root)}
    again = desk.play([load], **NATIVE)
    assert (by_title(again), texts(again)) == (kids, texts(live))


def test_two_children_ask_and_one_is_cancelled_by_its_id(desk: Desk) -> None:
    desk.answers([delegate("a", "asks"), delegate("b", "too"), delegate("c", "slow")])
    desk.answers([{"text": "Well."}], [{"text": "."}], [{"text": "."}], [{"text": "."}])
    desk.answers([bash("call_0", "echo 1")], [{"text": "ok"}], agent="1/1")
    desk.answers([bash("call_0", "echo 2")], [{"text": "ok"}], agent="1/2")
    desk.answers([{"text": "Half"}, {"wait": "never"}], agent="1/3")
    half = {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "Half"}}}
    seen = desk.play(
        [
            desk.new(),
            prompt(do="start"),
            {"until": half},
            {"call": "session/prompt", "params": {"sessionId": "#slow", "prompt": []}, "as": "no"},
            {"notify": "session/cancel", "params": {"sessionId": "#slow"}},
            {"await": "prompt"},
        ],
        **NATIVE,
    )
    kids = by_title(seen)
    assert seen.answers["prompt"]["stopReason"] == "end_turn"
    assert seen.answers["no"]["error"]["code"] == -32602
    assert {asked["sessionId"] for asked in seen.permissions} == {kids["asks"], kids["too"]}
    assert states(seen, kids["slow"])[-1] == {"state": "idle", "stopReason": "cancelled"}


def test_children_fail_and_hit_their_limit(desk: Desk) -> None:
    desk.answers([delegate("a", "fails", wait=True)], [delegate("b", "long", wait=True)])
    desk.answers([{"text": "So."}])
    desk.answers([{"error": {"status": 400, "message": "no"}}], agent="1/1")
    desk.answers([{"text": "Cut"}, {"stop": "max_tokens"}], agent="1/2")
    seen = desk.play([desk.new(), prompt()], **NATIVE)
    kids = by_title(seen)
    failed = states(seen, kids["fails"])[-1]
    assert (failed["stopReason"], failed["error"]["code"]) == ("error", -32603)
    assert states(seen, kids["long"])[-1] == {"state": "idle", "stopReason": "max_tokens"}


def test_a_cancel_of_the_root_ends_its_children_first(desk: Desk) -> None:
    desk.answers([delegate("a", "slow", wait=True)])
    desk.answers([{"text": "Half"}, {"wait": "never"}], agent="1/1")
    seen = desk.play(
        [
            desk.new(),
            prompt(do="start"),
            {"until": {"update": {"sessionUpdate": "agent_message_chunk"}}},
            of_session("notify", "session/cancel"),
            {"await": "prompt"},
        ],
        **NATIVE,
    )
    assert seen.answers["prompt"]["stopReason"] == "cancelled"
    kid = by_title(seen)["slow"]
    assert states(seen, kid)[-1] == {"state": "idle", "stopReason": "cancelled"}


def test_the_stable_client_that_negotiates_nothing_reads_every_message(desk: Desk) -> None:
    """Its SDK complains of kinds that it does not know, and a complaint fails the run."""
    desk.answers([{"text": "P1 "}, delegate("c", "first")], [{"text": "P2 "}], [{"text": "P3"}])
    desk.answers([bash("c", "echo made")], [{"text": "One."}], agent="1/1")
    seen = desk.play([desk.new(), prompt()])
    root = seen.answers["new"]["sessionId"]
    assert {params["sessionId"] for params in [*seen.sent, *seen.permissions]} == {root}
    assert seen.text().startswith("P1 P2 ")
    assert seen.permissions[0]["toolCall"]["title"] == "first $ echo made"
