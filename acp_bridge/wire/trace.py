"""A stream that writes both directions into a file, for bug reports. Secrets are redacted.

What counts as secret: members whose names say so (key, token, secret, password, authorization),
every value of ``env`` and ``headers`` lists, and the values of environment variables with such
names wherever they stand. Texts of prompts and files are not secret here: who turns tracing on
wants to see them, and says so.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from acp_bridge.wire.framing import LineBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from acp_bridge.vocabulary import JsonValue
    from acp_bridge.wire.endpoint import ByteStream
    from acp_bridge.wire.framing import NeedData, Oversize

    class Buffer(Protocol):
        """Cuts messages out of bytes."""

        def receive(self, data: bytes) -> None:
            """Add what was read."""

        def next_line(self) -> bytes | Oversize | NeedData:
            """The next message."""


REDACTED: Final = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|authorization|credential|cookie", re.IGNORECASE)
_SECRET_LENGTH_MIN = 8
"""Shorter values of variables stand in too many innocent places."""


class Redactor:
    """Takes secrets out of messages. ``environment`` is searched for secret values once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._values = sorted(
            (
                value
                for name, value in environment.items()
                if _SECRET_NAME.search(name) and len(value) >= _SECRET_LENGTH_MIN
            ),
            key=len,
            reverse=True,
        )

    def clean(self, value: JsonValue) -> JsonValue:
        """A copy without secrets."""
        match value:
            case dict():
                return {name: self._member(name, member) for name, member in value.items()}
            case list():
                return [self.clean(item) for item in value]
            case str():
                for secret in self._values:
                    value = value.replace(secret, REDACTED)
                return value
            case _:
                return value

    def _member(self, name: str, value: JsonValue) -> JsonValue:
        if name in {"env", "headers"} and isinstance(value, list):
            return [
                {**item, "value": REDACTED} if isinstance(item, dict) else REDACTED
                for item in value
            ]
        # Counts of tokens are no secrets: only texts can be.
        if isinstance(value, str) and _SECRET_NAME.search(name):
            return REDACTED
        return self.clean(value)


class TracedStream:
    """A `ByteStream` around another one that notes what passes, one JSON line a message.

    ``new_buffer`` makes what cuts messages out of one direction's bytes.
    """

    def __init__(
        self,
        stream: ByteStream,
        file: Path,
        environment: Mapping[str, str],
        new_buffer: Callable[[], Buffer] = LineBuffer,
    ) -> None:
        self._stream = stream
        # 0600: a trace holds whatever the user and the files say.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file: TextIO = os.fdopen(descriptor, "a", encoding="utf-8")
        self._redactor = Redactor(environment)
        self._lines = {"in": new_buffer(), "out": new_buffer()}

    async def receive(self) -> bytes:
        """The other stream's bytes, noted."""
        data = await self._stream.receive()
        self.note("in", data)
        return data

    async def send(self, data: bytes) -> None:
        """Note, then send."""
        self.note("out", data)
        await self._stream.send(data)

    async def aclose(self) -> None:
        """Close both."""
        self._file.close()
        await self._stream.aclose()

    def note(self, direction: str, data: bytes) -> None:
        """Note bytes of one direction (``in`` or ``out``); whole lines are written."""
        buffer = self._lines[direction]
        buffer.receive(data)
        while isinstance(line := buffer.next_line(), bytes):
            self._write(direction, line)

    def _write(self, direction: str, line: bytes) -> None:
        text = line.decode("utf-8", errors="replace")
        try:
            message = self._redactor.clean(json.loads(text))
        except (ValueError, RecursionError):
            message = self._redactor.clean(text)
        entry = {"time": round(time.time(), 3), "dir": direction, "message": message}
        self._file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()
