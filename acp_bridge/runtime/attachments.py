"""Image bytes outside the logs, by content: ``<home>/attachments/v1/objects/<2 hex>/<sha256 hex>``.

The real runtime's layout (dsh-events section 4). Files never change once written.
"""

import contextlib
import os
import threading
from pathlib import Path

from acp_bridge.errors import StoreFailedError

_PREFIX = "sha256:"
_HEX_DIGITS = 64


class AttachmentStore:
    """Keeps and finds bytes by ``sha256:<hex>``. Blocking."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "v1" / "objects"

    def keep(self, attachment_id: str, data: bytes) -> None:
        """Store bytes durably; a no-op when they are there.

        Raises:
            StoreFailedError: the disk refused.
        """
        path = self._path(attachment_id)
        if path is None or path.exists():
            return
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as fault:
            with contextlib.suppress(OSError):
                part.unlink()
            cause = os.strerror(fault.errno or 0)
            raise StoreFailedError(
                f"The image could not be stored under {self._objects}: {cause}."
            ) from fault

    def find(self, attachment_id: str) -> bytes | None:
        """The bytes, or None if they are not here."""
        path = self._path(attachment_id)
        try:
            return None if path is None else path.read_bytes()
        except OSError:
            return None

    def _path(self, attachment_id: str) -> Path | None:
        digits = attachment_id.removeprefix(_PREFIX)
        # Ids come from logs, which anybody may have written: nothing but a hash becomes a path.
        if len(digits) != _HEX_DIGITS or set(digits) - set("0123456789abcdef"):
            return None
        return self._objects / digits[:2] / digits
