"""Every rule that `HarnessClient` owes its users, against a scripted runtime in memory."""

from collections.abc import Sequence

import anyio
import pytest
from fake_dsh import FakeRuntime, connected

from acp_bridge.errors import MethodNotFoundError, PeerError, PeerGoneError, RuntimeFailedError
from acp_bridge.runtime.dsh.client import HarnessClient, TurnResult
from acp_bridge.vocabulary import JsonObject, JsonValue
from acp_bridge.wire.memory import stream_pair
from acp_bridge.wire.messages import Notification

pytestmark = pytest.mark.anyio

HELLO: list[JsonObject] = [{"type": "text", "text": "hello"}]


def told(notifications: Sequence[Notification]) -> list[str]:
    """What was told, in short: method or row, and the session."""
    short = []
    for notification in notifications:
        params = notification.params
        assert isinstance(params, dict)
        row = params.get("event")
        what = row["type"] if isinstance(row, dict) else notification.method
        short.append(f"{what} {params.get('sessionId') or params.get('childSessionId')}")
    return short


def answers_with(runtime: FakeRuntime, answer: str) -> None:
    """Each prompt gets a turn with this answer, told before the acknowledgement."""

    async def prompt(params: JsonObject) -> JsonObject:
        message = runtime.next_message()
        await runtime.turn(str(params["sessionId"]), answer, message)
        return {"messageId": message}

    runtime.on["session/prompt"] = prompt


async def settled(client: HarnessClient) -> None:
    """Whatever the runtime has said so far was routed."""
    await client.request("ping", {})


async def test_a_run_gives_the_answer_the_reason_and_the_rows_of_its_turn() -> None:
    async with connected() as (client, runtime):
        answers_with(runtime, "Hi.")
        heard: list[Notification] = []
        result = await client.session("s").run(HELLO, on_notification=heard.append)
    assert (result.session_id, result.final_response, result.finish_reason) == (
        "s",
        "Hi.",
        "completed",
    )
    assert [event.type for event in result.events] == [
        "turn/start",
        "user/message",
        "assistant/message",
        "turn/end",
    ]
    assert heard == list(result.notifications)
    assert [method for method, _ in runtime.asked] == ["session/prompt", "session/wait"]


async def delegating_run(client: HarnessClient, runtime: FakeRuntime) -> TurnResult:
    """A root that answers, with a child and a grandchild that answer later and last."""

    async def prompt(_params: JsonObject) -> JsonObject:
        await runtime.started("child", "root")
        await runtime.started("grand", "child")
        await runtime.turn("grand", "from the grandchild", "g1")
        await runtime.turn("root", "from the root", "m1")
        await runtime.finished("grand", "child")
        await runtime.turn("child", "from the child", "c1")
        await runtime.finished("child", "root")
        return {"messageId": "m1"}

    runtime.on["session/prompt"] = prompt
    return await client.session("root").run(HELLO)


async def test_a_run_hears_children_and_grandchildren_in_wire_order() -> None:
    async with connected() as (client, runtime):
        result = await delegating_run(client, runtime)
        assert client.drain() == []
    turn = ["turn/start", "user/message", "assistant/message", "turn/end"]
    assert told(result.notifications) == [
        "subagent.started child",
        "subagent.started grand",
        *(f"{row} grand" for row in turn),
        *(f"{row} root" for row in turn),
        "subagent.finished grand",
        *(f"{row} child" for row in turn),
        "subagent.finished child",
    ]


async def test_the_answer_and_the_rows_are_those_of_the_root_alone() -> None:
    async with connected() as (client, runtime):
        result = await delegating_run(client, runtime)
    assert result.final_response == "from the root"
    assert len(result.events) == 4


async def test_a_descendant_that_outlives_a_run_belongs_to_the_next_one_too() -> None:
    async with connected() as (client, runtime):
        await delegating_run(client, runtime)
        answers_with(runtime, "again")
        with client.subscribe("root", (heard := list[Notification]()).append):
            await runtime.status("grand", "idle")
            await settled(client)
        assert told(heard) == ["session.status grand"]
        assert client.drain() == []


async def test_what_a_tree_says_between_runs_waits_for_its_next_subscription() -> None:
    async with connected() as (client, runtime):
        await delegating_run(client, runtime)
        await runtime.status("grand", "running")
        await runtime.status("stranger", "running")
        await runtime.turn("root", "by itself", "notice", turn=2)
        await settled(client)
        assert told(client.drain()) == ["session.status stranger"]

        async def prompt(_params: JsonObject) -> JsonObject:
            await runtime.row("root", 0, "turn/start", {"turn": 3})
            await runtime.row("root", 1, "user/message", {"id": "m9"})
            await runtime.row("root", 2, "turn/end", {"turn": 3, "reason": {"kind": "aborted"}})
            return {"messageId": "m9"}

        runtime.on["session/prompt"] = prompt
        result = await client.session("root").run(HELLO)
        assert told(result.notifications)[0] == "session.status grand"
        assert "assistant/message root" in told(result.notifications)
        assert (result.final_response, result.finish_reason) == ("", "aborted")
        # It was taken once.
        with client.subscribe("root", (heard := list[Notification]()).append):
            assert heard == []


async def test_a_closed_session_is_kept_nothing_for() -> None:
    async with connected() as (client, runtime):
        await delegating_run(client, runtime)
        await runtime.status("root", "running")
        await settled(client)
        client.forget("root")
        await runtime.status("root", "idle")
        await settled(client)
        with client.subscribe("root", (heard := list[Notification]()).append):
            assert heard == []
        assert told(client.drain()) == ["session.status root"]


async def test_the_end_of_an_older_run_is_its_own_parents_and_moves_nobody() -> None:
    async with connected() as (client, runtime):
        one, other = list[Notification](), list[Notification]()
        with client.subscribe("one", one.append), client.subscribe("other", other.append):
            await runtime.started("child", "one")
            await runtime.started("child", "other")
            await runtime.finished("child", "one")
            await runtime.status("child", "running")
            await settled(client)
    assert told(one) == ["subagent.started child", "subagent.finished child"]
    assert told(other) == ["subagent.started child", "session.status child"]


async def test_a_fork_that_names_its_source_is_no_child() -> None:
    async with connected(forks=frozenset({"fork"})) as (client, runtime):
        with client.subscribe("root", (heard := list[Notification]()).append):
            await runtime.started("fork", "root")
            await runtime.turn("fork", "not yours", "f1")
            await settled(client)
        assert heard == []
        # The announcement goes nowhere: nobody is to take it for a child's.
        assert "subagent.started fork" not in told(client.drain())


@pytest.mark.parametrize(
    ("child", "parent"), [("root", "root"), ("", "root"), ("child", ""), (7, "root"), (None, None)]
)
async def test_an_announcement_that_can_be_no_delegation_is_dropped(
    child: str, parent: str
) -> None:
    async with connected() as (client, runtime):
        with client.subscribe("root", (heard := list[Notification]()).append):
            await runtime.started(child, parent)
            await runtime.status("root", "idle")
            await settled(client)
        assert told(heard) == ["session.status root"]


async def test_a_cycle_of_delegations_ends_the_walk() -> None:
    async with connected() as (client, runtime):
        with client.subscribe("root", (heard := list[Notification]()).append):
            await runtime.started("a", "b")
            await runtime.started("b", "a")
            await runtime.status("a", "idle")
            await runtime.status("root", "idle")
            await settled(client)
        assert told(heard) == ["session.status root"]


async def test_the_queue_of_unrelated_notifications_is_bounded_and_counts_its_losses() -> None:
    async with connected(queued_max=3) as (client, runtime):
        for number in range(5):
            await runtime.status(f"s{number}", "idle")
        await settled(client)
        assert client.dropped == 2
        assert told(client.drain()) == [f"session.status s{number}" for number in (2, 3, 4)]
        assert client.drain() == []
        await runtime.status("s5", "idle")
        await settled(client)
        assert client.dropped == 2


async def test_a_new_process_knows_nothing_of_the_old_ones_tree() -> None:
    async with connected() as (client, runtime):
        await delegating_run(client, runtime)
    async with connected() as (client, runtime):
        with client.subscribe("root", (heard := list[Notification]()).append):
            await runtime.status("child", "idle")
            await settled(client)
        assert heard == []
        assert told(client.drain()) == ["session.status child"]


async def test_a_run_keeps_no_more_than_its_bound_and_says_how_much_it_left_out() -> None:
    async with connected() as (client, runtime):
        answers_with(runtime, "Hi.")
        heard: list[Notification] = []
        session = client.session("s")
        result = await session.run(HELLO, on_notification=heard.append, collected_max=3)
    assert (len(result.notifications), len(result.events), result.uncollected) == (3, 3, 1)
    assert len(heard) == 4
    assert result.finish_reason == "completed"


async def test_runs_of_one_session_follow_each_other_and_others_do_not_wait() -> None:
    async with connected() as (client, runtime):
        answers_with(runtime, "Hi.")
        gate = anyio.Event()

        async def wait(params: JsonObject) -> JsonObject:
            if params["sessionId"] == "slow":
                await gate.wait()
            return {}

        runtime.on["session/wait"] = wait
        async with anyio.create_task_group() as group:
            group.start_soon(client.session("slow").run, HELLO)
            group.start_soon(client.session("slow").run, HELLO)
            await client.session("quick").run(HELLO)
            prompts = [p["sessionId"] for method, p in runtime.asked if method == "session/prompt"]
            assert sorted(map(str, prompts)) == ["quick", "slow"]
            gate.set()


async def test_answers_in_another_order_find_their_requests() -> None:
    async with connected() as (client, runtime):
        first_may_go = anyio.Event()

        async def first(_params: JsonObject) -> JsonObject:
            await first_may_go.wait()
            return {"n": 1}

        async def second(_params: JsonObject) -> JsonObject:
            return {"n": 2}

        runtime.on.update({"first": first, "second": second})
        got: list[JsonValue] = []

        async def ask() -> None:
            got.append(await client.request("first", {}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            got.append(await client.request("second", {}))
            first_may_go.set()
        assert got == [{"n": 2}, {"n": 1}]


async def test_a_refusal_is_told_in_the_runtimes_words() -> None:
    async with connected() as (client, runtime):

        async def refuse(_params: JsonObject) -> JsonObject:
            return {"code": -32603, "message": 'session "x" not found'}

        runtime.on["session/resume"] = refuse
        with pytest.raises(PeerError) as caught:
            await client.session("x").resume()
        expected = 'DeepSeek Harness refused session/resume: session "x" not found'
        assert caught.value.details == expected


async def test_a_prompt_that_gets_no_turn_is_a_failure() -> None:
    async with connected() as (client, _runtime):
        with pytest.raises(RuntimeFailedError, match="gave it no turn"):
            await client.session("s").run(HELLO)


async def test_blocks_that_would_spoil_the_session_never_leave() -> None:
    async with connected() as (client, runtime):
        with pytest.raises(AssertionError):
            await client.session("s").prompt([{"type": "resource_link", "uri": "file:///a"}])
        assert runtime.asked == []


async def test_the_end_of_the_runtime_fails_what_is_under_way() -> None:
    async with connected() as (client, runtime):

        async def leave(_params: JsonObject) -> None:
            runtime.stop()

        runtime.on["session/wait"] = leave
        answers_with(runtime, "Hi.")
        with pytest.raises(PeerGoneError, match="DeepSeek Harness closed its end"):
            await client.session("s").run(HELLO)
        assert client.gone is not None


async def test_noise_is_set_aside_and_answered_with_nothing() -> None:
    ours, theirs = stream_pair()
    noise: list[bytes] = []
    client = HarnessClient(ours, is_subagent=lambda _id: True, stray=noise.append)
    runtime = FakeRuntime(theirs)
    async with anyio.create_task_group() as group:
        group.start_soon(client.run)
        group.start_soon(runtime.serve)
        with anyio.fail_after(60):
            await runtime.say(b"dsh: warning: noise\n[1]\n")
            await runtime.status("s", "idle")
            await settled(client)
        client.stop("The test is over.")
    assert noise == [b"dsh: warning: noise", b"[1]"]
    assert told(client.drain()) == ["session.status s"]
    assert [method for method, _ in runtime.asked] == ["ping"]


async def test_whoever_fails_while_hearing_disturbs_nobody_else() -> None:
    async with connected() as (client, runtime):
        heard: list[Notification] = []

        def fail(_notification: Notification) -> None:
            raise ValueError

        with client.subscribe("s", fail), client.subscribe("s", heard.append):
            await runtime.status("s", "idle")
            await settled(client)
        assert told(heard) == ["session.status s"]


async def test_a_row_that_is_none_is_heard_and_makes_no_event() -> None:
    async with connected() as (client, runtime):

        async def prompt(_params: JsonObject) -> JsonObject:
            await runtime.notify("session.event", sessionId="s", event={"type": "turn/start"})
            await runtime.turn("s", "Hi.", "m1")
            return {"messageId": "m1"}

        runtime.on["session/prompt"] = prompt
        result = await client.session("s").run(HELLO)
    assert (len(result.notifications), len(result.events)) == (5, 4)


async def test_a_request_of_the_runtime_is_refused_where_nothing_serves_it() -> None:
    async with connected() as (client, runtime):
        await runtime.send({"id": "req_1", "method": "bridge/ask", "params": {}})
        await settled(client)
        refusals = [message for method, message in runtime.asked if method == ""]
    error = refusals[0]["error"]
    assert isinstance(error, dict)
    assert error["code"] == MethodNotFoundError.code


async def test_a_request_of_the_runtime_is_answered_by_its_handler() -> None:
    async with connected() as (client, runtime):

        async def double(params: JsonObject) -> JsonObject:
            return {"doubled": [params["n"], params["n"]]}

        client.serve("bridge/double", double)
        await runtime.send({"id": "req_1", "method": "bridge/double", "params": {"n": 4}})
        await settled(client)
        answers = [message for method, message in runtime.asked if method == ""]
    assert answers == [{"jsonrpc": "2.0", "id": "req_1", "result": {"doubled": [4, 4]}}]


async def test_a_notification_with_a_listener_is_told_to_it_alone() -> None:
    async with connected() as (client, runtime):
        told_alone: list[JsonObject] = []
        client.listen("bridge.stream", told_alone.append)
        with client.subscribe("s", (heard := list[Notification]()).append):
            await runtime.notify("bridge.stream", sessionId="s", text="x")
            await settled(client)
        assert told_alone == [{"sessionId": "s", "text": "x"}]
        assert heard == client.drain() == []


async def test_an_acknowledgement_without_a_message_is_a_failure() -> None:
    async with connected() as (client, runtime):

        async def prompt(_params: JsonObject) -> JsonObject:
            return {}

        runtime.on["session/prompt"] = prompt
        with pytest.raises(PeerError, match="named no message"):
            await client.session("s").prompt(HELLO)
