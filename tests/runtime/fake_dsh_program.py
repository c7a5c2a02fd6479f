"""A program in the place of ``dsh``: it writes real logs, talks as the wire does, fails to order.

``FAKE_DSH`` in its environment says how; see `main`. It has no control plugin.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from acp_bridge.sessions import LogWriter, SessionStore
from acp_bridge.sessions.events import row_from_event
from acp_bridge.vocabulary import Draft

HOW = os.environ.get("FAKE_DSH", "works")
SECRET = "the-secret-key-of-the-test"


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Fake:
    """One process: sessions that it has open, and answers."""

    def __init__(self) -> None:
        root = Path(os.environ["DSH_HOME"]) / "sessions"
        self.store = SessionStore(root, clock=lambda: time.time_ns() // 1_000_000)
        self.open: dict[str, LogWriter] = {}
        self.stalled: tuple[str, int] | None = None

    def rows(self, session_id: str, *drafts: Draft) -> None:
        for event in self.open[session_id].append(drafts):
            params = {"sessionId": session_id, "event": row_from_event(event)}
            say({"method": "session.event", "params": params})

    def serve(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        session_id = params.get("sessionId", "")
        match method:
            case "session/resume":
                if HOW == "held":
                    held = f'session "{session_id}" is already owned by an active write handle'
                    raise RuntimeError(held)
                self.open[session_id] = self.store.open(session_id)
            case "session/prompt":
                return {"messageId": self.prompt(session_id, params["contentBlocks"])}
            case "session/wait" if self.stalled:
                return None
            case "shutdown" if self.stalled:
                stalled, turn = self.stalled
                reason: Any = {"kind": "aborted", "reason": {"kind": "disposed"}}
                self.open[stalled].append(
                    [
                        Draft("step/end", {"turn": turn, "step": 1}),
                        Draft("turn/end", {"turn": turn, "reason": reason}),
                    ]
                )
            case "bridge/hello":
                raise RuntimeError(f"unknown DeepSeek Harness SDK runtime method: {method}")
        return {}

    def prompt(self, session_id: str, content: list[Any]) -> str:
        turn = 1 + sum(event.type == "turn/start" for event in self.open[session_id].events)
        message_id = f"m{turn}"
        message: Any = {
            "role": "user",
            "id": message_id,
            "source": {"kind": "user"},
            "content": content,
        }
        system: Any = {
            "role": "system",
            "id": "sys",
            "source": {"kind": "system-prompt"},
            "content": [],
        }
        self.rows(session_id, Draft("turn/start", {"turn": turn}))
        self.rows(session_id, Draft("step/start", {"turn": turn, "step": 1}))
        if turn == 1:
            head: Any = {
                "turn": turn,
                "step": 1,
                "message": {**system, "content": [text("Be good.")]},
            }
            self.rows(session_id, Draft("system/message", head, "append"))
        self.rows(session_id, Draft("user/message", message, "append"))
        if HOW == "dies" and "die" in json.dumps(content):
            sys.stderr.write(f"fatal: out of luck, key {SECRET}\n")
            sys.stderr.flush()
            os._exit(7)
        if HOW == "stalls" and "stall" in json.dumps(content):
            self.stalled = (session_id, turn)
            return message_id
        answer: Any = {
            "role": "assistant",
            "id": f"a{turn}",
            "source": {"kind": "model", "provider": "deepseek-official", "model": "m"},
            "content": [text("Heard.")],
        }
        said: Any = {"turn": turn, "step": 1, "message": answer, "stream": []}
        self.rows(session_id, Draft("assistant/message", said, "append"))
        self.rows(session_id, Draft("step/end", {"turn": turn, "step": 1}))
        self.rows(session_id, Draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}}))
        return message_id


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def main() -> int:
    """Run as told.

    ``exits`` at once, ``hangs`` at its start, says ``noise``, ``dies`` or ``stalls`` in a turn
    whose prompt says so, finds sessions ``held``, is ``old``, or works.
    """
    if "--version" in sys.argv:
        sys.stdout.write("0.1.1-rc.2\n" if HOW == "old" else "0.2.1-rc.2\n")
        return 0
    if HOW == "exits":
        sys.stderr.write(f"dsh: cannot start with key {SECRET}\n")
        return 3
    if HOW == "noise":
        sys.stdout.write("Welcome!\n[1, 2]\n")
    fake = Fake()
    for line in sys.stdin:
        message = json.loads(line)
        if HOW == "hangs" or "id" not in message or "method" not in message:
            continue
        try:
            result = fake.serve(message["method"], message.get("params") or {})
            if result is not None:
                say({"id": message["id"], "result": result})
        except Exception as fault:  # noqa: BLE001  # as the runtime: a text is all there is
            say({"id": message["id"], "error": {"code": -32603, "message": str(fault)}})
        if message["method"] == "shutdown":
            break
    for writer in fake.open.values():
        writer.close()
    if HOW == "hangs":
        signal.pause()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
