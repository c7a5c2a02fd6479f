"""Events to updates: what each row shows, over made-up logs, odd logs, and the real runtime's."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.projector import TEXT_CHARS_MAX, Projector
from acp_bridge.errors import BridgeError
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.check import official_schema
from acp_bridge.testing.rules import broken_rules
from acp_bridge.testing.schema import schema_problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import (
    CallId,
    Event,
    FileDiff,
    JsonObject,
    JsonValue,
    RuntimeEvent,
    StreamDelta,
    SurfaceOp,
    ToolOutput,
    ToolPreview,
)

CWD = Path("/work")
REPO = Path(__file__).parents[2]


def homes() -> Path:
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    found = shared / "data" / "dsh-0.2.1rc2" / "homes"
    assert found.is_dir(), f"{found} is missing: set ACP_BRIDGE_SHARED to the shared folder"
    return found


def projector(*, replay: bool = False, terminals: bool = False) -> Projector:
    return Projector(cwd=CWD, view=View(display_terminals=terminals), replay=replay)


def shown(events: Iterable[RuntimeEvent], fold: Projector) -> list[JsonObject]:
    updates = [unstructure(update) for event in events for update in fold.project(event)]
    return [*updates, *(unstructure(update) for update in fold.finish_replay())]


def problems(updates: Sequence[JsonObject], *, live: bool, schema: bool = True) -> list[str]:
    """What schema and rules say about these updates, as the body of a turn or of a load."""
    cwd: JsonObject = {"cwd": "/work", "mcpServers": []}
    prompt: JsonObject = {"sessionId": "s", "prompt": []}
    opening: list[Entry] = [
        Entry(1, "agent", {"id": 1, "method": "session/new", "params": cwd, "jsonrpc": "2.0"}),
        Entry(1, "client", {"id": 1, "result": {"sessionId": "s"}, "jsonrpc": "2.0"}),
    ]
    method = "session/prompt" if live else "session/load"
    params: JsonObject = prompt if live else {**cwd, "sessionId": "s"}
    result: JsonObject = {"stopReason": "end_turn"} if live else {}
    body = [
        Entry(
            1,
            "client",
            {
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {"sessionId": "s", "update": update},
            },
        )
        for update in updates
    ]
    entries = [
        *opening,
        Entry(1, "agent", {"id": 2, "method": method, "params": params, "jsonrpc": "2.0"}),
        *body,
        Entry(1, "client", {"id": 2, "result": result, "jsonrpc": "2.0"}),
    ]
    found = schema_problems(entries, official_schema()) if schema else []
    return [*found, *broken_rules(entries)]


class Log:
    """Makes rows with rising seq."""

    def __init__(self) -> None:
        self.rows: list[Event] = []

    def add(self, kind: str, data: JsonValue, op: SurfaceOp | None = None) -> Event:
        event = Event(len(self.rows), 0, kind, data, op)
        self.rows.append(event)
        return event

    def answer(self, *blocks: JsonObject, stream: list[JsonValue] | None = None) -> Event:
        content: list[JsonValue] = list(blocks)
        message: JsonObject = {"role": "assistant", "content": content}
        data: JsonObject = {"turn": 1, "step": 1, "message": message, "stream": stream or []}
        return self.add("assistant/message", data, "append")

    def call(self, call_id: str, name: str = "bash", arguments: str = "{}") -> Event:
        data: JsonObject = {"callId": call_id, "name": name, "arguments": arguments}
        return self.add("tool/call", {"turn": 1, "step": 1, **data})

    def ask(self, call_id: str) -> Event:
        return self.add("approval/asked", {"id": "q", "toolName": "bash", "callId": call_id})

    def decide(self, outcome: str) -> Event:
        return self.add("approval/decided", {"id": "q", "outcome": outcome})

    def result(self, call_id: str, text: str = "out", *, error: bool = False) -> Event:
        message: JsonObject = {
            "toolCallId": call_id,
            "isError": error,
            "content": [{"type": "text", "text": text}],
        }
        return self.add("tool/result", {"turn": 1, "step": 1, "message": message}, "append")


def said(call_id: str, name: str = "bash", arguments: str = '{"command": "ls"}') -> JsonObject:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def briefly(updates: Iterable[JsonObject]) -> list[tuple[JsonValue, ...]]:
    return [
        (update["sessionUpdate"], update.get("toolCallId"), update.get("status"))
        for update in updates
    ]


def test_a_call_that_asks_first_is_announced_pending() -> None:
    log = Log()
    log.answer(said("c"))
    log.ask("c")
    log.decide("allowed-once")
    log.call("c", arguments='{"command": "ls"}')
    log.result("c")
    updates = shown(log.rows, projector())
    assert briefly(updates) == [
        ("tool_call", "c", "pending"),
        ("tool_call_update", "c", "in_progress"),
        ("tool_call_update", "c", "completed"),
    ]
    assert updates[0]["title"] == "ls"
    assert problems(updates, live=True) == []


@pytest.mark.parametrize("outcome", ["rejected", "cancelled", "unavailable"])
def test_a_refused_call_is_never_in_progress(outcome: str) -> None:
    log = Log()
    log.answer(said("c"))
    log.ask("c")
    log.decide(outcome)
    log.call("c")
    log.result("c", "no", error=True)
    updates = shown(log.rows, projector())
    assert briefly(updates) == [
        ("tool_call", "c", "pending"),
        ("tool_call_update", "c", "failed"),
    ]


def test_the_other_harness_asks_after_the_call() -> None:
    log = Log()
    log.answer(said("c"))
    log.call("c", arguments='{"command": "ls"}')
    log.ask("c")
    log.decide("rejected")
    log.result("c", error=True)
    assert briefly(shown(log.rows, projector())) == [
        ("tool_call", "c", "in_progress"),
        ("tool_call_update", "c", "failed"),
    ]


def test_a_call_that_never_started_is_announced_before_it_is_closed() -> None:
    log = Log()
    log.answer(said("c", "read", '{"file_path": "a"}'))
    log.result("c", "never ran", error=True)
    updates = shown(log.rows, projector())
    assert briefly(updates) == [
        ("tool_call", "c", "pending"),
        ("tool_call_update", "c", "failed"),
    ]
    assert updates[0]["title"] == "Read `a`"


def test_paths_of_calls_start_where_the_session_was_moved_to() -> None:
    log = Log()
    log.add("working-directory/change", {"cwd": "/work/sub"})
    log.answer(said("c", "read", '{"file_path": "a"}'))
    log.call("c", "read", '{"file_path": "a"}')
    (update, *_) = shown(log.rows, projector())
    assert update["locations"] == [{"path": "/work/sub/a"}]


def test_ids_that_come_again_in_a_later_turn_get_a_number_r083() -> None:
    log = Log()
    for _ in range(3):
        log.answer(said("c"))
        log.call("c")
        log.result("c")
    names = [update["toolCallId"] for update in shown(log.rows, projector())]
    assert names == ["c", "c", "c#2", "c#2", "c#3", "c#3"]


def text_stream(*texts: str, index: int = 0, kind: str = "text-chunks") -> JsonValue:
    pieces: list[JsonValue] = list(texts)
    return {"type": kind, "time0": 0, "index": index, "dt": [], "texts": pieces}


def test_a_message_whose_deltas_were_sent_is_not_sent_again() -> None:
    log = Log()
    row = log.answer({"type": "text", "text": "ab"}, stream=[text_stream("a", "b")])
    fold = projector()
    deltas = [StreamDelta(1, 1, 1, 0, "text", piece) for piece in "ab"]
    assert len(shown(deltas, fold)) == 2
    assert shown([row], fold) == []
    assert fold.unfinished() == []


def test_what_no_delta_told_is_sent_with_the_row() -> None:
    log = Log()
    row = log.answer({"type": "text", "text": "abc"}, stream=[text_stream("ab", "c")])
    fold = projector()
    shown([StreamDelta(1, 1, 1, 0, "text", "ab")], fold)
    (rest,) = shown([row], fold)
    assert rest["content"] == {"type": "text", "text": "c"}


def test_live_and_replay_give_a_text_the_same_id() -> None:
    log = Log()
    log.add("turn/start", {"turn": 1})
    log.add("step/start", {"turn": 1, "step": 1})
    stream: list[JsonValue] = [text_stream("x")]
    log.add("assistant/attempt", {"turn": 1, "step": 1, "stream": stream})
    log.answer(stream=[text_stream("hm", kind="reasoning-chunks"), text_stream("hello", index=1)])
    live = shown(
        [
            *log.rows[:2],
            StreamDelta(1, 1, 1, 0, "text", "x"),
            log.rows[2],
            StreamDelta(1, 1, 2, 0, "reasoning", "hm"),
            StreamDelta(1, 1, 2, 1, "text", "hello"),
            log.rows[3],
        ],
        projector(),
    )
    assert live == shown(log.rows, projector(replay=True))
    assert [update["messageId"] for update in live] == ["1.1.1.0", "1.1.2.0", "1.1.2.1"]


def test_unfinished_text_is_what_a_replay_cannot_know() -> None:
    fold = projector()
    shown([StreamDelta(1, 1, 1, 0, "text", piece) for piece in "ab"], fold)
    (whole,) = [unstructure(update) for update in fold.unfinished()]
    assert whole["content"] == {"type": "text", "text": "ab"}
    log = Log()
    log.add("turn/start", {"turn": 2})
    shown(log.rows, fold)
    assert fold.unfinished() == []


def test_users_are_shown_in_a_replay_only_and_only_people_r048() -> None:
    log = Log()
    log.add("turn/start", {"turn": 1})
    for kind in ("user", "runtime-context", "compact-checkpoint"):
        content: list[JsonValue] = [{"type": "text", "text": kind}]
        data: JsonObject = {"role": "user", "content": content, "source": {"kind": kind}}
        log.add("user/message", data, "append")
    assert shown(log.rows, projector()) == []
    (update,) = shown(log.rows, projector(replay=True))
    assert update["content"] == {"type": "text", "text": "user"}


def test_an_image_that_is_lost_is_said() -> None:
    log = Log()
    attachment: JsonObject = {"attachmentId": "sha256:0", "mediaType": "image/png"}
    content: list[JsonValue] = [{"type": "image", "attachment": attachment}]
    log.add("user/message", {"content": content, "source": {"kind": "user"}}, "append")
    (update,) = shown(log.rows, projector(replay=True))
    assert "no longer stored" in str(update["content"])
    found = Projector(cwd=CWD, view=View(), replay=True, find_attachment={"sha256:0": b"png"}.get)
    (update,) = shown(log.rows, found)
    assert update["content"] == {"type": "image", "data": "cG5n", "mimeType": "image/png"}


def test_rows_that_replace_show_nothing() -> None:
    log = Log()
    log.add("turn/start", {"turn": 1})
    user: JsonObject = {"content": [{"type": "text", "text": "x"}], "source": {"kind": "user"}}
    log.add("user/message", user, (0, 0))
    log.add("assistant/message", {"turn": 1, "step": 1, "stream": [text_stream("x")]}, (0, 0))
    log.add("tool/result", {"message": {"toolCallId": "c", "content": []}}, (0, 0))
    log.add("system/message", {"message": {"content": []}}, (0, 0))
    log.add("compaction/prune", {"shadowedSeqs": [1]})
    log.add("compaction/summary", {"summary": [{"type": "text", "text": "x"}]})
    assert shown(log.rows, projector(replay=True)) == []


def test_long_texts_are_cut_into_lines_below_a_mebibyte() -> None:
    log = Log()
    text = "é" * (TEXT_CHARS_MAX * 2 + 5)
    log.answer({"type": "text", "text": text})
    updates = shown(log.rows, projector(replay=True))
    assert "".join(str(u["content"]["text"]) for u in updates) == text  # type: ignore[call-overload,index]
    assert len({u["messageId"] for u in updates}) == 1
    assert problems(updates, live=False) == []


def test_a_plan_is_sent_whole_and_an_empty_one_clears_r109() -> None:
    log = Log()
    todos: list[JsonValue] = [
        {"content": status, "status": status}
        for status in ("pending", "in_progress", "completed", "cancelled", "strange")
    ]
    log.add("todo/write", {"todos": todos})
    log.add("todo/write", {"todos": []})
    plan, empty = shown(log.rows, projector())
    entries = plan["entries"]
    assert isinstance(entries, list)
    assert [entry["status"] for entry in entries if isinstance(entry, dict)] == [
        "pending",
        "in_progress",
        "completed",
        "completed",
        "pending",
    ]
    assert empty["entries"] == []


def test_usage_is_what_the_context_holds_now_r069() -> None:
    log = Log()
    log.add("request/context", {"contextWindow": 1000})
    for tokens in (100, 900, 50):
        row = log.answer({"type": "text", "text": "x"})
        assert isinstance(row.data, dict)
        row.data["usage"] = {"inputTokens": tokens, "outputTokens": 1, "cacheReadTokens": 2}
    used = [u["used"] for u in shown(log.rows, projector()) if "used" in u]
    assert used[:3] == [103, 903, 53]
    last = [u for u in shown(log.rows, projector(replay=True)) if "used" in u]
    assert last == [{"sessionUpdate": "usage_update", "used": 53, "size": 1000}]


def test_no_window_no_usage() -> None:
    log = Log()
    row = log.answer({"type": "text", "text": "x"})
    assert isinstance(row.data, dict)
    row.data["usage"] = {"inputTokens": 1, "outputTokens": 1}
    assert not [u for u in shown(log.rows, projector()) if "used" in u]


def test_the_step_limit_is_said_in_text() -> None:
    log = Log()
    log.add("turn/start", {"turn": 3})
    error: JsonObject = {"code": "STEP_LIMIT", "message": "Stopped."}
    log.add("turn/end", {"turn": 3, "reason": {"kind": "error", "error": error}})
    (update,) = shown(log.rows, projector())
    assert update["content"] == {"type": "text", "text": "Stopped.\n"}


def test_a_preview_shows_the_change_and_points_at_it() -> None:
    log = Log()
    log.answer(said("c", "edit", '{"file_path": "a"}'))
    log.ask("c")
    fold = projector()
    shown(log.rows, fold)
    diff = FileDiff("/work/a", "1\n2\n3\n", "1\nX\n3\n")
    (update,) = shown([ToolPreview(CallId("c"), (diff,))], fold)
    assert update["status"] == "pending"
    assert update["locations"] == [{"path": "/work/a", "line": 2}]
    call = fold.shown_call(CallId("c"))
    assert call is not None
    assert call.content
    assert shown([ToolPreview(CallId("other"), (diff,))], fold) == []


def test_a_display_terminal_is_announced_fed_and_ended() -> None:
    log = Log()
    log.answer(said("c"))
    log.call("c")
    fold = projector(terminals=True)
    (announced,) = shown(log.rows, fold)
    assert announced["content"] == [{"type": "terminal", "terminalId": "c"}]
    (fed,) = shown([ToolOutput(CallId("c"), "hi")], fold)
    assert fed["_meta"] == {"terminal_output": {"terminal_id": "c", "data": "hi"}}
    assert fed["status"] == "in_progress"
    row = log.result("c")
    assert isinstance(row.data, dict)
    row.data["meta"] = {"cwd": "/work", "exitCode": 1, "signal": None}
    (ended,) = shown([row], fold)
    assert "terminal_exit" in str(ended["_meta"])
    assert shown([ToolOutput(CallId("c"), "late")], fold) == []
    replayed = shown(log.rows, projector(replay=True, terminals=True))
    assert "terminal_output" in str(replayed[-1]["_meta"])


def sound_sessions() -> Sequence[tuple[str, str]]:
    found = []
    for home in sorted(homes().iterdir()):
        store = SessionStore(home / "sessions", clock=lambda: 0)
        for session_id in store.session_ids():
            try:
                store.read(session_id)
            except BridgeError:
                continue
            found.append((home.name, session_id))
    return found


def test_there_are_real_logs_to_project() -> None:
    assert len(sound_sessions()) > 50


@pytest.mark.parametrize("terminals", [False, True])
def test_every_real_log_projects_to_good_updates(terminals: bool) -> None:
    distinct: dict[str, JsonObject] = {}
    for home, session_id in sound_sessions():
        store = SessionStore(homes() / home / "sessions", clock=lambda: 0)
        events = store.read(session_id).events
        updates = shown(events, projector(replay=True, terminals=terminals))
        # A log that was cut off is closed before it is replayed; here it is read as it lies.
        found = problems(updates, live=False, schema=False)
        assert [p for p in found if "is open when" not in p] == [], f"{home}/{session_id}"
        distinct.update((str(update), update) for update in updates)
        texts = "".join(str(update.get("content")) for update in updates)
        for event in events:
            if event.type == "session/title":
                assert any(u["sessionUpdate"] == "session_info_update" for u in updates)
            if event.type == "assistant/attempt" and isinstance(event.data, dict):
                for record in event.data["stream"]:  # type: ignore[union-attr]
                    for piece in record.get("texts", []):  # type: ignore[union-attr]
                        assert str(piece) in texts
    found = problems(list(distinct.values()), live=False)
    assert [p for p in found if p.startswith("message")] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = [
    *["turn", "step", "message", "content", "stream", "usage", "source", "kind", "type", "text"],
    *["texts", "index", "todos", "status", "title", "contextWindow", "id", "callId", "outcome"],
    *["name", "arguments", "toolCallId", "isError", "meta", "diffs", "path", "newText", "_meta"],
    *["acp", "uri", "start", "end", "attachment", "reason", "error", "code", "lines", "cwd"],
]
ODD: st.SearchStrategy[JsonValue] = st.recursive(
    st.sampled_from(["user", "text", "tool-call", "text-chunks", "c", "STEP_LIMIT", "resource"])
    | JSON,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(Projector._FOLDS)), ODD, st.none() | st.just("append")),
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_log_makes_the_projector_fail(
    rows: list[tuple[str, JsonValue, SurfaceOp | None]], replay: bool, terminals: bool
) -> None:
    """Logs are written by other programs too, and the reader hardly checks payloads."""
    events = [Event(n, 0, kind, data, op) for n, (kind, data, op) in enumerate(rows)]
    shown(events, projector(replay=replay, terminals=terminals))
