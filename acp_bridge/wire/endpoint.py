"""One JSON-RPC connection: pending calls of both sides, cancel scopes, one writer.

How a request lives. The reader parses a line and calls ``admit`` at once, in arrival order, before
anything runs. ``admit`` is a plain function: it may change state (so that a ``session/cancel``
written together with its prompt finds it), and gives either a finished `Reply` or an awaitable.
An awaitable gets a cancel scope, registered under the request's id before its task starts; so a
``$/cancel_request`` in the same burst is never lost. However the task ends, exactly one reply is
queued.

How bytes leave. Everything goes through one queue and one writer task, so the order in which
things are queued is the order on the wire. Queueing is synchronous. Whoever produces much calls
`Endpoint.flow` now and then, and waits there while the peer reads too slowly; the reader never
waits for that, so a cancel is read while the writer is stuck.

How it ends. End of input, a broken pipe or `Endpoint.stop`: our own requests fail with that cause,
the peer's are cancelled and awaited, what is queued is written if the peer still reads, all within
stated bounds.

Request tasks are shielded from the task group's own cancellation and ended through their own
scopes only: however the endpoint ends, a cancelled request is then told from a failed one, and
does not hang on the order in which tasks are cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from acp_bridge.errors import (
    BridgeError,
    LocalProtocolError,
    MethodNotFoundError,
    PeerError,
    PeerGoneError,
    RemoteProtocolError,
    RequestCancelledError,
)
from acp_bridge.wire import codec
from acp_bridge.wire.framing import (
    LINE_BYTES_MAX,
    LSP_HEADER_ADVICE,
    NEED_DATA,
    LineBuffer,
    Oversize,
)
from acp_bridge.wire.messages import (
    ErrorResponse,
    Invalid,
    MessageId,
    Notification,
    Request,
    Response,
    error_frame,
    notification_frame,
    parse,
    parse_oversize,
    request_frame,
    result_frame,
)
from acp_bridge.wire.writer import STREAM_ERRORS, Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from acp_bridge.vocabulary import JsonObject, JsonValue

logger = logging.getLogger(__name__)

CANCEL_REQUEST: Final = "$/cancel_request"
"""ACP v1, Cancellation: ``{"requestId": id}``, in both directions."""

QUEUED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Above this even reading stops until the peer reads.

Producers stay far below it by `Endpoint.flow`. Only the replies to a flood of requests by a peer
that reads nothing get here, and no cancel can help such a peer.
"""

REQUESTS_MAX: Final = 1024
"""Calls of the peer that may run at once; more are refused, so that memory stays flat."""

YIELD_EVERY: Final = 16
"""Messages handled before other tasks get a turn, when many are buffered."""

END_CALLS_S: Final = 3.5
"""How long cancelled calls may take to clean up at the end (a process may need killing)."""

END_WRITE_S: Final = 1.0
"""How long the last queued frames may take at the end, when the peer reads slowly or not at all."""


class ByteStream(Protocol):
    """Both directions of a connection. Errors are OSErrors."""

    async def receive(self) -> bytes:
        """Some bytes, as they come; ``b""`` at the end of the input, and ever after."""

    async def send(self, data: bytes) -> None:
        """Write all of ``data``. Cancelled, it may have written a part."""

    async def aclose(self) -> None:
        """Close both directions; the peer sees the end. Idempotent, never waits for the peer."""


class Reply(NamedTuple):
    """The answer to a request.

    ``then`` is called right after the reply is queued, before anything else can be: what it queues
    follows the reply on the wire.
    """

    result: JsonValue
    then: Callable[[], None] | None = None


Outcome: TypeAlias = "Reply | JsonObject | None"
"""What a call's awaitable gives; None is for notifications alone (a null result is a `Reply`)."""

Admit: TypeAlias = "Callable[[Request | Notification], Reply | Awaitable[Outcome] | None]"
"""Takes each call of the peer, synchronously and in arrival order; must not block.

For a request: a `Reply` (answered at once, no task) or an awaitable that gives the result. For a
notification: None, or an awaitable. What it or the awaitable raises becomes the error reply; for a
notification it is logged, and a MethodNotFoundError is not even that.
"""


class _Waiter:
    """A request of ours that waits for its answer."""

    __slots__ = ("answer", "done", "late", "method")

    def __init__(self, method: str) -> None:
        self.method = method
        self.done = anyio.Event()
        self.answer: Response | ErrorResponse | BridgeError | None = None
        self.late: Callable[[JsonValue], None] | None = None

    def settle(self, answer: Response | ErrorResponse | BridgeError) -> None:
        self.answer = answer
        self.done.set()
        if self.late is not None:
            self.leave(self.late)

    def leave(self, late: Callable[[JsonValue], None]) -> None:
        """Nobody waits any more: ``late`` takes the result, now or when it comes."""
        self.late = late
        if isinstance(self.answer, Response):
            try:
                late(self.answer.result)
            except Exception:
                logger.exception("what takes a late answer to %s failed", self.method)


class Endpoint:
    """One end of a connection, ours. `run` serves it; the rest may be used while `run` does.

    ``peer`` is who is at the other end, as a sentence names it. ``stray`` takes lines that are no
    message, without their newline; with it they get no error reply, without it they do. All
    methods belong to the event loop's thread.
    """

    def __init__(
        self,
        stream: ByteStream,
        admit: Admit,
        *,
        line_bytes_max: int = LINE_BYTES_MAX,
        peer: str = "the client",
        stray: Callable[[bytes], None] | None = None,
    ) -> None:
        self._stream = stream
        self._admit = admit
        self._peer = peer
        self._stray = stray
        self._lines = LineBuffer(line_bytes_max)
        self._first_line = True
        self._handled = 0

        self._calls: dict[object, anyio.CancelScope] = {}
        self._calls_done = anyio.Event()
        self._waiters: dict[int, _Waiter] = {}
        self._next_id = 1

        self._writer = Writer(
            stream.send,
            lambda exc: self._end(f"Writing to {peer} failed ({_name_of(exc)}).", exc),
        )
        self._gone: PeerGoneError | None = None
        self._refused: RemoteProtocolError | None = None
        self._over = anyio.Event()

    @property
    def gone(self) -> PeerGoneError | None:
        """Why the connection ended; None while it stands."""
        return self._gone

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the writer, those of the write in progress included."""
        return self._writer.queued_bytes

    # --- what the rest of the program calls -----------------------------------------------------

    async def run(self, initial: bytes = b"") -> None:
        """Serve until the input ends, the pipe breaks, or `stop`; then clean up and close.

        ``initial`` is what was read from the stream before. May be called once.

        Raises:
            RemoteProtocolError: the peer speaks LSP; the text is for whoever started us.
        """
        codec.speed_up()
        reader = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            try:
                tasks.start_soon(self._writer.run)
                tasks.start_soon(self._read, reader, tasks, initial)
                await self._over.wait()
            finally:
                self._end("The connection was closed.")
                reader.cancel()
                with anyio.CancelScope(shield=True):
                    await self._wind_up()
                    await self._stream.aclose()
        if self._refused is not None:
            raise self._refused

    def stop(self, cause: str) -> None:
        """End the connection; ``cause`` is a sentence for the log and for our own waiters."""
        self._end(cause)

    def notify(self, method: str, params: object) -> None:
        """Queue a notification; after the end it goes nowhere.

        Raises:
            LocalProtocolError: ``params`` cannot be written as JSON.
        """
        self._writer.enqueue(notification_frame(method, params))

    async def flow(self) -> None:
        """Wait while more than `writer.FLOW_BYTES_MAX` bytes are queued; else return at once."""
        await self._writer.flow()

    def post(self, method: str, params: object) -> None:
        """Ask the peer for something and wait for nothing: its answer is dropped.

        Raises:
            LocalProtocolError: ``params`` cannot be written as JSON.
        """
        message_id, self._next_id = self._next_id, self._next_id + 1
        self._writer.enqueue(request_frame(message_id, method, params))

    async def request(
        self, method: str, params: object, *, late: Callable[[JsonValue], None] | None = None
    ) -> JsonValue:
        """Ask the peer and wait for its answer; there is no time limit but the caller's.

        Cancelled, it forgets the id and tells the peer, and a late answer is dropped. Not so with
        ``late``: the peer is told nothing, and ``late`` takes a result whenever it comes.

        Raises:
            PeerError: the peer refused, or its answer was malformed.
            PeerGoneError: the connection ended first; the text holds why.
            LocalProtocolError: ``params`` cannot be written as JSON.
        """
        await checkpoint_if_cancelled()
        if self._gone is not None:
            raise _copy_of(self._gone)
        message_id, self._next_id = self._next_id, self._next_id + 1
        frame = request_frame(message_id, method, params)
        waiter = self._waiters[message_id] = _Waiter(method)
        self._writer.enqueue(frame)
        try:
            await waiter.done.wait()
        except BaseException:
            if late is not None:
                waiter.leave(late)
            elif self._waiters.pop(message_id, None) is not None:
                # Courtesy only: many clients do not know this method, so nothing waits for it.
                self.notify(CANCEL_REQUEST, {"requestId": message_id})
            raise
        match waiter.answer:
            case Response(result=result):
                return result
            case ErrorResponse(code=code, message=message):
                said = message if len(message) <= 200 else message[:199] + "…"  # noqa: PLR2004
                raise PeerError(f"{_capital(self._peer)} refused {method}: {said}", code=code)
            case PeerGoneError() as gone:
                raise _copy_of(gone)
            case answer:
                assert isinstance(answer, BridgeError)
                raise answer

    # --- reading --------------------------------------------------------------------------------

    async def _read(self, scope: anyio.CancelScope, tasks: TaskGroup, data: bytes) -> None:
        with scope:
            try:
                if data:
                    self._lines.receive(data)
                    await self._take_lines(tasks)
                while data := await self._stream.receive():
                    self._lines.receive(data)
                    await self._take_lines(tasks)
                self._lines.receive_eof()
                await self._take_lines(tasks)
                self._end(f"{_capital(self._peer)} closed its end of the connection.")
            except STREAM_ERRORS as exc:
                self._end(f"Reading from {self._peer} failed ({_name_of(exc)}).", exc)

    async def _take_lines(self, tasks: TaskGroup) -> None:
        # A stream that always has data would never let other tasks run, and nor would a buffer
        # full of lines.
        await checkpoint()
        while (line := self._lines.next_line()) is not NEED_DATA:
            self._take_line(line, tasks)
            self._handled += 1
            if self._handled % YIELD_EVERY == 0:
                await checkpoint()
            if self._writer.queued_bytes > QUEUED_BYTES_MAX:
                await self._writer.flow()

    def _take_line(self, line: bytes | Oversize, tasks: TaskGroup) -> None:
        message = parse_oversize(line) if isinstance(line, Oversize) else parse(line)
        match message:
            case Request():
                self._take_request(message, tasks)
            case Notification(method="$/cancel_request", params=params):
                self._cancel_call(params)
            case Notification():
                self._take_notification(message, tasks)
            case Response() | ErrorResponse():
                self._settle(message.id, message)
            case Invalid(answers=None) if self._stray is not None:
                self._stray(line.head if isinstance(line, Oversize) else line)
            case Invalid():
                self._take_invalid(message)
        self._first_line = False

    def _take_request(self, request: Request, tasks: TaskGroup) -> None:
        # A null id names nothing, so it cannot be repeated, and cannot be cancelled.
        key = object() if request.id is None else request.id
        if key in self._calls:
            self._reply_error(request.id, _wrong("A request with this id is still running."))
            return
        if len(self._calls) >= REQUESTS_MAX:
            logger.warning("refused request %r: %d are running", request.id, REQUESTS_MAX)
            self._reply_error(request.id, LocalProtocolError("Too many requests in flight."))
            return
        try:
            work = self._admit(request)
        except Exception as exc:  # noqa: BLE001  # the request boundary: any failure is a reply
            self._reply_error(request.id, exc)
            return
        if work is None or isinstance(work, Reply):
            self._reply(request.id, work)
            return
        scope = self._calls[key] = anyio.CancelScope(shield=True)
        tasks.start_soon(self._serve, request, work, key, scope)

    async def _serve(
        self, request: Request, work: Awaitable[Outcome], key: object, scope: anyio.CancelScope
    ) -> None:
        outcome: Outcome = None
        failure: BaseException | None = None
        try:
            with scope:
                outcome = await work
        except Exception as exc:  # noqa: BLE001  # the request boundary: any failure is a reply
            failure = exc
        except anyio.get_cancelled_exc_class() as exc:
            # Not ours, or the scope had taken it: a library let its own cancellation escape, which
            # would end the whole connection.
            failure = exc
        self._call_ended(key)
        if outcome is not None:
            self._reply(request.id, outcome)
        elif scope.cancel_called:
            if failure is not None:
                logger.info("request %r failed while cancelled", request.id, exc_info=failure)
            self._reply_error(request.id, RequestCancelledError())
        elif failure is not None:
            self._reply_error(request.id, failure)
        else:
            self._reply(request.id, None)

    def _take_notification(self, notification: Notification, tasks: TaskGroup) -> None:
        try:
            work = self._admit(notification)
        except MethodNotFoundError:
            return  # JSON-RPC 2.0, section 4.1: a notification is never answered (R017)
        except Exception:
            logger.exception("a notification failed")
            return
        if work is None or isinstance(work, Reply):
            return
        if len(self._calls) >= REQUESTS_MAX:
            logger.warning("dropped a notification: %d calls are running", REQUESTS_MAX)
            if isinstance(work, Coroutine):
                work.close()
            return
        key = object()
        scope = self._calls[key] = anyio.CancelScope(shield=True)
        tasks.start_soon(self._serve_notification, work, key, scope)

    async def _serve_notification(
        self, work: Awaitable[Outcome], key: object, scope: anyio.CancelScope
    ) -> None:
        try:
            with scope:
                await work
        except (Exception, anyio.get_cancelled_exc_class()):
            logger.exception("a notification failed")
        self._call_ended(key)

    def _call_ended(self, key: object) -> None:
        del self._calls[key]
        if not self._calls:
            self._calls_done.set()

    def _cancel_call(self, params: object) -> None:
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request_id, str | int) and not isinstance(request_id, bool):
            scope = self._calls.get(request_id)
            if scope is not None:
                scope.cancel()

    def _settle(self, message_id: MessageId, answer: Response | ErrorResponse | PeerError) -> bool:
        waiter = self._waiters.pop(message_id, None) if isinstance(message_id, int) else None
        if waiter is None:
            logger.info("dropped an answer: no request of ours waits under id %.100r", message_id)
            return False
        waiter.settle(answer)
        return True

    def _take_invalid(self, invalid: Invalid) -> None:
        if invalid.answers is not None:
            details = f"{_capital(self._peer)} gave a malformed answer. {invalid.error.details}"
            self._settle(invalid.answers, PeerError(details, code=invalid.error.code))
            return
        self._reply_error(invalid.id, invalid.error)
        if self._first_line and invalid.error.details == LSP_HEADER_ADVICE:
            self._refused = invalid.error
            self._end(LSP_HEADER_ADVICE)

    # --- replies --------------------------------------------------------------------------------

    def _reply(self, message_id: MessageId, outcome: Outcome) -> None:
        if outcome is None:
            self._reply_error(message_id, LocalProtocolError("The request gave no result."))
            return
        result, then = outcome if isinstance(outcome, Reply) else (outcome, None)
        try:
            frame = result_frame(message_id, result)
        except LocalProtocolError as exc:
            logger.exception("the result of request %r is no JSON", message_id)
            self._reply_error(message_id, exc)
            return
        self._writer.enqueue(frame)
        if then is not None:
            try:
                then()
            except Exception:
                logger.exception("what follows the reply to request %r failed", message_id)

    def _reply_error(self, message_id: MessageId, exc: BaseException) -> None:
        self._writer.enqueue(error_frame(message_id, exc))

    # --- the end --------------------------------------------------------------------------------

    def _end(self, cause: str, exc: BaseException | None = None) -> None:
        """Take the first cause; `run` does the rest."""
        if self._gone is not None:
            return
        logger.info("connection over: %s", cause)
        self._gone = PeerGoneError(cause)
        self._gone.__cause__ = exc
        self._writer.release()
        self._over.set()
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.settle(self._gone)

    async def _wind_up(self) -> None:
        """Cancel the peer's calls, wait for them and for the writer, each within its bound."""
        for scope in list(self._calls.values()):
            scope.cancel()
        if self._calls:
            self._calls_done = anyio.Event()
            with anyio.move_on_after(END_CALLS_S):
                await self._calls_done.wait()
        for key in self._calls:
            logger.error("request %.100r does not end", key)
        await self._writer.finish(END_WRITE_S)


def _wrong(details: str) -> RemoteProtocolError:
    return RemoteProtocolError(details, code=-32600)


def _copy_of(gone: PeerGoneError) -> PeerGoneError:
    # Each waiter raises its own: one exception raised in several tasks mixes their tracebacks.
    copy = PeerGoneError(gone.details)
    copy.__cause__ = gone.__cause__
    return copy


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _name_of(exc: BaseException) -> str:
    return type(exc).__name__
