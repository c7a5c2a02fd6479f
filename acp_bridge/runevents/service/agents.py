"""What homes and workers ask for: events, messages, runs, claims, leases, rows, asks, cancel."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from acp_bridge.errors import InvalidParamsError, RunNotFoundError
from acp_bridge.runevents.log import EventLog
from acp_bridge.runevents.model import (
    ANSWER,
    ASK,
    CANCEL,
    CHILD_STARTED,
    NEW_MESSAGE,
    ROWS,
    RUN_CANCELLED,
    RUN_ERRORED,
    SETTLEMENTS,
    EventDraft,
    RunId,
    checked_count,
    checked_id,
    draft_from_json,
)
from acp_bridge.runevents.runs import (
    RUN_STATES,
    Run,
    RunState,
    check_execution,
    claimed,
    has_lapsed,
    leased,
    registered,
    run_json,
    settled,
    withdrawal,
    withdrawn,
)
from acp_bridge.runevents.service.guard import body_of
from acp_bridge.vocabulary import JsonObject, JsonValue

logger = logging.getLogger(__name__)

EVENTS_MAX: Final = 256
"""Events in one request."""

RUNS_MAX: Final = 1_000
"""Runs in one answer."""

HOLD_S_MAX: Final = 25
"""How long a request for runs may wait for the first one: as long as an ask does."""

LOOK_S: Final = 1.0
"""How often a request that waits for runs looks by itself: another service on the same log may have
registered one."""

ASK_HOLD_S: Final = 25.0
"""How long an ask waits in one request: below what proxies allow. Whoever asks again waits on."""

EXECUTION_ID_CHARS_MAX: Final = 100

LEASES_MAX: Final = 10_000
"""Runs that workers can have at a time and whose leases are looked after."""

LAPSED: Final = "The worker stopped renewing its lease. The child can be continued."


@attrs.frozen
class Clock:
    """``now_ms`` is milliseconds since the epoch, ``iso`` the same as an event has it."""

    now_ms: Callable[[], int]
    iso: Callable[[], str]


class Agents:
    """The endpoints for homes and workers over one log."""

    def __init__(self, log: EventLog, clock: Clock, *, ask_hold_s: float = ASK_HOLD_S) -> None:
        self._log = log
        self._clock = clock
        self._ask_hold_s = ask_hold_s
        self._arrived = anyio.Event()
        """Set and replaced when a run is registered here."""
        self._holds: set[anyio.CancelScope] = set()
        """Of the requests that wait for something."""
        self._is_stopping = False

    def holds(self) -> int:
        """How many requests wait."""
        return len(self._holds)

    def end_holds(self) -> None:
        """Let what waits be answered with what there is, and nothing wait any more."""
        self._is_stopping = True
        for scope in self._holds:
            scope.cancel()

    @contextmanager
    def _held(self, hold_s: float) -> Iterator[None]:
        """Wait in here: at most ``hold_s`` seconds, and not beyond the service's end."""
        with anyio.move_on_after(0 if self._is_stopping else hold_s) as scope:
            self._holds.add(scope)
            try:
                yield
            finally:
                self._holds.discard(scope)

    async def publish(self, request: Request) -> Response:
        """``POST /v1/agent/events/{run}``: one event, or ``{"events": […]}``, all or none."""
        body = await body_of(request)
        items = body.get("events", [body])
        if not isinstance(items, list) or not 1 <= len(items) <= EVENTS_MAX:
            raise InvalidParamsError(f"Send 1 to {EVENTS_MAX} events.", field="events")
        run_id, now = _run_id(request), self._clock.iso()
        drafts = [draft_from_json(item, run_id=run_id, now=now) for item in items]
        return JSONResponse({"sequences": await self._append_of_run(run_id, drafts)})

    async def message(self, request: Request) -> Response:
        """``POST /v1/agent/messages``: a message to the run ``run_id`` from ``ref_id``."""
        body = await body_of(request)
        item: JsonObject = {**body, "event_type": NEW_MESSAGE}
        return await self._appended(draft_from_json(item, now=self._clock.iso()))

    async def register(self, request: Request) -> Response:
        """``POST /v1/agent/runs``: ``run_id``, ``parent_id``, ``task`` and ``task_id``.

        The parent is told when the registration is durable, and once.
        """
        body = await body_of(request)
        run_id = RunId(checked_id(body.get("run_id"), "run_id"))
        parent_id = _optional(body, "parent_id")
        task, task_id = body.get("task"), _optional(body, "task_id")
        if not (task is None or isinstance(task, dict)) or (task is None) != (task_id is None):
            raise InvalidParamsError(
                "Send a task as an object together with its task_id, or neither.", field="task"
            )
        parent = None if parent_id is None else RunId(parent_id)
        if parent is not None and await self._log.run(parent) is None:
            raise RunNotFoundError(parent)

        def change(known: Run | None) -> Run:
            return registered(known, run_id=run_id, parent_id=parent, task=task, task_id=task_id)

        run = await self._log.change_run(run_id, change)
        arrived, self._arrived = self._arrived, anyio.Event()
        arrived.set()
        if parent is not None:
            event_id = f"child:{run_id}"
            await self._log.append([self._draft(CHILD_STARTED, parent, event_id, ref_id=run_id)])
        return JSONResponse(run_json(run))

    async def show_run(self, request: Request) -> Response:
        """``GET /v1/agent/runs/{run}``: the run, and ``children``."""
        run_id = _run_id(request)
        run = await self._log.run(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        return JSONResponse({**run_json(run), "children": await self._log.children(run_id)})

    async def list_runs(self, request: Request) -> Response:
        """``GET /v1/agent/runs?state=waiting``: at most ``limit``, those longest in it first.

        While there is none the request waits up to ``hold_s`` seconds for the first. What a run is
        to do is left out: who claims it gets it.
        """
        state = request.query_params.get("state", "waiting")
        known = next((one for one in RUN_STATES if one == state), None)
        if known is None:
            raise InvalidParamsError(
                f"state must be one of {', '.join(RUN_STATES)}.", field="state"
            )
        limit = max(1, _query_count(request, "limit", default=RUNS_MAX, most=RUNS_MAX))
        hold_s = _query_count(request, "hold_s", default=0, most=HOLD_S_MAX)
        runs = await self._runs_in(known, limit=limit, hold_s=hold_s)
        return JSONResponse({"runs": [run_json(attrs.evolve(run, task=None)) for run in runs]})

    async def _runs_in(self, state: RunState, *, limit: int, hold_s: float) -> list[Run]:
        arrived = self._arrived
        runs = await self._log.runs_in(state, limit)
        with self._held(hold_s):
            while hold_s and not runs:
                with anyio.move_on_after(LOOK_S):
                    await arrived.wait()
                arrived = self._arrived
                runs = await self._log.runs_in(state, limit)
        return runs

    async def claim(self, request: Request) -> Response:
        """``POST …/claim``: ``worker`` and an ``execution_id`` of its own making take the run."""
        body = await body_of(request)
        worker = checked_id(body.get("worker"), "worker")
        execution_id = _execution_id(body)
        now_ms = self._clock.now_ms()
        return await self._changed(
            request,
            lambda run: claimed(run, worker=worker, execution_id=execution_id, now_ms=now_ms),
        )

    async def lease(self, request: Request) -> Response:
        """``POST …/lease``: the execution goes on; 15 s from now."""
        execution_id = _execution_id(await body_of(request))
        now_ms = self._clock.now_ms()
        return await self._changed(
            request, lambda run: leased(run, execution_id=execution_id, now_ms=now_ms)
        )

    async def rows(self, request: Request) -> Response:
        """``POST …/rows``: ``rows`` of the child's log, for its home to write."""
        body = await body_of(request)
        rows = body.get("rows")
        if not isinstance(rows, list) or not rows:
            raise InvalidParamsError("rows must be a list with something in it.", field="rows")
        return await self._told_by_worker(request, body, ROWS, {"rows": rows})

    async def ask(self, request: Request) -> Response:
        """``POST …/ask``: ask the home's user; ``{"answer": …}``, null while there is none.

        The same ``event_id`` asks again for the answer to the same question.
        """
        body = await body_of(request)
        payload = body.get("payload")
        if not isinstance(payload, dict):
            raise InvalidParamsError("payload must be a JSON object.", field="payload")
        draft = await self._workers_draft(request, body, ASK, payload)
        (sequence,) = await self._log.append([draft])
        answer: JsonValue = None
        with self._held(self._ask_hold_s):
            answer = await self._answer_to(draft, sequence)
        return JSONResponse({"answer": answer})

    async def answer(self, request: Request) -> Response:
        """``POST …/answer``: the user's answer to ``ask_id`` is ``payload``; the first counts."""
        body = await body_of(request)
        ask_id = checked_id(body.get("ask_id"), "ask_id")
        item: JsonObject = {
            "event_type": ANSWER,
            "event_id": f"answer:{ask_id}",
            "ref_id": ask_id,
            "payload": body.get("payload", {}),
        }
        draft = draft_from_json(item, run_id=_run_id(request), now=self._clock.iso())
        return await self._appended(draft)

    async def cancel(self, request: Request) -> Response:
        """``POST …/cancel``: tell whoever executes the run to end it.

        If nobody has it yet, nobody gets it: a run that waits is settled as cancelled. With a
        ``task_id``, only if it waits with that task.
        """
        body = await body_of(request)
        run_id, task_id = _run_id(request), _optional(body, "task_id")
        item: JsonObject = {**body, "event_type": CANCEL}
        draft = draft_from_json(item, run_id=run_id, now=self._clock.iso())
        answer = await self._appended(draft)
        run = await self._log.change_run(run_id, lambda known: withdrawn(_known(known), task_id))
        if run.settled_by == withdrawal(run):
            event_id = settlement_id(withdrawal(run))
            await self._log.append([EventDraft(RUN_CANCELLED, run_id, event_id, self._clock.iso())])
        return answer

    async def delivered(self, request: Request) -> Response:
        """``POST …/delivered``: the run's home has made all of it durable until ``through``.

        That event, a settlement, is kept; what the run told before is forgotten.
        """
        body = await body_of(request)
        run_id, through = _run_id(request), checked_count(body.get("through"), "through")
        if await self._log.run(run_id) is None:
            raise RunNotFoundError(run_id)
        await self._log.prune(run_id, through)
        return JSONResponse({})

    async def _append_of_run(self, run_id: RunId, drafts: list[EventDraft]) -> list[int]:
        """Append what a run tells of itself; an execution that lost it may tell nothing more.

        A settlement has an id of its execution's, so that the worker, tried twice, and the lapsed
        lease together make one.
        """
        executions = {one.execution_id for one in drafts if one.execution_id is not None}
        if not executions:
            return await self._log.append(drafts)
        run = await self._log.run(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        settles = [draft.event_type in SETTLEMENTS for draft in drafts]
        tells_its_end_again = {run.settled_by} == executions and all(settles)
        if run.state != "open" and not tells_its_end_again:
            for execution_id in executions:
                check_execution(run, execution_id)
        sequences = await self._log.append([_once_settled(draft) for draft in drafts])
        for execution_id in executions if any(settles) else ():
            await self._log.change_run(run_id, partial(_settled, execution_id=execution_id))
        return sequences

    async def _told_by_worker(
        self, request: Request, body: JsonObject, event_type: str, payload: JsonObject
    ) -> Response:
        return await self._appended(await self._workers_draft(request, body, event_type, payload))

    async def _workers_draft(
        self, request: Request, body: JsonObject, event_type: str, payload: JsonObject
    ) -> EventDraft:
        run_id, execution_id = _run_id(request), _execution_id(body)
        run = await self._log.run(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        check_execution(run, execution_id)
        item: JsonObject = {
            "event_type": event_type,
            "event_id": body.get("event_id"),
            "execution_id": execution_id,
            "payload": payload,
        }
        return draft_from_json(item, run_id=run_id, now=self._clock.iso())

    async def _answer_to(self, ask: EventDraft, sequence: int) -> JsonObject:
        with self._log.subscribe({ask.run_id: sequence}) as subscription:
            while True:
                for stored in await subscription.next():
                    event = stored.event()
                    if event.event_type == ANSWER and event.ref_id == ask.event_id:
                        return event.payload

    async def _appended(self, draft: EventDraft) -> Response:
        return JSONResponse({"sequences": await self._log.append([draft])})

    async def _changed(self, request: Request, change: Callable[[Run], Run]) -> Response:
        run_id = _run_id(request)
        if await self._log.run(run_id) is None:
            raise RunNotFoundError(run_id)
        run = await self._log.change_run(run_id, lambda known: change(_known(known)))
        return JSONResponse(run_json(run))

    async def settle_lapsed(self) -> None:
        """Tell the end of every execution whose worker let its lease run out."""
        now_ms = self._clock.now_ms()
        for run in await self._log.runs_in("claimed", LEASES_MAX):
            if has_lapsed(run, now_ms) and run.execution_id is not None:
                logger.warning("the lease of %s lapsed: %s", run.run_id, run.execution_id)
                draft = EventDraft(
                    RUN_ERRORED,
                    run.run_id,
                    settlement_id(run.execution_id),
                    self._clock.iso(),
                    execution_id=run.execution_id,
                    payload={"details": LAPSED},
                )
                await self._log.append([draft])
                change = partial(_settled, execution_id=run.execution_id)
                await self._log.change_run(run.run_id, change)

    def _draft(self, event_type: str, run_id: RunId, event_id: str, *, ref_id: str) -> EventDraft:
        return EventDraft(event_type, run_id, event_id, self._clock.iso(), ref_id=ref_id)


def settlement_id(execution_id: str) -> str:
    """The event id of the one settlement that an execution has."""
    return f"settled:{execution_id}"


def _once_settled(draft: EventDraft) -> EventDraft:
    if draft.event_type in SETTLEMENTS and draft.execution_id is not None:
        return attrs.evolve(draft, event_id=settlement_id(draft.execution_id))
    return draft


def _run_id(request: Request) -> RunId:
    return RunId(checked_id(request.path_params["run"], "run"))


def _execution_id(body: JsonObject) -> str:
    value = body.get("execution_id")
    return checked_id(value, "execution_id", chars_max=EXECUTION_ID_CHARS_MAX)


def _query_count(request: Request, field: str, *, default: int, most: int) -> int:
    """A whole number of the address, at most ``most``."""
    text = request.query_params.get(field)
    if text is None:
        return default
    number = int(text) if text.isdecimal() and text.isascii() and len(text) <= COUNT_CHARS else -1
    return min(checked_count(number, field), most)


COUNT_CHARS: Final = 9
"""Digits of a number in an address."""


def _optional(body: JsonObject, field: str) -> str | None:
    value = body.get(field)
    return None if value is None else checked_id(value, field)


def _settled(run: Run | None, *, execution_id: str) -> Run:
    return settled(_known(run), execution_id)


def _known(run: Run | None) -> Run:
    """No run is ever unregistered."""
    assert run is not None
    return run
