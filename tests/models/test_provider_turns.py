"""Whole turns with real adapters: an editor, the assembled bridge, and a loopback provider."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from provider_server import (
    CUT,
    EVENTS_HEAD,
    HANG,
    KEY,
    ProviderServer,
    catalog,
    chat_delta,
    chat_events,
    chat_usage,
    chunked,
    message_start,
    messages_answer,
    messages_events,
    provider_server,
    refusal,
    stream,
    text_block,
    thinking_block,
    tool_block,
)

from acp_bridge.cli import assemble
from acp_bridge.config import Settings
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject
from acp_bridge.wire.memory import MemoryStream, stream_pair

pytestmark = pytest.mark.anyio

WAIT_S = 60.0
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Editor:
    """A client that allows all, and keeps what it is told."""

    def __init__(self, end: MemoryStream, cwd: Path) -> None:
        self._end = end
        self._cwd = cwd
        self._count = 0
        self._news = anyio.Event()
        self.entries: list[Entry] = []
        self.asked = 0
        self.session = ""

    async def read(self) -> None:
        rest = b""
        while data := await self._end.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.entries.append(Entry(1, "client", message))
                if message.get("method") == "session/request_permission":
                    self.asked += 1
                    outcome: JsonObject = {"outcome": "selected", "optionId": "allow-once"}
                    await self.send({"id": message["id"], "result": {"outcome": outcome}})
            self._news.set()
            self._news = anyio.Event()

    async def send(self, message: JsonObject) -> None:
        whole: JsonObject = {"jsonrpc": "2.0", **message}
        self.entries.append(Entry(1, "agent", whole))
        await self._end.send(json.dumps(whole).encode() + b"\n")

    async def begin(self, method: str, params: JsonObject) -> str:
        self._count += 1
        await self.send({"id": f"r{self._count}", "method": method, "params": params})
        return f"r{self._count}"

    async def reply(self, request_id: str) -> Any:
        with anyio.fail_after(WAIT_S):
            while True:
                news = self._news
                for entry in self.entries:
                    if entry.to == "client" and entry.message.get("id") == request_id:
                        return entry.message
                await news.wait()

    async def call(self, method: str, params: JsonObject) -> Any:
        return await self.reply(await self.begin(method, params))

    async def new(self) -> Any:
        response = await self.call("session/new", {"cwd": str(self._cwd), "mcpServers": []})
        self.session = response.get("result", {}).get("sessionId", "")
        return response

    def prompt_params(self, *blocks: JsonObject) -> JsonObject:
        said: list[Any] = list(blocks) or [{"type": "text", "text": "go"}]
        return {"sessionId": self.session, "prompt": said}

    async def prompt(self, *blocks: JsonObject) -> Any:
        return await self.call("session/prompt", self.prompt_params(*blocks))

    def updates(self, kind: str) -> list[Any]:
        bodies: list[Any] = [
            e.message["params"]
            for e in self.entries
            if e.to == "client" and e.message.get("method") == "session/update"
        ]
        return [b["update"] for b in bodies if b["update"]["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@asynccontextmanager
async def at_work(
    home: Path, monkeypatch: pytest.MonkeyPatch, model: str | None = "deepseek:deepseek-flash"
) -> AsyncIterator[tuple[Editor, ProviderServer]]:
    """An editor with a session, on the assembled bridge, on a provider; the wire is judged."""
    cwd = home.parent / "work"
    cwd.mkdir(exist_ok=True)
    async with provider_server() as server:
        for name in ("DEEPSEEK", "ANTHROPIC", "OPENAI"):
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
            end = "/v1" if name == "OPENAI" else ""
            monkeypatch.setenv(f"{name}_BASE_URL", server.url + end)
        models = catalog(server, home)
        ours, theirs = stream_pair(64 * 1024)
        editor = Editor(ours, cwd)
        async with anyio.create_task_group() as group:
            group.start_soon(assemble.serve, theirs, Settings(home=home, model=model))
            group.start_soon(editor.read)
            await editor.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            assert "result" in await editor.new()
            yield editor, server
            ours.send_eof()
        await models.aclose()
    assert problems(editor.entries) == []


def all_rows(home: Path) -> list[Any]:
    store = SessionStore(home / "sessions", clock=lambda: 0)
    (session_id,) = store.session_ids()
    return list(store.read(session_id).events)


def log_rows(home: Path, kind: str) -> list[Any]:
    return [event.data for event in all_rows(home) if event.type == kind]


def file_bytes(home: Path) -> list[bytes]:
    return [path.read_bytes() for path in home.rglob("*") if path.is_file()]


async def test_a_text_turn_streams_and_is_counted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(stream(messages_answer(text_block(0, "Hel", "lo."))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
        assert [u["content"]["text"] for u in editor.updates("agent_message_chunk")] == [
            "Hel",
            "lo.",
        ]
        sent = server.bodies[0]
        assert sent["model"] == "deepseek-flash"
        assert {tool["name"] for tool in sent["tools"]} >= {"read", "bash"}
        used = [update["used"] for update in editor.updates("usage_update")]
        assert used == [40]


async def test_a_tool_call_with_permission_and_reasoning_goes_round(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = json.dumps({"command": "echo from the shell", "description": "Say"})
    async with at_work(home, monkeypatch, "anthropic:claude-opus-5-5") as (editor, server):
        call = tool_block(2, "toolu_1", "bash", arguments[:9], arguments[9:])
        thought = thinking_block(0, "sig-1", "Hm", ".")
        first = messages_answer(thought, text_block(1, "I run."), call, stop="tool_use")
        server.then(stream(first))
        server.then(stream(messages_answer(text_block(0, "Done."))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
        assert editor.asked == 1
        assert editor.text("agent_thought_chunk") == "Hm."
        assert editor.text() == "I run.Done."
        asked, answered, results = server.bodies[1]["messages"]
        assert asked == {**server.bodies[0]["messages"][0]}
        assert answered["content"] == [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig-1"},
            {"type": "text", "text": "I run."},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": json.loads(arguments)},
        ]
        result = results["content"][0]
        assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")
        assert "from the shell" in result["content"][0]["text"]
    source = log_rows(home, "assistant/message")[0]["message"]["source"]
    assert source["replayState"]["response"]["kind"] == "anthropic-messages"


async def test_an_image_reaches_a_model_that_sees(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base64.b64encode(PIXEL).decode()
    image: JsonObject = {"type": "image", "mimeType": "image/png", "data": data}
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(stream(messages_answer(text_block(0, "A dot."))))
        words: JsonObject = {"type": "text", "text": "What is it?"}
        assert "result" in await editor.prompt(words, image)
        content = server.bodies[0]["messages"][0]["content"]
        source = {"type": "base64", "media_type": "image/png", "data": data}
        assert {"type": "image", "source": source} in content


async def test_a_busy_provider_is_asked_again_when_it_wishes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {"error": {"type": "rate_limit_error", "message": "Slow down"}}
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(refusal(429, busy, "Retry-After: 0"))
        # Cut off after some text: what was seen stays seen, and the answer comes whole.
        server.then(EVENTS_HEAD, chunked(messages_events(message_start())), CUT)
        server.then(stream(messages_answer(text_block(0, "Hello."))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
        assert editor.text() == "Hello."
        assert len(server.requests) == 3
    retries = log_rows(home, "llm/retry")
    assert [row["failure"]["code"] for row in retries] == ["RATE_LIMIT", "TRANSPORT"]
    assert retries[0]["delayMs"] == 0


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (403, "permission_error")]
)
async def test_a_wrong_key_is_told_at_once_and_the_next_prompt_works(
    home: Path, monkeypatch: pytest.MonkeyPatch, status: int, kind: str
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(refusal(status, {"error": {"type": kind, "message": "No such key"}}))
        error = (await editor.prompt())["error"]
        assert error["code"] == -32000
        assert "acp-bridge setup --provider deepseek" in error["data"]["details"]
        assert len(server.requests) == 1
        server.then(stream(messages_answer(text_block(0, "Hi"))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
    assert log_rows(home, "llm/retry") == []


async def test_a_used_up_quota_is_no_question_of_signing_in_as_r096_needs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch, "openai:gpt-5.1") as (editor, server):
        spent = {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}
        server.then(refusal(429, spent))
        error = (await editor.prompt())["error"]
        assert error["code"] == -32603
        assert "quota" in error["data"]["details"]
        assert len(server.requests) == 1


@pytest.mark.parametrize(("stop", "reason"), [("max_tokens", "max_tokens"), ("refusal", "refusal")])
async def test_what_the_model_says_of_its_end_is_the_stop_reason(
    home: Path, monkeypatch: pytest.MonkeyPatch, stop: str, reason: str
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(stream(messages_answer(text_block(0, "Half"), stop=stop)))
        assert (await editor.prompt())["result"]["stopReason"] == reason


async def test_a_filter_that_refuses_before_the_answer_is_a_refusal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch, "openai:gpt-5.1") as (editor, server):
        server.then(refusal(400, {"error": {"code": "content_filter", "message": "No."}}))
        assert (await editor.prompt())["result"]["stopReason"] == "refusal"


async def test_a_cancel_ends_the_call_and_the_connection(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        begun = chunked(messages_events(message_start(), *text_block(0, "Half")))
        server.then(EVENTS_HEAD, begun, HANG)
        came = server.asked
        request_id = await editor.begin("session/prompt", editor.prompt_params())
        with anyio.fail_after(WAIT_S):
            await came.wait()
        await editor.send({"method": "session/cancel", "params": {"sessionId": editor.session}})
        assert (await editor.reply(request_id))["result"]["stopReason"] == "cancelled"
        with anyio.fail_after(WAIT_S):
            await server.left.wait()


async def test_arguments_that_are_no_json_go_back_to_the_model_as_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(stream(messages_answer(tool_block(0, "t", "read", '{"file_'), stop="tool_use")))
        server.then(stream(messages_answer(text_block(0, "Sorry."))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
        _, answered, results = server.bodies[1]["messages"]
        assert answered["content"][0]["input"] == {"invalid_json": '{"file_'}
        assert results["content"][0]["is_error"] is True
        assert "not valid JSON" in results["content"][0]["content"][0]["text"]


async def test_chat_completions_go_round_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(index: int, call_id: str, path: str) -> Any:
        function = {"name": "glob", "arguments": json.dumps({"pattern": path})}
        return {"index": index, "id": call_id, "type": "function", "function": function}

    async with at_work(home, monkeypatch, "openai:gpt-5.1") as (editor, server):
        both = [call(0, "call_0", "*.a"), call(1, "call_0", "*.b")]
        server.then(
            stream(
                chat_events(
                    chat_delta(content="I look."),
                    chat_delta(tool_calls=both),
                    chat_delta("tool_calls"),
                    chat_usage(100, 5, cached=90),
                )
            )
        )
        server.then(stream(chat_events(chat_delta(content="None."), chat_delta("stop"))))
        assert (await editor.prompt())["result"]["stopReason"] == "end_turn"
        roles = [message["role"] for message in server.bodies[1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool"]
        calls = server.bodies[1]["messages"][2]["tool_calls"]
        ids = [message["tool_call_id"] for message in server.bodies[1]["messages"][3:]]
        assert sorted(ids) == sorted(call["id"] for call in calls)
        assert len(set(ids)) == 2
    usage = log_rows(home, "assistant/message")[0]["usage"]
    assert (usage["inputTokens"], usage["cacheReadTokens"], usage["totalTokens"]) == (10, 90, 105)


async def test_the_key_is_in_no_file_of_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(home, monkeypatch) as (editor, server):
        server.then(refusal(400, {"error": {"message": f"what is {KEY}?"}}))
        assert KEY not in json.dumps(await editor.prompt())
    assert KEY not in repr(all_rows(home))
    assert all(KEY.encode() not in data for data in file_bytes(home))
