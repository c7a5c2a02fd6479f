"""What waits in a session's memory to be run: a prompt, a command, or a look at the log's inbox."""

from typing import TYPE_CHECKING, TypeAlias

import anyio
import attrs

from acp_bridge.vocabulary import Command, Prompt, TurnEnd

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen(slots=True)
class Inbox:
    """Run what the log's inbox holds; ``title`` names the conversation if it has no name yet."""

    title: str = ""


Work: TypeAlias = Prompt | Command | Inbox


class WaitingPrompt:
    """Work that was admitted; implements `ports.PendingTurn`.

    ``stops`` is set while it runs: it ends the subagents that work for it. Whoever runs it says so
    with `begin`.
    """

    def __init__(self, prompt: Work) -> None:
        self.prompt = prompt
        self.scope = anyio.CancelScope()
        self.stops: Callable[[], None] | None = None
        self._begun = False
        self._end: TurnEnd | None = None
        self._done = anyio.Event()

    @property
    def runs(self) -> bool:
        """Whether it has begun and is not over."""
        return self._begun and self._end is None

    def begin(self) -> None:
        """It runs from now on, until it is settled."""
        self._begun = True

    def settle(self, end: TurnEnd) -> None:
        """The prompt's turn is over."""
        self._end = end
        self._done.set()

    def withdraw(self) -> None:
        """End this prompt's turn, or never start it. The others stay."""
        if self.stops is not None:
            self.stops()  # children first
        self.scope.cancel()

    async def ended(self) -> TurnEnd:
        """Wait for the end of this prompt's turn."""
        await self._done.wait()
        assert self._end is not None
        return self._end
