"""``acp-bridge``: serve ACP on stdin and stdout. What an editor starts.

``initialize`` is answered before the heavy rooms are imported: an editor sees the agent alive in
a fraction of the time, and the imports happen while it thinks about what to ask next.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from acp_bridge.cli.command import own_command
from acp_bridge.errors import BridgeError, ConfigError, InvalidParamsError
from acp_bridge.wire.framing import take_first_line
from acp_bridge.wire.messages import Request, parse, result_frame
from acp_bridge.wire.stdio import Stdio, claim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Protocol, TypeAlias

    from acp_bridge.acp.hello import ClientTraits
    from acp_bridge.config import Settings
    from acp_bridge.wire.endpoint import ByteStream
    from acp_bridge.wire.lifetime import Ending
    from acp_bridge.wire.trace import Buffer

    class Stoppable(Protocol):
        """What serves a connection."""

        def stop(self, reason: str) -> None:
            """End as if the client were gone; the reason is for the log."""

    Started: TypeAlias = Callable[[Stoppable], None]
    Serve: TypeAlias = Callable[[ByteStream, Settings, Started], Awaitable[None]]
    """Serves a connection to its end; tells what serves it, so that it can be stopped."""

EXIT_USAGE = 2
EXIT_FAILED = 1


class Greeting(NamedTuple):
    """The first line, if it was a good ``initialize``: our answer, and what is left to read."""

    answer: bytes
    traits: ClientTraits | None
    rest: bytes


def run(flags: Mapping[str, str | None]) -> int:
    """Serve until the client is gone; the exit code."""
    begin()
    try:
        stdio = claim()
        received = stdio.read_first_line()
        greeting = greet(received, own_command(flags.get("home"), "setup"))
        if greeting.answer:
            stdio.write_now(greeting.answer)
    except OSError:
        return 0  # whoever started us is gone already

    async def serve(stream: ByteStream, settings: Settings, started: Started) -> None:
        from acp_bridge.cli.assemble import serve

        await serve(
            stream, settings, initial=greeting.rest, traits=greeting.traits, started=started
        )

    return hold(stdio, flags, serve, before=(received, greeting.answer))


def begin() -> None:
    """What a serving process does first; `hold` switches the collector on again."""
    import gc
    import signal

    gc.disable()  # nothing that an import makes is garbage
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # Until the event loop takes their place: a signal in an import ends us without a
        # traceback, also where whoever started us ignores it (nohup, a shell's background).
        signal.signal(number, signal.SIG_DFL)


def hold(
    stdio: Stdio,
    flags: Mapping[str, str | None],
    serve: Serve,
    *,
    before: tuple[bytes, bytes] = (b"", b""),
    new_buffer: Callable[[], Buffer] | None = None,
) -> int:
    """Serve a connection until it or this process must end; the exit code.

    ``before`` is what was received and answered already, for the trace; ``new_buffer`` makes what
    cuts its messages, if they are no lines.
    """
    import os

    from acp_bridge.config import resolve

    try:
        settings, _ = resolve(flags, os.environ)
        start_log(settings)
        return _serve(stdio, settings, serve, before, new_buffer)
    except BridgeError as error:
        _say(error.details)
        return EXIT_USAGE
    except OSError as error:
        _say(f"the system refused to go on: {error}")
        return EXIT_FAILED


def _say(sentence: str) -> None:
    if sys.stderr is not None:  # somebody may have closed it
        sys.stderr.write(f"acp-bridge: {sentence}\n")


def greet(received: bytes, setup_command: Sequence[str]) -> Greeting:
    """Answer ``initialize`` if that is how the input starts; anything else is left to the endpoint.

    Pure.
    """
    line, rest = take_first_line(received)
    message = parse(line) if line else None
    if isinstance(message, Request) and message.method == "initialize":
        from acp_bridge import __version__
        from acp_bridge.acp.hello import answer_initialize, client_traits

        try:
            result = answer_initialize(
                message.params, version=__version__, setup_command=setup_command
            )
        except InvalidParamsError:
            pass  # the endpoint answers with the error, as for every other request
        else:
            frame = result_frame(message.id, result)
            return Greeting(frame, client_traits(message.params), rest)
    return Greeting(b"", None, received)


def _serve(
    stdio: Stdio,
    settings: Settings,
    serve: Serve,
    before: tuple[bytes, bytes],
    new_buffer: Callable[[], Buffer] | None,
) -> int:
    import gc
    import os
    import signal

    import anyio

    from acp_bridge.wire.lifetime import end_of_life

    exit_code = 0
    failure: BridgeError | None = None

    async def main() -> None:
        nonlocal failure
        stream: ByteStream = stdio.stream()
        if settings.trace is not None:
            from acp_bridge.wire.framing import LineBuffer
            from acp_bridge.wire.trace import TracedStream

            try:
                cut = new_buffer or LineBuffer
                traced = TracedStream(stream, settings.trace, os.environ, cut)
            except OSError as error:
                raise ConfigError(
                    f"The trace file {settings.trace} cannot be written: {_why(error)}."
                ) from error
            traced.note("in", before[0])
            traced.note("out", before[1])
            stream = traced

        async with anyio.create_task_group() as group:

            def started(server: Stoppable) -> None:
                # What is loaded by now stays: the collector need not walk it again and again.
                gc.freeze()
                gc.enable()

                def on_end(ending: Ending) -> None:
                    nonlocal exit_code
                    exit_code = ending.exit_code
                    server.stop(ending.reason)

                async def watch() -> None:
                    await end_of_life(
                        on_end, parent_pid=stdio.parent_pid, before_exit=_kill_commands
                    )

                group.start_soon(watch)

            try:
                await serve(stream, settings, started)
            except BridgeError as error:
                failure = error  # kept, since a task group would wrap it
            group.cancel_scope.cancel()

    try:
        anyio.run(main)
    except KeyboardInterrupt:
        # Python's own handler stands for an instant between the event loop's and the one that
        # `begin` set. Everything is cleaned up by then: the loop's handler guards that.
        return 128 + signal.SIGINT
    if failure is not None:
        raise failure
    return exit_code


def _kill_commands() -> None:
    """At a second signal nobody waits for clean-up, but no command may be left behind (R027)."""
    from acp_bridge.harness.tools.processes import kill_all_now

    kill_all_now()


def start_log(settings: Settings) -> None:
    """Log names and ids to a rotating file, and to stderr only on request."""
    import logging
    from logging.handlers import RotatingFileHandler

    folder = settings.home / "logs"
    try:
        # For their owner only: sessions and keys lie beside the logs.
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {settings.home} cannot be used: {_why(error)}. Choose another one with "
            "--home."
        ) from error
    handlers: list[logging.Handler] = [
        RotatingFileHandler(
            folder / "acp-bridge.log",
            maxBytes=2_000_000,
            backupCount=3,
            encoding="utf-8",
            errors="backslashreplace",  # of file names that are no UTF-8
            delay=True,
        )
    ]
    if settings.log_stderr:
        handlers.append(logging.StreamHandler())
    logging.basicConfig(
        level=logging.INFO,
        handlers=handlers,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
    )
    # A full disk must not turn a log line into noise on stderr.
    logging.raiseExceptions = settings.log_stderr


def _why(error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return "it is no folder"
    return (error.strerror or type(error).__name__).lower()
