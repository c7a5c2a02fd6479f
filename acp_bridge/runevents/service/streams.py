"""Streams of events: what is asked for, and how it is written until somebody ends it."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from acp_bridge.errors import (
    EventLogResetError,
    EventServiceError,
    InvalidParamsError,
    StoreFailedError,
)
from acp_bridge.runevents.log import EventLog, Subscription
from acp_bridge.runevents.model import RunId, checked_count, checked_id
from acp_bridge.runevents.service.guard import EPOCH_HEADER, body_of
from acp_bridge.vocabulary import JsonValue

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = 15.0
"""A quiet stream says so this often; readers give up after three times as long."""

STALL_S: Final = 30.0
"""A reader that takes nothing for so long is cut; it comes back with its cursors."""

STREAMS_MAX: Final = 5_000
"""Open streams of one process, each with a socket and a bounded buffer."""

GET_RUNS_MAX: Final = 100
POST_RUNS_MAX: Final = 10_000


class Streams:
    """The open streams of a service."""

    def __init__(self, log: EventLog, *, stall_s: float = STALL_S) -> None:
        self._log = log
        self._stall_s = stall_s
        self._open: dict[anyio.CancelScope, int] = {}
        self._stopping = False

    async def from_query(self, request: Request) -> Response:
        """``GET …/stream?run_ids[]=A&since[]=12``: up to 100 runs."""
        query = request.query_params
        since: list[JsonValue] = [
            int(text) if text.isdecimal() and text.isascii() else text
            for text in query.getlist("since[]")
        ]
        run_ids: list[JsonValue] = [*query.getlist("run_ids[]")]
        return await self._answer(run_ids, since, query.get("epoch"), runs_max=GET_RUNS_MAX)

    async def from_body(self, request: Request) -> Response:
        """``POST …/stream``: the same as a JSON object, for more runs.

        With ``types`` only events of these types are sent.
        """
        body = await body_of(request)
        types = body.get("types")
        if types is not None and (
            not isinstance(types, list) or not all(isinstance(one, str) for one in types)
        ):
            raise InvalidParamsError("types must be a list of event types.", field="types")
        return await self._answer(
            body.get("run_ids"),
            body.get("since", []),
            body.get("epoch"),
            runs_max=POST_RUNS_MAX,
            types=None if types is None else frozenset(map(str, types)),
        )

    def end_all(self) -> None:
        """End every stream, and let none begin any more."""
        self._stopping = True
        for scope in list(self._open):
            scope.cancel()

    def counts(self) -> tuple[int, int]:
        """How many streams are open, and how many runs they watch in all."""
        return len(self._open), sum(self._open.values())

    async def _answer(
        self,
        run_ids: JsonValue,
        since: JsonValue,
        epoch: JsonValue,
        *,
        runs_max: int,
        types: frozenset[str] | None = None,
    ) -> Response:
        cursors = cursors_from(run_ids, since, runs_max=runs_max)
        if self._stopping or len(self._open) >= STREAMS_MAX:
            raise EventServiceError(
                "The service takes no more streams at the moment: try again.", status=503
            )
        last = await self._log.last_sequence()
        if epoch not in {None, self._log.epoch}:
            raise EventLogResetError(
                "The event log was reset since these cursors were stored: start at 0.",
                epoch=self._log.epoch,
            )
        if max(cursors.values()) > last:
            raise EventLogResetError(
                f"A cursor is ahead of the log, which ends at {last}: start at 0.",
                epoch=self._log.epoch,
            )
        return _StreamResponse(self, cursors, types)

    @contextlib.contextmanager
    def opened(self, scope: anyio.CancelScope, runs: int) -> Iterator[None]:
        """Count a stream while it is open."""
        self._open[scope] = runs
        try:
            yield
        finally:
            del self._open[scope]

    @property
    def log(self) -> EventLog:
        """What the streams are of."""
        return self._log

    @property
    def stall_s(self) -> float:
        """How long a reader may take nothing."""
        return self._stall_s


def cursors_from(run_ids: JsonValue, since: JsonValue, *, runs_max: int) -> dict[RunId, int]:
    """Cursors by run; without ``since`` all begin at 0.

    Raises:
        InvalidParamsError: names the field at fault.
    """
    if not isinstance(run_ids, list) or not 1 <= len(run_ids) <= runs_max:
        raise InvalidParamsError(f"Name 1 to {runs_max} runs in run_ids.", field="run_ids")
    if not isinstance(since, list) or len(since) not in {0, len(run_ids)}:
        raise InvalidParamsError("Give one since for each of run_ids, or none.", field="since")
    cursors = {
        RunId(checked_id(run_id, "run_ids")): checked_count(cursor, "since")
        for run_id, cursor in zip(run_ids, since or [0] * len(run_ids), strict=True)
    }
    if len(cursors) != len(run_ids):
        raise InvalidParamsError("A run is named twice in run_ids.", field="run_ids")
    return cursors


class _StreamResponse(Response):
    """Writes the events of some runs until the reader, the service or the log ends it.

    ``types`` None: events of every type.
    """

    def __init__(
        self, streams: Streams, cursors: Mapping[RunId, int], types: frozenset[str] | None
    ) -> None:
        self._streams = streams
        self._cursors = cursors
        self._types = types
        super().__init__(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-store",
                "x-accel-buffering": "no",  # a proxy must not hold events back
                EPOCH_HEADER: streams.log.epoch,
            }
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the end. ``scope`` is the request's."""
        del scope
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        is_whole = True
        async with anyio.create_task_group() as tasks:
            with self._streams.opened(tasks.cancel_scope, len(self._cursors)):
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                with self._streams.log.subscribe(self._cursors) as subscription:
                    is_whole = await self._write(subscription, send)
            tasks.cancel_scope.cancel()
        if is_whole:
            with anyio.move_on_after(1, shield=True):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, subscription: Subscription, send: Send) -> bool:
        """Write events and heartbeats; False when the reader has stalled."""
        frames = b": open\n\n"
        while True:
            with anyio.move_on_after(self._streams.stall_s) as stalled:
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            if stalled.cancelled_caught:
                logger.warning("a stream of %s runs is cut: nobody reads it", len(self._cursors))
                return False
            frames = b": quiet\n\n"
            try:
                with anyio.move_on_after(HEARTBEAT_S):
                    frames = await self._next_frames(subscription)
            except StoreFailedError as error:
                logger.warning("a stream of %s runs ends: %s", len(self._cursors), error.details)
                return True

    async def _next_frames(self, subscription: Subscription) -> bytes:
        """The next events that are wanted, at least one."""
        while True:
            events = await subscription.next()
            if self._types is not None:
                events = [event for event in events if event.is_of(self._types)]
            if events:
                return b"".join([event.frame() for event in events])


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
