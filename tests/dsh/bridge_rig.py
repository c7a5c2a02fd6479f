"""An editor, a real ``acp-bridge --runtime dsh``, the real runtime, and a model on loopback."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsh_rig import Model, dsh_command
from process_rig import BRIDGE, Bridge, Place

from acp_bridge.runtime.dsh.control import PATCH_FILE
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event


class DshPlace(Place):
    """One test's folders; its bridges run the real runtime against a model of the test."""

    def __init__(self, root: Path, model: Model) -> None:
        super().__init__(root)
        self.loopback = model
        self.dsh_home = root / "dsh-home"
        self.dsh = dsh_command()
        self.env |= {
            "DSH_HOME": str(self.dsh_home),
            "DSH_TELEMETRY_MODE": "DISABLED",
            "DEEPSEEK_API_KEY": "loopback-key-of-the-test",
            "DEEPSEEK_BASE_URL": model.url,
        }

    def command(self, *flags: str) -> list[str]:
        own = ["--home", str(self.home), "--runtime", "dsh", "--dsh", self.dsh]
        return [*BRIDGE, *own, *flags]

    @contextmanager
    def editor(self, *flags: str, **options: Any) -> Iterator[Bridge]:
        """A bridge that was said hello to."""
        with self.bridge(*flags, **options) as bridge:
            bridge.hello()
            yield bridge

    def stored(self, session_id: str) -> list[Event]:
        """A session's log, as it lies on the disk."""
        store = SessionStore(self.dsh_home / "sessions", clock=lambda: 0)
        return list(store.read(session_id).events)

    def dsh_of(self) -> int:
        """The process id of the runtime itself, the leader of its group."""
        return next(
            pid
            for pid, name in self.processes().items()
            if "--profile sdk" in name and os.getpgid(pid) == pid
        )

    def without_plugin(self) -> None:
        """From now on bridges run from a copy of the package that lacks the plugin's file."""
        package = PATCH_FILE.parent.parent.parent
        copy = self.root / "lib" / package.name
        ignore = shutil.ignore_patterns("__pycache__", "control.mjs")
        shutil.copytree(package, copy, ignore=ignore)
        self.env["PYTHONPATH"] = str(copy.parent)


def shared_homes() -> Path:
    """Stores that the real runtime wrote, as `conftest.real_log` finds them."""
    repo = Path(__file__).resolve().parent.parent.parent
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", repo.parent / "shared"))
    return shared / "data" / "dsh-0.2.1rc2" / "homes"


def end_of(bridge: Bridge, session: str, words: str = "go", *, wait_s: float = 60) -> Any:
    """The stop reason of a prompt, or its error."""
    answer = bridge.answer_to(bridge.prompt(session, words), wait_s=wait_s)
    return answer["result"]["stopReason"] if "result" in answer else answer["error"]


def tool_updates(bridge: Bridge, session: str) -> list[tuple[str, str | None]]:
    """Title or id, and status, of each update of a tool call."""
    return [
        (update.get("title") or update["toolCallId"], update.get("status"))
        for update in bridge.updates(session)
        if update["sessionUpdate"].startswith("tool_call")
    ]
