"""A command in a terminal of the client: made, waited for, read, and released once in every case.

A terminal is released exactly once whatever goes wrong (field report R103): it timed out, it was
cancelled, the client failed one of the calls, never answers, or is gone. Nothing waits for the
answers to kill and release, so neither can fail or hang. `ClientCalls.create_terminal` releases one
that the client makes after we stopped waiting for it.
"""

import logging
import shlex
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import attrs

from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.types import (
    CreateTerminalRequest,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)
from acp_bridge.errors import PeerError
from acp_bridge.ports import ClientCommand, CommandEnd

logger = logging.getLogger(__name__)

T = TypeVar("T")

CREATE_WAIT_S = 15.0
"""For a terminal: a remote one may have to be connected first."""

KILLED_WAIT_S = 2.0
"""For the exit of a command that was killed."""

OUTPUT_WAIT_S = 10.0
"""For the output: a megabyte over a slow line."""

CANCELLED_WAIT_S = 0.5
"""For the output of a command that the user stopped: they wait for us."""


@attrs.frozen
class ClientTerminals:
    """Runs the commands of one session.

    ``joins_arguments``: the client joins ``command`` and ``args`` with spaces for a shell of its
    own, so it gets one prepared line.
    """

    calls: ClientCalls
    session_id: str
    joins_arguments: bool = False

    async def run(self, command: ClientCommand) -> CommandEnd:
        """Run it to its end.

        Raises:
            OSError: the client could not make a terminal.
            PeerGoneError: the connection ended first.
        """
        request = create_request(command, self.session_id, joined=self.joins_arguments)
        terminal_id = await _answer(
            "make a terminal", CREATE_WAIT_S, lambda: self.calls.create_terminal(request)
        )
        try:
            command.started(terminal_id)
            return await self._follow(command, terminal_id)
        except anyio.get_cancelled_exc_class():
            self.calls.kill_terminal(self.session_id, terminal_id)
            await self._last_words(command, terminal_id)
            raise
        finally:
            self.calls.release_terminal(self.session_id, terminal_id)

    async def _follow(self, command: ClientCommand, terminal_id: str) -> CommandEnd:
        timed_out = False
        faults: list[str] = []
        end: WaitForTerminalExitResponse | TerminalExitStatus | None = None
        try:
            with anyio.move_on_after(command.timeout_s) as limit:
                end = await self._exit(terminal_id)
            timed_out = limit.cancelled_caught
        except OSError as error:
            faults.append(str(error))
        if end is None:
            self.calls.kill_terminal(self.session_id, terminal_id)
        if timed_out:
            end = await self._exit_of_killed(terminal_id)
        said = TerminalOutputResponse(output="", truncated=False)
        try:
            said = await self._output(terminal_id, OUTPUT_WAIT_S)
        except OSError as error:
            faults.append(str(error))
        if end is None and said.exit_status is not None:
            end = said.exit_status  # a client that cannot wait may know it all the same
            faults.clear()
        return CommandEnd(
            output=said.output,
            is_cut=said.truncated,
            exit_code=None if end is None else end.exit_code,
            signal=None if end is None else end.signal or None,
            timed_out=timed_out,
            fault=faults[0] if faults else None,
        )

    async def _exit(self, terminal_id: str) -> WaitForTerminalExitResponse:
        try:
            return await self.calls.wait_for_terminal_exit(self.session_id, terminal_id)
        except PeerError as error:
            raise _fault("wait for the command", error) from error

    async def _exit_of_killed(self, terminal_id: str) -> WaitForTerminalExitResponse | None:
        with anyio.move_on_after(KILLED_WAIT_S):
            try:
                return await self._exit(terminal_id)
            except OSError as error:
                logger.warning("session %s: %s", self.session_id, error)
        return None

    async def _output(self, terminal_id: str, within_s: float) -> TerminalOutputResponse:
        return await _answer(
            "give the command's output",
            within_s,
            lambda: self.calls.terminal_output(self.session_id, terminal_id),
        )

    async def _last_words(self, command: ClientCommand, terminal_id: str) -> None:
        """Tell the output so far, if the client gives it at once."""
        with anyio.CancelScope(shield=True):
            try:
                said = await self._output(terminal_id, CANCELLED_WAIT_S)
            except Exception as error:  # noqa: BLE001  # the cancel is what counts
                logger.info("session %s: no last output: %s", self.session_id, error)
            else:
                command.said(said.output)


def create_request(
    command: ClientCommand, session_id: str, *, joined: bool
) -> CreateTerminalRequest:
    """The command for the client: its line is never the name of a program (field report R105)."""
    program, *arguments = command.shell, "-c", command.line
    if joined:
        program, arguments = shlex.join([program, *arguments]), []
    return CreateTerminalRequest(
        session_id=session_id,
        command=program,
        args=arguments,
        cwd=str(command.cwd),
        output_byte_limit=command.output_bytes_max,
    )


async def _answer(doing: str, within_s: float, ask: Callable[[], Awaitable[T]]) -> T:
    try:
        with anyio.move_on_after(within_s):
            return await ask()
    except PeerError as error:
        raise _fault(doing, error) from error
    raise OSError(f"the client did not {doing} within {within_s:g} s")


def _fault(doing: str, error: PeerError) -> OSError:
    return OSError(f"the client could not {doing}: {error.details.removesuffix('.')}")
