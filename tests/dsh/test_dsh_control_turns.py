"""The control plugin on the real runtime: streams, cancel of trees, steering, faults."""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from control_rig import Rig, dsh_rig
from dsh_rig import GATE, OVERLOADED, PATCH, Message, pieces, text, tool
from picture_bytes import png

from acp_bridge.errors import PeerError
from acp_bridge.runtime.dsh.control_types import (
    Feature,
    Opening,
    StreamEnded,
    StreamNote,
    StreamStarted,
)
from acp_bridge.vocabulary import JsonObject, JsonValue, SessionId, StreamDelta

pytestmark = [pytest.mark.dsh, pytest.mark.process, pytest.mark.anyio]

FEATURES: tuple[Feature, ...] = (
    *("stream", "approve", "judge", "ask_user", "cancel", "close", "steer", "open"),
    *("mcp", "record", "models", "mode", "title", "compact", "history", "fork"),
)


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with dsh_rig(tmp_path_factory.mktemp("turns")) as rig:
        rig.control.listen_to_streams(lambda session, note: NOTES.append((session, note)))
        yield rig
    rig.check_quiet()


NOTES: list[tuple[SessionId, StreamNote]] = []


def notes(session_id: str) -> list[StreamNote]:
    return [note for session, note in NOTES if session == session_id]


def said(session_id: str) -> str:
    return "".join(one.text for one in notes(session_id) if isinstance(one, StreamDelta))


def told(rig: Rig, session_id: str) -> list[str]:
    """What was told of a session's model calls and their rows, in wire order, runs as one."""
    names = []
    for one in rig.wire.heard:
        params: Message = one["params"]
        if params.get("sessionId") != session_id:
            continue
        if one["method"] == "bridge.stream":
            names.append(params["event"])
        elif one["method"] == "session.event" and params["event"]["type"].startswith("assistant/"):
            names.append(params["event"]["type"])
    return [name for name, _ in itertools.groupby(names)]


async def test_hello_says_what_this_version_can_do(rig: Rig) -> None:
    assert rig.hello is not None
    assert rig.hello.runtime == "0.2.1-rc.2"
    assert rig.hello.session_format == 4
    assert [name for name in FEATURES if not rig.hello.has(name)] == []
    assert rig.hello.missing == {}


async def test_a_piece_is_told_as_it_comes_and_its_row_before_the_end(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, pieces("one ", GATE, "two"))
    await rig.send(session, "count")
    await rig.wire.until(lambda: said(session) == "one ")
    assert rig.wire.rows(session, "assistant/message") == []
    rig.model.go(session)
    await rig.wait(session)
    assert said(session) == "one two"
    assert told(rig, session) == ["start", "delta", "assistant/message", "end"]
    [row] = rig.wire.rows(session, "assistant/message")
    assert notes(session)[0] == StreamStarted(1, 1, 1)
    assert notes(session)[-1] == StreamEnded(1, 1, 1, "message", row["seq"])


async def test_five_thousand_deltas_all_arrive_in_far_fewer_notifications(rig: Rig) -> None:
    session = await rig.open()
    words = [f"{number} " for number in range(5000)]
    rig.model.answer(session, pieces(*words))
    assert await rig.prompt(session) == "completed"
    assert said(session) == "".join(words)
    assert len(notes(session)) < 1000


async def test_a_reader_that_stalls_finds_the_text_merged_and_whole(rig: Rig) -> None:
    session = await rig.open()
    filler = "x" * 1_000_000
    words = [f"{number} " for number in range(5000)]
    rig.model.answer(session, text(filler), pieces(*words), tool("n", "no_such_tool"))
    rig.model.answer(session, pieces(GATE, "read again"))
    await rig.send(session, "much")
    rig.wire.unread = anyio.Event()
    # With the second request the whole first answer is behind the runtime.
    await anyio.to_thread.run_sync(rig.model.wait_for_request, session, 2)
    rig.wire.unread.set()
    rig.model.go(session)
    await rig.wait(session)
    assert said(session) == filler + "".join(words) + "read again"
    deltas = [one for one in notes(session) if isinstance(one, StreamDelta) and one.block == 1]
    assert len(deltas) < 10


async def test_reasoning_and_two_blocks_are_kept_apart(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, text("first"), text("second"), tool("t", "todo_write", todos=[]))
    rig.model.answer(session, text("third"))
    assert await rig.prompt(session) == "completed"
    deltas = [one for one in notes(session) if isinstance(one, StreamDelta)]
    assert [(one.step, one.block, one.text) for one in deltas] == [
        *((1, 0, "first"), (1, 1, "second"), (2, 0, "third")),
    ]


async def test_a_failed_attempt_ends_as_one_and_the_next_counts_on(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, text("half an ans"), OVERLOADED)
    rig.model.answer(session, text("whole"))
    assert await rig.prompt(session) == "completed"
    ends = [one for one in notes(session) if isinstance(one, StreamEnded)]
    assert [(one.attempt, one.outcome) for one in ends] == [(1, "attempt"), (2, "message")]
    deltas = [one for one in notes(session) if isinstance(one, StreamDelta)]
    assert [(one.attempt, one.text) for one in deltas] == [(1, "half an ans"), (2, "whole")]


async def test_a_cancel_ends_one_session_and_leaves_the_other(rig: Rig) -> None:
    one, other = await rig.open(), await rig.open()
    for session in (one, other):
        rig.model.answer(session, pieces("half ", GATE, "whole"))
        await rig.send(session, "talk")
    await rig.send(one, "and this waits")
    await rig.wire.until(lambda: said(one) == said(other) == "half ")
    assert await rig.control.cancel(one)
    assert rig.wire.ends(one) == ["aborted"]
    assert told(rig, one)[-2:] == ["assistant/message", "end"]
    assert not (await rig.control.state(one)).is_running
    rig.model.go(other)
    await rig.wait(other)
    assert rig.wire.ends(other) == ["completed"]
    assert said(other) == "half whole"
    # The dropped prompt does not come back, and the session goes on.
    assert await rig.prompt(one, "again") == "completed"
    assert rig.wire.ends(one) == ["aborted", "completed"]


async def test_a_cancel_of_what_is_idle_or_unknown_is_none(rig: Rig) -> None:
    session = await rig.open()
    assert not await rig.control.cancel(session)
    assert not await rig.control.cancel(SessionId("nobody"))
    assert rig.wire.ends(session) == []


async def delegated(rig: Rig, *, root_says: Message) -> tuple[SessionId, str]:
    """A root with a subagent that is in the middle of its answer."""
    session = await rig.open()
    words = f"work for {session}"
    rig.model.answer(session, tool("d", "subagent", description="d", prompt=words))
    rig.model.answer(session, root_says)
    rig.model.promise(words, pieces("child says ", GATE, "the end"))
    await rig.send(session, "delegate")
    await rig.wire.until(lambda: bool(rig.wire.children(session)))
    [child] = rig.wire.children(session)
    await rig.wire.until(lambda: said(child) == "child says ")
    return session, child


@pytest.mark.parametrize("root", ["busy", "idle"])
async def test_a_tree_is_cancelled_without_a_stray_turn(rig: Rig, root: str) -> None:
    says = pieces("root says ", GATE, "more") if root == "busy" else text("root is done")
    session, child = await delegated(rig, root_says=says)
    await rig.wire.until(lambda: "root " in said(session))
    if root == "idle":
        await rig.wire.until(lambda: rig.wire.ends(session) == ["completed"])
    assert await rig.control.cancel(session)
    await rig.wait(session)
    assert rig.wire.ends(child) == ["aborted"]
    assert rig.wire.ends(session) == (["aborted"] if root == "busy" else ["completed"])
    assert await rig.prompt(session, "go on") == "completed"
    assert len(rig.wire.ends(session)) == 2


async def test_a_child_alone_is_cancelled_and_its_parent_is_told(rig: Rig) -> None:
    session, child = await delegated(rig, root_says=text("root is done"))
    await rig.wire.until(lambda: rig.wire.ends(session) == ["completed"])
    rig.model.answer(session, text("heard of it"))
    assert await rig.control.cancel(SessionId(child))
    await rig.wait(session)
    assert rig.wire.ends(child) == ["aborted"]
    assert rig.wire.ends(session) == ["completed", "completed"]
    assert said(session).endswith("heard of it")


async def test_after_two_cancels_at_once_subagents_start_and_tell_their_end_again(rig: Rig) -> None:
    session, _ = await delegated(rig, root_says=pieces("root says ", GATE))
    async with anyio.create_task_group() as group:
        group.start_soon(rig.control.cancel, session)
        group.start_soon(rig.control.cancel, session)
    rig.model.answer(session, tool("d2", "subagent", description="d", prompt="again"))
    rig.model.answer(session, text("started"))
    rig.model.answer(session, text("heard of its end"))
    await rig.prompt(session, "once more")
    assert "started subagent" in rig.wire.results(session)["d2"]
    assert said(session).endswith("heard of its end")


async def test_steering_goes_into_the_running_turn(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, pieces("look", GATE, "ing"), tool("t", "todo_write", todos=[]))
    rig.model.answer(session, text("as you say"))
    await rig.send(session, "look")
    await rig.wire.until(lambda: said(session) == "look")
    message_id = await rig.control.steer(session, [text("the other way")])
    rig.model.go(session)
    await rig.wait(session)
    assert rig.wire.ends(session) == ["completed"]
    assert "the other way" in rig.model.asked(session)
    assert message_id in [row["data"]["id"] for row in rig.wire.rows(session, "user/message")]


async def test_what_is_steered_into_a_last_answer_is_heard_in_the_same_turn(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, pieces("all", GATE, " said"))
    rig.model.answer(session, text(", and this"))
    await rig.send(session, "speak")
    await rig.wire.until(lambda: said(session) == "all")
    assert await rig.control.steer(session, [text("one thing more")])
    rig.model.go(session)
    await rig.wait(session)
    assert rig.wire.ends(session) == ["completed"]
    assert said(session) == "all said, and this"
    assert "one thing more" in rig.model.asked(session)


async def test_nothing_is_steered_into_what_does_not_run_or_is_cancelled(rig: Rig) -> None:
    session = await rig.open()
    assert await rig.control.steer(session, [text("too early")]) is None
    rig.model.answer(session, tool("c1", "bash", description="d", command="trap '' TERM; sleep 30"))
    await rig.control.set_mode(session, "full")
    await rig.send(session, "run it")
    await rig.wire.until(lambda: bool(rig.wire.rows(session, "job/registered")))
    async with anyio.create_task_group() as group:
        group.start_soon(rig.control.cancel, session)
        await anyio.lowlevel.checkpoint()
        assert await rig.control.steer(session, [text("too late")]) is None
    assert rig.wire.ends(session) == ["aborted"]
    assert await rig.prompt(session) == "completed"
    asked = rig.model.asked(session)
    assert "too early" not in asked
    assert "too late" not in asked


async def test_a_picture_may_be_steered_in(rig: Rig) -> None:
    session = await rig.open()
    rig.model.answer(session, pieces("look", GATE, "ing"), tool("t", "todo_write", todos=[]))
    await rig.send(session, "look")
    await rig.wire.until(lambda: said(session) == "look")
    picture: JsonObject = {"type": "image", "mimeType": "image/png", "data": png(4, 2)}
    await rig.control.steer(session, [text("at this"), picture])
    rig.model.go(session)
    await rig.wait(session)
    assert rig.wire.ends(session) == ["completed"]
    assert '"type": "image"' in rig.model.asked(session)


BAD_CALLS: list[tuple[str, JsonObject, str]] = [
    ("bridge/open", {"sessionId": "", "cwd": "/"}, "sessionId must be a string"),
    ("bridge/open", {"sessionId": "bad1"}, "cwd must be a string"),
    ("bridge/resume", {"sessionId": "never was"}, "not found"),
    ("bridge/fork", {"sourceSessionId": "never was", "sessionId": "f", "cwd": "/"}, "never was"),
    ("bridge/steer", {"sessionId": "never was", "contentBlocks": []}, "is not open"),
    ("bridge/set_mode", {"sessionId": "never was"}, "is not open"),
    ("bridge/state", {}, "sessionId must be a string"),
    ("bridge/history", {"sessionId": "never was"}, "never was"),
    ("bridge/no_such_thing", {}, "unknown DeepSeek Harness SDK runtime method"),
    ("toString", {}, "unknown DeepSeek Harness SDK runtime method"),
    ("bridge/hello", {"protocol": 99}, "speaks protocol 1, not 99"),
]


@pytest.mark.parametrize(("method", "params", "says"), BAD_CALLS)
async def test_a_bad_call_is_refused_and_the_runtime_lives(
    rig: Rig, method: str, params: JsonObject, says: str
) -> None:
    with pytest.raises(PeerError) as caught:
        await rig.wire.request(method, params)
    assert says in str(caught.value)
    assert await rig.control.models() != []


METHODS = (
    *("open", "resume", "fork", "cancel", "close", "steer", "set_mode", "set_model", "state"),
    *("record", "log_command", "compact"),
)
FIELDS = ("cwd", "model", "sourceSessionId", "throughSeq", "title", "type", "data")
ODD: list[JsonValue] = [None, 7, -1, 1.5, "", "x", "../x", [], [None], {}, {"provider": 1}]


async def test_params_of_any_shape_are_answered_and_the_runtime_lives(rig: Rig) -> None:
    session = await rig.open()
    await rig.prompt(session)
    refused = 0
    for method, value in itertools.product((*METHODS, "rename", "history"), ODD):
        ids: list[JsonValue] = [value, f"odd {refused}"]
        if method not in ("cancel", "close"):
            ids.append(session)
        for one in ids:
            params: JsonObject = dict.fromkeys((*FIELDS, "contentBlocks", "from"), value)
            try:
                await rig.wire.request(f"bridge/{method}", {**params, "sessionId": one})
            except PeerError:
                refused += 1
    assert refused > 200
    assert await rig.prompt(session) == "completed"


@pytest.mark.parametrize("cwd", ["relative", "~"])
async def test_a_session_lives_in_a_folder_with_an_absolute_path(rig: Rig, cwd: str) -> None:
    session = SessionId(f"in {cwd}")
    with pytest.raises(PeerError, match="cwd"):
        await rig.control.open_session(Opening(session, cwd))
    await rig.control.open_session(Opening(session, str(rig.cwd)))


async def test_a_block_that_would_spoil_the_session_is_refused(rig: Rig) -> None:
    session = await rig.open()
    for blocks in ([], [{"type": "resource_link", "uri": "file:///x"}], [{"type": "text"}], [None]):
        params: JsonObject = {"sessionId": session, "contentBlocks": json.loads(json.dumps(blocks))}
        with pytest.raises(PeerError):
            await rig.wire.request("bridge/steer", params)
    assert await rig.prompt(session) == "completed"


async def test_without_the_plugin_hello_is_answered_with_none(tmp_path: Path) -> None:
    patch = tmp_path / "patch.yml"
    patch.write_text(PATCH)
    async with dsh_rig(tmp_path, patch=patch) as rig:
        assert rig.hello is None
        with pytest.raises(PeerError, match="unknown DeepSeek Harness SDK runtime method"):
            await rig.control.open_session(Opening(SessionId("s"), str(rig.cwd)))
