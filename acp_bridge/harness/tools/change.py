"""The `write` and `edit` tools, and how a change is told to the user and the log."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

import anyio
import attrs
from anyio import to_thread

from acp_bridge.harness.tools.arguments import flag, invalid_arguments, required_text
from acp_bridge.harness.tools.paths import absolute_path, resolved_path, shown_path
from acp_bridge.harness.tools.replacing import NotReplaced, replace_text
from acp_bridge.harness.tools.results import failure, io_failure
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import FileDiff, JsonObject

DIFF_BYTES_MAX = 1024 * 1024
"""Old and new text together: above it a change is stored without its texts."""

_LOCKS: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()


@attrs.frozen(slots=True)
class Change:
    """A change that a call is going to make; ``old`` None: the file is new or is no text."""

    path: Path
    is_new: bool
    old: str | None
    data: bytes
    new: str

    def diffs(self) -> tuple[FileDiff, ...] | None:
        """The change in full texts; () if nothing changes, None if it cannot be shown."""
        if self.old is None and not self.is_new:
            return None
        if len(self.data) + len((self.old or "").encode()) > DIFF_BYTES_MAX:
            return None
        if self.old == self.new:
            return ()
        return (FileDiff(shown_path(self.path), self.old, self.new),)

    def meta(self) -> JsonObject:
        """``path`` and ``diffs``, with ``diffsOmitted`` where the texts cannot be stored."""
        diffs = self.diffs()
        stored: JsonObject = {
            "path": shown_path(self.path),
            "diffs": [
                {"path": diff.path, "oldText": diff.old_text, "newText": diff.new_text}
                for diff in diffs or ()
            ],
        }
        return stored if diffs is not None else {**stored, "diffsOmitted": True}


class _ChangeTool(ABC):
    """What both tools do with the change that they plan."""

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """The file."""
        return _write_access(arguments, cwd)

    async def preview(self, arguments: JsonObject, context: ToolContext) -> tuple[FileDiff, ...]:
        """The change, or () if it would fail or is too big to show."""
        return _shown(await self._planned(arguments, context))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Make the change; what is said of it, or of why it cannot be made."""
        async with _alone(_target(arguments, context)):
            change = await _made(await self._planned(arguments, context), context)
        return change if isinstance(change, ToolResult) else self._told(change)

    @abstractmethod
    async def _planned(self, arguments: JsonObject, context: ToolContext) -> Change | ToolResult:
        """The change, or why there is none; nothing is written."""

    @abstractmethod
    def _told(self, change: Change) -> ToolResult:
        """What is said of a change that was made."""


class WriteTool(_ChangeTool):
    """Make a file, or replace all of it."""

    name: ClassVar[str] = "write"
    description: ClassVar[str] = (
        "Write a text file (UTF-8): make it, with missing folders, or replace its whole content. "
        "The content is written exactly as given, with no newline added. To change a part of an "
        "existing file use edit."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "Absolute, or relative to the working folder.",
            },
            "content": {"type": "string", "description": "The whole content of the file."},
        },
        "required": ["file_path", "content"],
    }

    def _told(self, change: Change) -> ToolResult:
        """``meta``: operation (create or update), path, diffs."""
        done = "Created file" if change.is_new else "Updated file"
        return ToolResult(
            text=f"<path>{shown_path(change.path)}</path>\n<type>file</type>\n"
            f"<content>\n{done}\n</content>",
            meta={"operation": "create" if change.is_new else "update", **change.meta()},
        )

    async def _planned(self, arguments: JsonObject, context: ToolContext) -> Change | ToolResult:
        path = _target(arguments, context)
        content = required_text(arguments, "content")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            return invalid_arguments('property "content" holds half of a surrogate pair')
        try:
            if await to_thread.run_sync(path.is_dir):
                return failure(f"{shown_path(path)} is a folder. Name a file in it.")
            before = await context.files.read_bytes(path)
        except FileNotFoundError:
            return Change(path, is_new=True, old=None, data=data, new=content)
        except (OSError, ValueError) as error:
            return io_failure("write", path, error)
        return Change(path, is_new=False, old=_text_of(before), data=data, new=content)


class EditTool(_ChangeTool):
    """Replace a piece of a file."""

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = (
        "Replace text in an existing file. `old_string` must be copied exactly from the file, "
        "white space included, without the line numbers of read, and must occur exactly once: "
        "add lines around it until it does, or set `replace_all`. Line ends need no care: write "
        "\\n, and the file keeps its own style. Fails and changes nothing when there is no match "
        "or more than one."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "Absolute, or relative to the working folder.",
            },
            "old_string": {"type": "string", "description": "The text to replace."},
            "new_string": {"type": "string", "description": "The text to put in its place."},
            "replace_all": {
                "type": "boolean",
                "description": "Replace every occurrence. Default false.",
            },
        },
        "required": ["file_path", "old_string", "new_string"],
    }

    def _told(self, change: Change) -> ToolResult:
        """``meta``: path, diffs."""
        return ToolResult(
            text=f"The file {shown_path(change.path)} has been updated successfully.",
            meta=change.meta(),
        )

    async def _planned(self, arguments: JsonObject, context: ToolContext) -> Change | ToolResult:
        path = _target(arguments, context)
        old = required_text(arguments, "old_string")
        new = required_text(arguments, "new_string")
        if not old:
            return invalid_arguments(
                'property "old_string" must not be empty; to fill or make a file use write'
            )
        if old == new:
            return failure("old_string and new_string are the same; there is nothing to change.")
        try:
            if await to_thread.run_sync(path.is_dir):
                return failure(f"{shown_path(path)} is a folder. Name a file in it.")
            before = await context.files.read_bytes(path)
        except FileNotFoundError:
            return failure(f"there is no file {shown_path(path)}. Make a new file with write.")
        except (OSError, ValueError) as error:
            return io_failure("read", path, error)
        text = _text_of(before)
        if text is None:
            return failure(f"{shown_path(path)} is not a UTF-8 text file and cannot be edited.")
        everywhere = flag(arguments, "replace_all")
        return await to_thread.run_sync(_edited, path, text, old, new, everywhere)


def _edited(path: Path, text: str, old: str, new: str, everywhere: bool) -> Change | ToolResult:  # noqa: FBT001
    edited = replace_text(text, old, new, everywhere=everywhere)
    if isinstance(edited, NotReplaced):
        if edited.count == 0:
            return failure(f"old_string was not found in {shown_path(path)}. {edited.hint}")
        return failure(
            f"old_string occurs {edited.count} times in {shown_path(path)}. Add lines around it "
            "to name one, or set replace_all to change every one."
        )
    if edited == text:
        return failure("the edit leaves the file as it is; there is nothing to change.")
    try:
        data = edited.encode()
    except UnicodeEncodeError:
        return invalid_arguments('property "new_string" holds half of a surrogate pair')
    return Change(path, is_new=False, old=text, data=data, new=edited)


def _target(arguments: JsonObject, context: ToolContext) -> Path:
    return absolute_path(required_text(arguments, "file_path"), context.cwd)


async def _made(change: Change | ToolResult, context: ToolContext) -> Change | ToolResult:
    """The change once the file holds it, or why it does not."""
    if isinstance(change, ToolResult):
        return change
    try:
        await context.files.write_bytes(change.path, change.data)
    except (OSError, ValueError) as error:
        return io_failure("write", change.path, error)
    return change


def _write_access(arguments: JsonObject, cwd: Path) -> Access:
    path = absolute_path(required_text(arguments, "file_path"), cwd)
    return Access(writes=(resolved_path(path),))


def _shown(planned: Change | ToolResult) -> tuple[FileDiff, ...]:
    return () if isinstance(planned, ToolResult) else planned.diffs() or ()


def _text_of(data: bytes) -> str | None:
    """The exact text, BOM and line ends included; None for what is no UTF-8 text."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[None]:
    """Hold the file for one call: parallel edits of one file must not undo each other."""
    key = resolved_path(path)
    lock = _LOCKS.get(key)
    if lock is None:
        lock = _LOCKS[key] = anyio.Lock()
    async with lock:
        yield
