"""One execution: a claimed run's child works here until it settles, is ended, or is lost.

Four things go on side by side: the work, the line that tells of it, the ear for the home, and the
lease. The work ends the execution; a line that fails for good ends the work; a lost lease ends
all at once, and nothing more is told.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import anyio
import anyio.to_thread
import attrs

from acp_bridge.config import McpSettings
from acp_bridge.errors import (
    FAULT,
    AuthRequiredError,
    BridgeError,
    ConfigError,
    EventServiceError,
    InvalidParamsError,
    SubagentRefusedError,
)
from acp_bridge.harness.desk import Choices
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.modes import delegated_rows
from acp_bridge.harness.session import HarnessSession
from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.ports import ModelCatalog, Tool
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RUN_IN_PROGRESS, EventDraft, RunId
from acp_bridge.runevents.runs import Run
from acp_bridge.runtime.embedded import EmbeddedRuntime, Outside
from acp_bridge.subagents.activation import last_words
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.remote_payloads import (
    Cancel,
    GiveMode,
    Item,
    Relayed,
    Settlement,
    Steer,
    Task,
    settlement_json,
    settlement_type,
    task_from_json,
)
from acp_bridge.vocabulary import JsonObject, RuntimeEvent, SessionId, TurnEnd
from acp_bridge.worker.asking import HomeClient
from acp_bridge.worker.lease import Lease
from acp_bridge.worker.line import TRY_S, Line, may_pass, says_gone, wait_after
from acp_bridge.worker.listening import Listener, Order
from acp_bridge.worker.telling import Teller

logger = logging.getLogger(__name__)

TASK_CODE: Final = "TASK_UNREADABLE"
FOLDER_CODE: Final = "FOLDER_MISSING"
MODEL_CODE: Final = "MODEL_UNAVAILABLE"
LOG_CODE: Final = "STORE"
LINE_CODE: Final = "NOT_TOLD"
STOPPED_CODE: Final = "WORKER_STOPPED"


@attrs.frozen
class Workplace:
    """What all executions of a worker share.

    ``model_id`` None: each child has the model that its home names. ``people_home`` holds what the
    user of this machine wrote for all agents, ``folder`` takes a folder for each execution.
    ``now`` gives the time as events have it.
    """

    client: EventClient
    name: str
    catalog: ModelCatalog
    model_id: str | None
    tools: Callable[[], Iterable[Tool]]
    outside: Outside
    compacts: bool
    servers: Mapping[str, McpSettings]
    reads_instructions: bool
    people_home: Path
    folder: Path
    now: Callable[[], str]


class Execution:
    """The execution of one run. ``claimed_s`` is `anyio.current_time` before the claim."""

    def __init__(self, place: Workplace, run: Run, execution_id: str, *, claimed_s: float) -> None:
        self._place = place
        self._run = run
        self._id = execution_id
        self._line = Line(place.client, run.run_id, execution_id)
        self._lease = Lease(place.client, run.run_id, execution_id, claimed_s=claimed_s)
        self._scope = anyio.CancelScope()
        self._work_scope = anyio.CancelScope()
        self._runtime: EmbeddedRuntime | None = None
        self._session: HarnessSession | None = None
        self._teller: Teller | None = None
        self._early: list[Order] = []
        """What the home said before there was a session to say it to."""
        self._is_stopped = False
        self._fault: EventServiceError | None = None
        self.outcome = "lost"
        """How it ended, in a word: the kind of its end, or that the run was lost."""

    @property
    def run_id(self) -> RunId:
        """Whose execution it is."""
        return self._run.run_id

    def stop(self) -> None:
        """End it since the worker must: the child can go on elsewhere."""
        self._is_stopped = True
        if self._session is not None:
            self._session.cancel("disposed")

    def drop(self) -> None:
        """End it at once, and tell nothing more."""
        self._scope.cancel()

    async def run(self) -> None:
        """Work until it has settled or is lost. Leaves nothing but what tools did."""
        folder = self._place.folder / self._id
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._lease.keep, self._lost)
                    tasks.start_soon(self._send)
                    try:
                        tasks.start_soon((await self._listener()).listen)
                        await self._settle(await self._worked(folder))
                    except EventServiceError as error:
                        self._lost(error.details)
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    # --- to the service -------------------------------------------------------------------------

    async def _listener(self) -> Listener:
        """Say that it begins; who hears what the home says from there on.

        Raises:
            EventServiceError: the run is not ours any more.
        """
        payload: JsonObject = {"worker": self._place.name}
        since = await self._publish(RUN_IN_PROGRESS, f"begun:{self._id}", payload)
        client, task_id = self._place.client, self._run.task_id
        return Listener(client, self.run_id, task_id, since, self._obey)

    async def _settle(self, settlement: Settlement) -> None:
        """Tell the end, behind all that was told before.

        Raises:
            EventServiceError: the run is not ours any more.
        """
        if self._fault is None:
            with anyio.CancelScope() as self._work_scope:  # a line that breaks ends the wait
                await self._line.flushed()
        if self._fault is not None:
            settlement = Settlement(TurnEnd("error", self._fault.details, LINE_CODE))
        kind = settlement_type(settlement.end)
        await self._publish(kind, f"settled:{self._id}", settlement_json(settlement))
        self.outcome = settlement.end.kind
        logger.info("run %s: settled: %s", self.run_id, self.outcome)

    async def _publish(self, event_type: str, event_id: str, payload: JsonObject) -> int:
        """Publish an event of the run, again until it is accepted; its sequence."""
        draft = EventDraft(
            event_type,
            self.run_id,
            event_id,
            self._place.now(),
            execution_id=self._id,
            payload=payload,
        )
        failures = 0
        while True:
            try:
                with anyio.fail_after(TRY_S):
                    return (await self._place.client.publish(self.run_id, [draft]))[0]
            except TimeoutError:
                pass
            except EventServiceError as error:
                if not may_pass(error):
                    raise
            failures += 1
            await wait_after(failures)

    async def _send(self) -> None:
        try:
            await self._line.send()
        except EventServiceError as error:
            if says_gone(error):
                self._lost(error.details)
            else:
                self._break(error)

    def _put(self, item: Item) -> None:
        if self._fault is None:
            try:
                self._line.put(item)
            except EventServiceError as error:
                self._break(error)

    def _break(self, error: EventServiceError) -> None:
        """What the child does cannot be told: it must not go on."""
        logger.error("run %s: %s", self.run_id, error.details)
        self._fault = self._fault or error
        self._work_scope.cancel()

    def _lost(self, why: str) -> None:
        logger.warning("run %s is lost: %s", self.run_id, why)
        self._scope.cancel()

    # --- the work -------------------------------------------------------------------------------

    async def _worked(self, folder: Path) -> Settlement:
        """Let the child work to its end."""
        try:
            task = task_from_json(self._run.task)
            choices = await anyio.to_thread.run_sync(self._choices, task)
        except InvalidParamsError as fault:
            details = f"The task cannot be read by the worker {self._place.name}: {fault.details}"
            return Settlement(TurnEnd("error", details, TASK_CODE))
        except _UnfitError as fault:
            return Settlement(TurnEnd("error", fault.details, fault.unfit_code))
        end, answer = TurnEnd("aborted"), None
        try:
            with self._work_scope:
                async with self._new_runtime(folder, task) as runtime:
                    try:
                        end, answer = await self._work(runtime, task, choices)
                    except BridgeError as failure:
                        end = TurnEnd("error", failure.details, LOG_CODE)
        except Exception:
            logger.exception("run %s: it failed", self.run_id)
            end = TurnEnd("error", FAULT, "INTERNAL")
        if self._is_stopped and end.kind == "aborted":
            details = (
                f"The worker {self._place.name} was stopped before the subagent was done. Send it "
                "a message to let it go on elsewhere."
            )
            end = TurnEnd("error", details, STOPPED_CODE)
        return Settlement(end, answer)

    def _choices(self, task: Task) -> Choices:
        """What the child works with. Blocking.

        Raises:
            _UnfitError: this machine lacks its folder or its model.
        """
        name, cwd = self._place.name, task.header.cwd
        if cwd is None or not Path(cwd).is_dir():
            raise _UnfitError(
                f"The worker {name} has no folder {cwd}: make it on its machine, say by a checkout "
                "in the same place, or give the subagent a cwd that is there.",
                FOLDER_CODE,
            )
        model_id = self._place.model_id or task.model_id
        try:
            model = self._place.catalog.open(model_id)
        except (AuthRequiredError, ConfigError) as failure:
            raise _UnfitError(
                f"The worker {name} cannot use the model {model_id}: {failure.details} Or start it "
                "with --model to give its children another one.",
                MODEL_CODE,
            ) from failure
        effort = task.effort if task.effort in model.info.efforts else None
        return Choices(mode=task.mode, model=model, effort=effort)

    def _new_runtime(self, folder: Path, task: Task) -> EmbeddedRuntime:
        return EmbeddedRuntime(
            home=folder,
            catalog=self._place.catalog,
            mode=task.mode,
            tools=self._place.tools,
            outside=self._place.outside,
            compacts=self._place.compacts,
            limits=Limits(task.depth_max, task.live_max),
            servers=self._place.servers,
            reads_instructions=self._place.reads_instructions,
            people_home=self._place.people_home,
            durable=False,  # the home's log is the one that counts
        )

    async def _work(
        self, runtime: EmbeddedRuntime, task: Task, choices: Choices
    ) -> tuple[TurnEnd, str | None]:
        client = HomeClient(
            self._place.client,
            self._line,
            run_id=self.run_id,
            execution_id=self._id,
            put=self._put,
            new_id=self._place.outside.new_id,
            takes_questions=task.takes_questions,
        )
        session = await runtime.take_child(
            task.header,
            task.events,
            choices=choices,
            place=task.place,
            client=client,
            system_prompt=task.system_prompt,
            images=task.images,
        )
        first = len(task.events)
        self._runtime = runtime
        self._teller = Teller(session.session_id, first, runtime.live)
        session.attach(self._heard)
        logged = SessionMemory(task.events).mode
        if logged != task.mode:
            await session.append(delegated_rows(task.mode, before=logged))
        logger.info("run %s: begun by %s", self.run_id, self._id)
        work = await self._begin(session, task)
        end = await work.ended()
        await session.close()
        return end, last_words(session.events[first:])

    def _heard(self, event: RuntimeEvent) -> None:
        assert self._teller is not None
        for item in self._teller.items(event):
            self._put(item)

    async def _begin(self, session: HarnessSession, task: Task) -> WaitingPrompt:
        """Let it work, after what the home said meanwhile; what it says from now on is obeyed."""
        while steers := [order for order in self._early if isinstance(order, Steer)]:
            self._early = [order for order in self._early if not isinstance(order, Steer)]
            for steer in steers:
                await session.receive([], steer.message, "next-step")
        self._session = session
        work = session.awake(title=task.title)
        early, self._early = self._early, []
        for order in early:
            await self._obey(order)
        if self._is_stopped:
            session.cancel("disposed")
        return work

    async def _obey(self, order: Order) -> None:
        """Do what the home says; what cannot be done any more is left to the home."""
        session = self._session
        if session is None:
            self._early.append(order)
            return
        try:
            match order:
                case Steer():
                    if not session.has_message(str(order.message["id"])):
                        await session.steer(order.message)
                case GiveMode():
                    await session.take_mode(lambda: order.mode)
                case Cancel():
                    self._cancel(session, order)
                case Relayed():
                    pass  # the home keeps it, and sends it as its own
                case _:
                    assert_never(order)
        except BridgeError as failure:
            logger.warning("run %s: not done: %s", self.run_id, failure.details)

    def _cancel(self, session: HarnessSession, order: Cancel) -> None:
        child_id = order.session_id
        if child_id in {None, session.session_id}:
            if order.what == "turn":
                session.interrupt(order.why)
            else:
                session.cancel(order.why)
        elif order.what == "run":
            session.cancel_child(SessionId(str(child_id)))
        elif self._runtime is not None:
            try:
                self._runtime.interrupt(session.session_id, SessionId(str(child_id)))
            except SubagentRefusedError:
                logger.info("run %s: no turn of %s runs", self.run_id, child_id)


class _UnfitError(Exception):
    """This machine cannot run the child; ``unfit_code`` is the end's code."""

    def __init__(self, details: str, unfit_code: str) -> None:
        super().__init__(details)
        self.details = details
        self.unfit_code = unfit_code
