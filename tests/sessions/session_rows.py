"""Shared by the tests of the sessions room: hand-made turns, a clock, and the real stores."""

import os
from pathlib import Path

from acp_bridge.sessions import Header, LogState, LogWriter, SessionStore
from acp_bridge.sessions.events import dump_events, event_from_row
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.jsontext import loads
from acp_bridge.sessions.paths import Encoding, log_name, project_folder, session_folder
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

REPO = Path(__file__).parents[2]
START_MS = 1_700_000_000_000
CWD = "/home/dev/ws"


def homes() -> Path:
    """The real runtime's stores; an assertion that says how to get them if they are not there."""
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    found = shared / "data" / "dsh-0.2.1rc2" / "homes"
    assert found.is_dir(), f"{found} is missing: set ACP_BRIDGE_SHARED to the shared folder"
    return found


class Clock:
    """Milliseconds that count up by one at each look."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


def header(session_id: str = "s", **more: object) -> Header:
    return Header(session_id, START_MS, CWD, **more)  # type: ignore[arg-type]


def store(root: Path, *, durable: bool = False) -> SessionStore:
    return SessionStore(root, clock=Clock(), durable=durable)


def user(message_id: str, text: str = "hello", kind: str = "user") -> JsonObject:
    return {
        "content": [{"type": "text", "text": text}],
        "source": {"kind": kind},
        "role": "user",
        "id": message_id,
    }


def opening(turn: int, *, system: bool | None = None) -> list[Draft]:
    """From the prompt to the request: turn and step are open afterwards."""
    message = user(f"u{turn}", f"prompt {turn}")
    rows = [
        spliced(inserted=[message]),
        Draft("turn/start", {"turn": turn}),
        spliced(removed=1),
        Draft("step/start", {"turn": turn, "step": 1}),
    ]
    if system if system is not None else turn == 1:
        rows.append(system_row(turn, 1, "You are an agent.", f"sys{turn}"))
    rows.append(Draft("user/message", message, "append"))
    rows.append(request_header("initial" if turn == 1 else "change"))
    return rows


def spliced(
    *, start: int = 0, removed: int | None = None, inserted: list[JsonValue] | None = None
) -> Draft:
    data: JsonObject = {"target": "next-turn", "start": start}
    if removed is not None:
        data["removedCount"] = removed
    data["inserted"] = inserted or []
    return Draft("agent/inbox/spliced", data)


def request_header(reason: str = "initial") -> Draft:
    return Draft(
        "request/header",
        {"header": {"config": {"provider": "p", "model": "m"}}, "reason": reason},
    )


def system_row(turn: int, step: int, text: str, message_id: str) -> Draft:
    message: JsonObject = {
        "role": "system",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "system-prompt"},
        "id": message_id,
    }
    return Draft("system/message", {"turn": turn, "step": step, "message": message}, "append")


def answer(turn: int, *calls: str, step: int = 1, text: str = "answer") -> Draft:
    """An assistant message that makes these tool calls."""
    content: list[JsonValue] = [{"type": "text", "text": text}]
    content += [
        {"type": "tool-call", "id": call, "name": "read", "arguments": "{}"} for call in calls
    ]
    message: JsonObject = {
        "role": "assistant",
        "content": content,
        "source": {"kind": "model", "provider": "p", "model": "m"},
        "id": f"a{turn}.{step}",
    }
    stream: JsonValue = [
        {"type": "text-chunks", "time0": 1, "index": 0, "dt": [0], "texts": ["ans", "wer"]}
    ]
    return Draft(
        "assistant/message",
        {"turn": turn, "step": step, "message": message, "stream": stream},
        "append",
    )


def call(turn: int, call_id: str, step: int = 1) -> Draft:
    return Draft(
        "tool/call",
        {"turn": turn, "step": step, "callId": call_id, "name": "read", "arguments": "{}"},
    )


def result(turn: int, call_id: str, source: int, *, step: int = 1, text: str = "out") -> Draft:
    message: JsonObject = {
        "role": "tool",
        "source": {"kind": "tool", "callId": call_id},
        "toolCallId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": False,
        "id": f"r-{call_id}",
    }
    return Draft(
        "tool/result", {"turn": turn, "step": step, "message": message}, "append", (source,)
    )


def closing(turn: int, step: int = 1) -> list[Draft]:
    return [
        Draft("step/end", {"turn": turn, "step": step}),
        Draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
    ]


def text_turn(turn: int) -> list[Draft]:
    """A whole turn: prompt, answer, end. Ten rows, eleven for the first turn of a log."""
    return [*opening(turn), answer(turn), *closing(turn)]


def write_turns(writer: LogWriter, turns: int) -> None:
    """Whole turns, each with a tool step, in four batches."""
    for turn in range(1, turns + 1):
        call_id = f"c{turn}"
        writer.append(opening(turn))
        writer.append([answer(turn, call_id), call(turn, call_id)])
        writer.append([result(turn, call_id, writer.state.next_seq - 1)])
        writer.append(closing(turn))


def placed(drafts: list[Draft]) -> list[Event]:
    return [
        Event(
            seq,
            START_MS + seq,
            one.type,
            one.data,
            one.surface_op,
            one.source_event_seqs,
            one.ignorable,
        )
        for seq, one in enumerate(drafts)
    ]


def folded(drafts: list[Draft], head: Header | None = None) -> LogState:
    """The state after these rows; raises what the reader would."""
    state = LogState(head or header())
    for event in placed(drafts):
        state.apply(event)
    state.settle()
    state.require_supported()
    return state


def log_bytes(drafts: list[Draft], head: Header | None = None) -> list[bytes]:
    """The header line and every row's line, each with its newline."""
    rows = dump_events(placed(drafts)).splitlines(keepends=True)
    return [dump_header(head or header()), *rows]


def folder_of(root: Path, session_id: str, cwd: str | None = CWD) -> Path:
    return root / project_folder(cwd) / (session_folder(session_id) or "")


def put(root: Path, session_id: str, data: bytes, encoding: Encoding = "zstd") -> Path:
    """Place these bytes as a session's log."""
    folder = folder_of(root, session_id)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / log_name(encoding)
    path.write_bytes(data)
    return path


def events_of(lines: list[bytes]) -> list[Event]:
    return [event_from_row(loads(line), seq) for seq, line in enumerate(lines)]


def tree(root: Path) -> dict[str, bytes | None]:
    """Every path below ``root`` with its bytes, to see that nothing changed."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }
