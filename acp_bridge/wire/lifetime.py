"""The signs that this process must end: signals, and the death of whoever started it.

Exit codes: 0 at the end of the input and when the parent is gone, 128 + n for signal n.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

PARENT_POLL_S: Final = 1.0
"""How often the parent is looked at: its death is noticed within 2 s, at no measurable cost."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ending(NamedTuple):
    """Why to end: a sentence for the log, and the exit code that belongs to it."""

    reason: str
    exit_code: int


def _nothing() -> None:
    pass


async def end_of_life(
    on_end: Callable[[Ending], None],
    *,
    parent_pid: int | None,
    before_exit: Callable[[], None] = _nothing,
) -> None:
    """Call ``on_end`` at the first sign, once; run this beside the work, and cancel it last.

    It goes on to guard the clean-up: a second signal calls ``before_exit`` (which should kill what
    must not survive, and must not block) and exits at once. ``parent_pid`` is the parent as it was
    at the start (`stdio.Stdio.parent_pid`), None: we outlive it. Signals that are ignored stay so.
    The signals' handlers of before are back when it ends.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        await _watch(on_end, parent_pid, before_exit)
    finally:
        # asyncio leaves Python's own handler of SIGINT behind, which raises KeyboardInterrupt
        # wherever the event loop is in its last moments.
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watch(
    on_end: Callable[[Ending], None], parent_pid: int | None, before_exit: Callable[[], None]
) -> None:
    ended = False
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heard) as signals:
        while True:
            number = None
            with anyio.move_on_after(PARENT_POLL_S):
                number = await anext(signals)
            if number is not None:
                exit_code = 128 + number
                if ended:
                    before_exit()
                    os._exit(exit_code)
                ended = True
                on_end(Ending(f"Stopped by {signal.Signals(number).name}.", exit_code))
            elif not ended and parent_pid not in {None, os.getppid()}:
                ended = True
                on_end(Ending("The process that started this one is gone.", 0))
