"""A folder, an editor and a set of tools to drive in tests."""

import os
import re
from pathlib import Path

import anyio
import anyio.lowlevel

from acp_bridge.harness.tools import DiskFiles, builtin_tools, check_arguments
from acp_bridge.ports import Tool, ToolContext, ToolFiles, ToolResult
from acp_bridge.vocabulary import FileDiff, JsonObject, JsonValue


class World:
    """The tools in a working folder of their own; ``told`` is the live output so far."""

    def __init__(self, folder: Path, files: ToolFiles | None = None) -> None:
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.spill = folder / "spill"
        self.told: list[str] = []
        self._heard = anyio.Event()
        self.files = files or DiskFiles()
        self.env: dict[str, str] = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools()}

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            cwd=self.cwd,
            files=self.files,
            emit=self._hear,
            spill_dir=self.spill,
            env=self.env,
            flow=anyio.lowlevel.checkpoint,
        )

    def _hear(self, text: str) -> None:
        self.told.append(text)
        self._heard.set()

    async def heard(self, pattern: str) -> list[str]:
        """Every match of ``pattern`` in the live output, once there is one."""
        while not (found := re.findall(pattern, "".join(self.told))):
            self._heard = anyio.Event()
            await self._heard.wait()
        return found

    async def run(self, name: str, /, **arguments: JsonValue) -> ToolResult:
        tool = self.tools[name]
        return check_arguments(tool.parameters, arguments) or await tool.run(
            arguments, self.context
        )

    async def preview(self, name: str, /, **arguments: JsonValue) -> tuple[FileDiff, ...]:
        return await self.tools[name].preview(arguments, self.context)

    async def bash(self, command: str, **more: JsonValue) -> ToolResult:
        return await self.run("bash", command=command, description="test", **more)

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def meta_of(result: ToolResult) -> JsonObject:
    assert result.meta is not None
    return result.meta


class EditorFiles:
    """A fake editor: texts that differ from the disk, as one with unsaved changes has."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self.texts = texts

    async def read_bytes(self, path: Path) -> bytes:
        if path not in self.texts:
            raise FileNotFoundError(2, "no such file", str(path))
        return self.texts[path].encode()

    async def write_bytes(self, path: Path, data: bytes) -> None:
        self.texts[path] = data.decode()
