"""Waiting for runs, claiming them, and as many executions at once as the machine shall bear."""

import logging
import random
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.runevents.runs import Run
from acp_bridge.worker.execution import Execution, Workplace
from acp_bridge.worker.line import may_pass, wait_after

logger = logging.getLogger(__name__)

HOLD_S: Final = 20
"""How long a request for runs waits at the service: below what proxies cut, above what costs."""

LOOK_RUNS: Final = 16
"""Runs in one answer: more than one worker takes at a time, so that several do not all run after
the same one."""

CONFLICT_S: Final = 0.2
"""After all runs of an answer went to other workers."""

CLAIM_S: Final = 2.0
CLAIMS_MAX: Final = 3
"""How long a claim may take and how often it is tried; one that nobody hears of lapses."""

STOP_S: Final = 10.0
"""How long executions may take to settle when the worker ends; what is left then is dropped, and
its lease lapses."""


class Pool:
    """A worker. ``limit`` is how many runs it works on at once.

    ``say`` is told what happens, a line each, for somebody who watches; ids only. ``warn`` is told
    that the service is away, once, and that it is back.
    """

    def __init__(
        self,
        place: Workplace,
        *,
        limit: int,
        say: Callable[[str], None] = lambda _line: None,
        warn: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._place = place
        self._limit = limit
        self._say = say
        self._warn = warn
        self._is_away = False
        self._executions: set[Execution] = set()
        self._room = anyio.Event()
        self._waiting = anyio.CancelScope()
        self._is_stopping = False

    async def serve(self, stop: anyio.Event) -> None:
        """Work until ``stop`` is set, then settle what runs; bounded by `STOP_S`.

        Raises:
            EventServiceError: the service refuses us for good.
        """
        failure: EventServiceError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end, stop)
            try:
                with self._waiting:
                    await self._take_runs(tasks)
            except EventServiceError as error:
                failure = error  # kept, since a task group would wrap it
                stop.set()
            await self._settled()
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _end(self, stop: anyio.Event) -> None:
        """Let everything end once it is said, and what does not end go."""
        await stop.wait()
        self._is_stopping = True
        self._waiting.cancel()
        for one in self._executions:
            one.stop()
        await anyio.sleep(STOP_S)
        for one in self._executions:
            logger.warning("run %s is dropped: it did not end in time", one.run_id)
            one.drop()

    async def _settled(self) -> None:
        while self._executions:
            await self._room.wait()

    async def _take_runs(self, tasks: anyio.abc.TaskGroup) -> None:
        backoff = Backoff(random.random)
        is_known = False
        while True:
            while len(self._executions) >= self._limit:
                await self._room.wait()
            try:
                runs = await self._place.client.waiting(limit=LOOK_RUNS, hold_s=HOLD_S)
            except EventServiceError as error:
                wait_s = backoff.failed(error.status)
                if wait_s is None or (not is_known and _is_refusal(error)):
                    raise  # a slip in the command line, most likely
                logger.warning("no runs are heard of: %s", error.details)
                self._note_service(away=error.details)
                await anyio.sleep(wait_s)
                continue
            self._note_service(away=None)
            backoff.lived()
            is_known = True
            random.shuffle(runs)  # several workers had the same answer
            taken = [await self._take(run, tasks) for run in runs[: self._limit]]
            if runs and not any(taken):
                await anyio.sleep(random.uniform(CONFLICT_S, 2 * CONFLICT_S))  # noqa: S311

    def _note_service(self, *, away: str | None) -> None:
        """Tell of a change; ``away`` says why no runs are heard of."""
        if away is not None and not self._is_away:
            self._warn(f"{away} Trying again.")
        elif away is None and self._is_away:
            self._warn(f"The event service at {self._place.client.address} is back.")
        self._is_away = away is not None

    async def _take(self, run: Run, tasks: anyio.abc.TaskGroup) -> bool:
        """Claim a run, if there is room, and work on it beside the others."""
        if len(self._executions) >= self._limit:
            return False
        execution_id = self._place.outside.new_id()
        claimed_s = anyio.current_time()
        # Shielded: what the service has given us must be told its end, also by a worker that stops.
        with anyio.CancelScope(shield=True):
            claimed = await self._claimed(run, execution_id)
        if claimed is None:
            return False
        execution = Execution(self._place, claimed, execution_id, claimed_s=claimed_s)
        self._executions.add(execution)
        if self._is_stopping:
            execution.stop()
        tasks.start_soon(self._execute, execution)
        return True

    async def _claimed(self, run: Run, execution_id: str) -> Run | None:
        """The run, if it is ours now. Asked again with the same id when an answer was lost."""
        for attempt in range(1, CLAIMS_MAX + 1):
            try:
                with anyio.fail_after(CLAIM_S):
                    return await self._place.client.claim(
                        run.run_id, worker=self._place.name, execution_id=execution_id
                    )
            except TimeoutError:
                why = "no answer in time"
            except EventServiceError as error:
                why = error.details
                if not may_pass(error):
                    break
            await wait_after(attempt)
        logger.info("run %s was not claimed: %s", run.run_id, why)
        return None

    async def _execute(self, execution: Execution) -> None:
        self._say(f"run {execution.run_id}: begun ({len(self._executions)} of {self._limit})")
        try:
            await execution.run()
        except Exception:  # one run's fault must not end the others
            logger.exception("run %s: it was left", execution.run_id)
        finally:
            self._executions.discard(execution)
            room, self._room = self._room, anyio.Event()
            room.set()
            self._say(f"run {execution.run_id}: {execution.outcome}")


def _is_refusal(error: EventServiceError) -> bool:
    return error.status is not None and error.status < 500  # noqa: PLR2004
