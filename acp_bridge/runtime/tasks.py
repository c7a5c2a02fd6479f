"""A runtime as an async context manager: its sessions live in its task group and end before it."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
import anyio.abc


class TaskHolder:
    """Enter it to have a `group`; leaving it closes what is open and cancels what is left."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._stack = AsyncExitStack()

    @property
    def group(self) -> anyio.abc.TaskGroup:
        """Owner of every task of this runtime."""
        assert self._group is not None, "use the runtime as a context manager"
        return self._group

    async def surround(self, context: AbstractAsyncContextManager[None]) -> None:
        """Enter something before the group; it is left after it."""
        await self._stack.enter_async_context(context)

    def begin(self) -> None:
        """What starts as soon as there is a group."""

    async def close(self) -> None:
        """Close what is open; bounded."""

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.close()
        self.group.cancel_scope.cancel()  # what is left has had its time
        return await self._stack.__aexit__(kind, fault, traceback)
