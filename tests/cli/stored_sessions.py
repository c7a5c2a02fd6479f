"""Sessions for the tests of the command line, row by row: any text can be in them."""

import json
from pathlib import Path

from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import Header, dump_header
from acp_bridge.sessions.paths import log_name, project_folder, session_folder
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

START_MS = 1_790_000_000_000
CWD = "/work/shop"


def text(said: str) -> JsonObject:
    return {"type": "text", "text": said}


def conversation(
    prompt: str = "Fix the parser",
    thought: str = "I look first.",
    told: str = "Done: it was a comma.",
    *,
    title: str = "Fix the parser",
    path: str = "/work/shop/parser.py",
    old: str = "a = 1\nb = 2\n",
    new: str = "a = 1\nb = 3\n",
    output: str = "2 passed",
    todo: str = "Find the bug",
    reason: JsonValue = None,
) -> list[Draft]:
    """One turn: a plan, an edit with its diff, a command, an answer, usage after each step."""
    place: JsonObject = {"turn": 1, "step": 1}
    asked: JsonObject = {
        "role": "user",
        "id": "u1",
        "source": {"kind": "user"},
        "content": [text(prompt)],
    }
    system: JsonObject = {
        "role": "system",
        "id": "sys",
        "source": {"kind": "system-prompt"},
        "content": [text("You are an agent.")],
    }
    edit = json.dumps({"file_path": path, "old_string": old, "new_string": new})
    run = json.dumps({"command": "pytest -q", "description": "test"})
    calls: list[JsonValue] = [
        {"type": "tool-call", "id": "c1", "name": "edit", "arguments": edit},
        {"type": "tool-call", "id": "c2", "name": "bash", "arguments": run},
    ]
    return [
        Draft("turn/start", {"turn": 1}),
        Draft("step/start", place),
        Draft("system/message", {**place, "message": system}, "append"),
        Draft("user/message", asked, "append"),
        Draft(
            "session/title", {"title": title, "messageSeqs": [3], "source": {"kind": "fallback"}}
        ),
        Draft("request/context", {"provider": "p", "model": "m", "contextWindow": 1000}),
        _answer(1, [{"type": "reasoning", "text": thought}, *calls], used=200),
        Draft("tool/call", {**place, "callId": "c1", "name": "edit", "arguments": edit}),
        Draft("tool/call", {**place, "callId": "c2", "name": "bash", "arguments": run}),
        Draft("todo/write", {"todos": [{"content": todo, "status": "in_progress"}]}),
        _result("c1", 7, "Edited.", {"diffs": [{"path": path, "oldText": old, "newText": new}]}),
        _result("c2", 8, output, None),
        Draft("step/end", place),
        Draft("step/start", {"turn": 1, "step": 2}),
        _answer(2, [text(told)], used=450),
        Draft("step/end", {"turn": 1, "step": 2}),
        Draft("turn/end", {"turn": 1, "reason": reason or {"kind": "completed"}}),
    ]


def _answer(step: int, content: list[JsonValue], *, used: int) -> Draft:
    message: JsonObject = {
        "role": "assistant",
        "id": f"a{step}",
        "source": {"kind": "model", "provider": "p", "model": "m"},
        "content": content,
    }
    usage: JsonObject = {"inputTokens": used - 10, "outputTokens": 10}
    data: JsonObject = {"turn": 1, "step": step, "message": message, "stream": [], "usage": usage}
    return Draft("assistant/message", data, "append")


def _result(call_id: str, source: int, said: str, meta: JsonObject | None) -> Draft:
    message: JsonObject = {
        "role": "tool",
        "id": f"r-{call_id}",
        "source": {"kind": "tool", "callId": call_id},
        "toolCallId": call_id,
        "content": [text(said)],
        "isError": False,
    }
    data: JsonObject = {"turn": 1, "step": 1, "message": message}
    if meta is not None:
        data["meta"] = meta
    return Draft("tool/result", data, "append", (source,))


def put(
    home: Path,
    session_id: str,
    rows: list[Draft] | None = None,
    *,
    later_ms: int = 0,
    tail: bytes = b"",
    **header: object,
) -> Path:
    """Store a session (without rows: a whole conversation); the log's path."""
    drafts = conversation() if rows is None else rows
    start = START_MS + later_ms
    head = Header(session_id, start, **{"cwd": CWD, **header})  # type: ignore[arg-type]
    events = [
        Event(seq, start + seq, one.type, one.data, one.surface_op, one.source_event_seqs)
        for seq, one in enumerate(drafts)
    ]
    folder = home / "sessions" / project_folder(head.cwd) / (session_folder(session_id) or "")
    folder.mkdir(parents=True)
    path = folder / log_name("zstd")
    body = encode_batch(dump_events(events), "zstd") if events else b""
    path.write_bytes(encode_batch(dump_header(head), "zstd") + body + tail)
    return path


def marked(head: list[Draft], own: list[Draft]) -> list[Draft]:
    """Rows of a fork: inherited ones, the mark of the cut, its own."""
    return [*head, Draft("session/end-seed", {"inherited": True}), *own]


def family(home: Path) -> None:
    """A session with a subagent that has one itself, a fork, and a plain session."""
    put(home, "root", later_ms=5_000)
    put(home, "child", parent_session="root", origin="subagent", delegation_depth=1)
    put(home, "grandchild", parent_session="child", origin="subagent", delegation_depth=2)
    put(home, "fork", marked(conversation(), []), is_seeded=True, later_ms=9_000)
    put(home, "old-fork", marked(conversation(), []), is_seeded=True, parent_session="root")


def snapshot(root: Path) -> dict[str, tuple[bytes | None, int]]:
    """Every path with its bytes and time: equal snapshots mean that nothing was written."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else None,
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
    }
