"""The SDK wire's requests over scripted sessions: the table, its errors, and its order."""

from pathlib import Path

import anyio
import pytest
from sdk_rig import CHILD, brief, finished, row, started, wire

from acp_bridge.errors import AuthRequiredError, PlainError, SessionNotFoundError
from acp_bridge.ports import ClientCommand, PermissionAsk
from acp_bridge.runtime.sdk.server import METHODS, SdkServer
from acp_bridge.vocabulary import (
    Answer,
    CallId,
    ChildSaid,
    JsonObject,
    JsonValue,
    SessionId,
    TurnEnd,
)

pytestmark = pytest.mark.anyio

TEXT: list[JsonValue] = [{"type": "text", "text": "hello"}]


def test_every_method_of_the_table_is_served() -> None:
    assert all(callable(getattr(SdkServer, name)) for name in METHODS.values())


async def test_initialize_says_who_answers_and_may_come_again(tmp_path: Path) -> None:
    async with wire(tmp_path, initialize=False) as (client, _):
        said = await client.initialize(reasoningEffort="high", maxTokens=9)
        assert said == {"serverInfo": {"name": "acp-bridge", "version": "1"}}
        await client.call("session/working-directory/get", sessionId="a")
        other = tmp_path / "other"
        other.mkdir()
        await client.initialize(cwd=str(other))
        await client.call("session/working-directory/get", sessionId="b")
        first, second = client.host.sessions["a"], client.host.sessions["b"]
        assert (first.cwd, first.chosen) == (tmp_path, [("effort", "high")])
        assert (second.cwd, second.chosen) == (other, [])
        assert client.named == [("p", "m")] * 2


async def test_what_initialize_cannot_use_is_refused_by_name(tmp_path: Path) -> None:
    async with wire(tmp_path, initialize=False) as (client, _):
        good: JsonObject = {"cwd": str(tmp_path), "provider": "p", "model": "m"}
        bad: list[tuple[str, JsonValue]] = [
            ("cwd", "/nowhere at all"),
            ("cwd", "a\0b"),
            ("cwd", None),
            ("model", ""),
            ("reasoningEffort", 5),
            ("maxTokens", -1),
        ]
        for name, value in bad:
            spoilt: JsonObject = {**good, name: value}
            text = await client.refusal("initialize", **spoilt)
            assert name in text or repr(value) in text
        client.unusable = AuthRequiredError("DeepSeek needs a key.")
        assert await client.refusal("initialize", **good) == "DeepSeek needs a key."
        not_yet = await client.refusal("session/prompt", sessionId="s", contentBlocks=TEXT)
        assert "initialize" in not_yet


@pytest.mark.parametrize(
    "method",
    [
        "session/prompt",
        "session/resume",
        "session/wait",
        "session/working-directory/get",
        "session/working-directory/set",
    ],
)
async def test_sessions_wait_for_initialize_and_need_a_name(method: str, tmp_path: Path) -> None:
    whole: JsonObject = {"sessionId": "s", "contentBlocks": TEXT, "path": "sub"}
    async with wire(tmp_path, initialize=False) as (client, _):
        assert "send initialize first" in await client.refusal(method, **whole)
        await client.initialize()
        no_names: list[JsonValue] = [None, "", 5, ["s"]]
        for no_name in no_names:
            text = await client.refusal(method, **{**whole, "sessionId": no_name})
            assert text.startswith("sessionId must ")
        assert client.host.sessions == {}


@pytest.mark.parametrize("method", ["session/cancel", "session/new", "ping", ""])
async def test_an_unknown_method_hears_what_there_is(method: str, tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        text = await client.refusal(method)
        assert all(known in text for known in METHODS)


async def test_parameters_must_be_an_object_and_may_be_missing(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        with pytest.raises(PlainError, match="params must be an object"):
            client.send("session/wait", ["s"])
        with pytest.raises(PlainError, match="sessionId must be a string"):
            client.send("session/wait")


async def test_a_notification_means_nothing(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        client.ignore("shutdown", {})
        client.ignore("session/prompt", {"sessionId": "s", "contentBlocks": TEXT})
        await anyio.wait_all_tasks_blocked()
        assert (client.host.sessions, client.host.closed) == ({}, 0)


async def test_a_prompt_makes_a_session_and_is_answered_when_the_log_has_it(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("prompt", client.prompt("s"))
        session = client.host.sessions["s"]
        assert session.cwd == tmp_path
        assert calls.ended == {}, "nothing is in the log yet"
        session.begin()
        await anyio.wait_all_tasks_blocked()
        assert calls.ended == {"prompt": {"messageId": session.turns[0].message_id}}
        await session.finish()
        assert brief(client.told)[-2:] == ["s turn/end", "s idle"]


async def test_a_prompt_behind_another_is_answered_at_once(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("one", client.prompt("s"))
        await calls.start("two", client.prompt("s"))
        session = client.host.sessions["s"]
        assert calls.ended == {"two": {"messageId": session.turns[1].message_id}}


async def test_prompts_that_come_while_a_session_opens_keep_their_order(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        client.host.hold = anyio.Event()
        for number in range(4):
            await calls.start(str(number), client.prompt("s", f"prompt {number}"))
        client.host.hold.set()
        await anyio.wait_all_tasks_blocked()
        await calls.start("4", client.prompt("s", "prompt 4"))
        said = [turn.prompt.content[0]["text"] for turn in client.host.sessions["s"].turns]
        assert said == [f"prompt {number}" for number in range(5)]


async def test_a_session_that_does_not_open_fails_all_who_wait_for_it(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        client.host.hold = anyio.Event()
        await calls.start("one", client.prompt("s"))
        await calls.start("two", client.prompt("s"))
        waited = client.send("session/wait", {"sessionId": "s"})
        await calls.start("wait", waited)  # type: ignore[arg-type]
        client.host.refuse = SessionNotFoundError("s")
        client.host.hold.set()
        await anyio.wait_all_tasks_blocked()
        assert set(calls.ended.values()) == {"Session not found: s"}
        assert len(calls.ended) == 3
        client.host.refuse = None
        await calls.start("again", client.prompt("s"))
        assert len(client.host.sessions["s"].turns) == 1


async def test_a_fault_of_ours_does_not_end_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire(tmp_path) as (client, _):
        client.host.refuse = ZeroDivisionError("secret")
        text = await client.refusal("session/resume", sessionId="s")
        assert "log file" in text
        assert "secret" not in text
        assert "session s could not be opened" in caplog.text


async def test_a_prompt_that_never_reaches_the_log_is_an_error(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("prompt", client.prompt("s"))
        client.host.sessions["s"].turns[0].end(TurnEnd("error", "The disk is full.", "STORE"))
        await anyio.wait_all_tasks_blocked()
        assert calls.ended == {"prompt": "The disk is full."}
        assert await client.refusal("session/wait", sessionId="s") == "The disk is full."
        # The next prompt is a new beginning.
        await calls.start("again", client.prompt("s"))
        client.host.sessions["s"].begin(1)
        await client.host.sessions["s"].finish(1)
        assert await client.call("session/wait", sessionId="s") == {}


async def test_a_session_that_cannot_begin_as_named_is_let_go(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        await client.initialize(reasoningEffort="extreme")
        text = await client.refusal("session/working-directory/get", sessionId="s")
        assert text == "There is no effort 'extreme'."
        assert client.host.sessions["s"].closed


async def test_resume_opens_once_and_tells_nothing(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        client.host.hold = anyio.Event()
        resumed = client.send("session/resume", {"sessionId": "s"})
        await calls.start("resume", resumed)  # type: ignore[arg-type]
        assert "open already" in await client.refusal("session/resume", sessionId="s")
        client.host.hold.set()
        await anyio.wait_all_tasks_blocked()
        assert calls.ended == {"resume": {}}
        assert "open already" in await client.refusal("session/resume", sessionId="s")
        assert client.told == []
        assert client.host.sessions["s"].cwd == Path("/stored")
        assert await client.call("session/wait", sessionId="s") == {}


async def test_wait_knows_open_sessions_only(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        text = await client.refusal("session/wait", sessionId="s")
        assert "Session s is not open" in text


async def test_wait_ends_when_prompts_turns_and_subagents_are_over(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("prompt", client.prompt("s"))
        session = client.host.sessions["s"]
        waited = client.send("session/wait", {"sessionId": "s"})
        await calls.start("wait", waited)  # type: ignore[arg-type]
        session.begin()
        session.tell(started(SessionId("s"), CHILD), ChildSaid(CHILD, row("turn/start")))
        await session.finish()
        assert "wait" not in calls.ended, "the subagent still works"
        session.tell(finished(SessionId("s"), CHILD))
        await anyio.wait_all_tasks_blocked()
        assert calls.ended["wait"] == {}
        assert brief(client.told)[-5:] == [
            "child turn/start",
            "s turn/end",
            "s idle",
            "child idle",
            "subagent.finished s child",
        ]


async def test_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("one", client.prompt("a"))
        await calls.start("two", client.prompt("b"))
        client.host.sessions["b"].begin()
        await client.host.sessions["b"].finish()
        assert list(calls.ended) == ["two"]
        assert await client.call("session/wait", sessionId="b") == {}


async def test_the_working_folder_is_got_and_set(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        here = {"cwd": str(tmp_path)}
        below = {"cwd": str(tmp_path / "sub")}
        assert await client.call("session/working-directory/get", sessionId="s") == here
        set_to: JsonObject = {"sessionId": "s", "path": "sub"}
        assert await client.call("session/working-directory/set", **set_to) == below
        assert await client.call("session/working-directory/get", sessionId="s") == below
        missing = await client.refusal(
            "session/working-directory/set", sessionId="s", path="missing"
        )
        assert missing == "'missing' is no folder."
        no_path = await client.refusal("session/working-directory/set", sessionId="s")
        assert no_path == "path must be a string."


async def test_shutdown_closes_everything_tells_nothing_more_and_ends(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, calls):
        await calls.start("prompt", client.prompt("s"))
        session = client.host.sessions["s"]
        session.begin()
        waited = client.send("session/wait", {"sessionId": "s"})
        await calls.start("wait", waited)  # type: ignore[arg-type]
        before = len(client.told)
        ending = client.send("shutdown")
        await calls.start("shutdown", ending)  # type: ignore[arg-type]
        session.tell(row("turn/end", turn=1))
        await anyio.wait_all_tasks_blocked()
        assert calls.ended["shutdown"] == {}
        assert calls.ended["wait"] == {}
        assert client.host.closed == 1
        assert len(client.told) == before
        assert "shutting down" in await client.refusal("session/wait", sessionId="s")


async def test_shutdown_is_taken_before_initialize_and_stops_the_connection(tmp_path: Path) -> None:
    async with wire(tmp_path, initialize=False) as (client, _):
        assert await client.call("shutdown") == {}
        assert len(client.stopped) == 1


async def test_nobody_is_asked_and_no_file_or_command_goes_to_the_client(tmp_path: Path) -> None:
    async with wire(tmp_path) as (client, _):
        await client.call("session/working-directory/get", sessionId="s")
        asked = client.host.sessions["s"].client
        question = PermissionAsk(CallId("c"), "bash", "runs a command", None)
        assert await asked.ask_permission(question) is Answer.UNAVAILABLE
        assert [asked.reads_text, asked.writes_text, asked.runs_commands] == [False] * 3
        with pytest.raises(FileNotFoundError):
            await asked.read_text(tmp_path)
        with pytest.raises(PermissionError):
            await asked.write_text(tmp_path, "text")
        command = ClientCommand("sh", "ls", tmp_path, 1, 1, print, print)
        with pytest.raises(PermissionError):
            await asked.run_command(command)
