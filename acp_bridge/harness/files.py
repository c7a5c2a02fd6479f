"""Files as tools see them: through the editor where it offers that, on the disk otherwise.

The editor is asked so that unsaved text counts (field report R019). It may hold a text without
its byte order mark and with plain line ends; where that is the only difference from the disk, the
disk's bytes are the truth, so that an edit keeps them.
"""

import errno
from pathlib import Path

from acp_bridge.harness.tools.disk import DiskFiles
from acp_bridge.ports import Client


class SessionFiles:
    """`ports.ToolFiles` for one session's client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._disk = DiskFiles()

    async def read_bytes(self, path: Path) -> bytes:
        """The editor's text as UTF-8 if it has one, else the file's bytes. Raises OSError."""
        if not self._client.reads_text:
            return await self._disk.read_bytes(path)
        try:
            stored: bytes | None = await self._disk.read_bytes(path)
        except FileNotFoundError:
            stored = None
        if stored is not None and not _is_text(stored):
            return stored
        try:
            text = await self._client.read_text(path)
        except OSError:
            if stored is None:
                raise _not_there(path) from None  # whatever the editor calls it
            return stored  # the editor cannot, the disk can
        if stored is None and not text:
            # Several editors answer an empty text for a file that is not there.
            raise _not_there(path)
        if stored is not None and _plain(stored.decode()) == _plain(text):
            return stored
        return text.encode(errors="replace")

    async def write_bytes(self, path: Path, data: bytes) -> None:
        """Write through the editor if it offers that and ``data`` is text. Raises OSError."""
        if self._client.writes_text and _is_text(data):
            await self._client.write_text(path, data.decode())
        else:
            await self._disk.write_bytes(path, data)


def _not_there(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file", str(path))


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
