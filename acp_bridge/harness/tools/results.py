"""What tools have in common in what they answer: failures in words, and having no preview."""

import errno
from pathlib import Path

from acp_bridge.harness.tools.paths import shown_path
from acp_bridge.ports import ToolContext, ToolResult
from acp_bridge.vocabulary import FileDiff, JsonObject


class NoPreview:
    """Base of tools that change no file by themselves."""

    async def preview(
        self,
        arguments: JsonObject,  # noqa: ARG002
        context: ToolContext,  # noqa: ARG002
    ) -> tuple[FileDiff, ...]:
        """()."""
        return ()


def failure(sentence: str) -> ToolResult:
    """The result of a call that failed; ``sentence`` is whole, with a full stop."""
    return ToolResult(text=f"Error: {sentence}", is_error=True)


def io_failure(doing: str, path: Path, error: OSError | ValueError) -> ToolResult:
    """The result for a file that the system, or the editor, refused: "cannot read /x: …"."""
    return failure(f"cannot {doing} {shown_path(path)}: {_reason(error)}.")


_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "too many links",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EFBIG: "the file is too big",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the file system is read-only",
    errno.E2BIG: "the command is too long",
}


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return "the text holds a character that no file or command can have"
    if error.errno in _REASONS:
        return _REASONS[error.errno]
    return error.strerror or str(error) or type(error).__name__
