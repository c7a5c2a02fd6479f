"""A child that a worker executes, as its home sees it: its logs, its questions, its end.

The home alone writes the child's log and those of its own subagents, from the rows that the worker
tells, and tells of them what it would tell of a local child. Rows are recognised by their seq.
Their times are the home's, since its own rows stand beside them in every replay.

What the home has to say (a message, a mode, a cancel, an answer) goes out in order and again until
the service has it. A message counts as read once a row of the log says so; those that no row tells
of when the child has settled go into its log's inbox then, and wake it.
"""

import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread

from acp_bridge.errors import (
    FAULT,
    BridgeError,
    EventServiceError,
    InvalidParamsError,
    LocalProtocolError,
)
from acp_bridge.harness.committer import Committer
from acp_bridge.harness.inbox import Target, inserted_ids, splice, was_put
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.waiting import Inbox, WaitingPrompt
from acp_bridge.ports import Consumer
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import (
    ASK,
    ROWS,
    RUN_BLOCKED,
    RunEvent,
    checked_id,
    json_text,
)
from acp_bridge.sessions import Header, LogWriter, SessionStore
from acp_bridge.sessions.query import LiveLog
from acp_bridge.subagents.activation import Activation
from acp_bridge.subagents.elsewhere import LateMessage, PendingRun
from acp_bridge.subagents.ledger import Ledger
from acp_bridge.subagents.limits import Limits
from acp_bridge.subagents.remote_calls import RunCalls
from acp_bridge.subagents.remote_closing import ending_rows
from acp_bridge.subagents.remote_family import RemoteFamily, portions
from acp_bridge.subagents.remote_images import with_images
from acp_bridge.subagents.remote_kept import KeptRun
from acp_bridge.subagents.remote_outbox import Outbox, Post, RefusedError
from acp_bridge.subagents.remote_payloads import (
    AskWithdrawnItem,
    Cancel,
    Item,
    RowItem,
    Task,
    items_from_payload,
    settlement_from_event,
    task_json,
)
from acp_bridge.subagents.remote_questions import Questions
from acp_bridge.vocabulary import (
    Abort,
    CallId,
    ChildProgressed,
    Draft,
    Event,
    JsonObject,
    Mode,
    SessionId,
    TurnEnd,
)

logger = logging.getLogger(__name__)

HOME: Final = "home"
"""Stands for the event that told an end, where the home itself found it."""

LOST: Final = "The event service knows nothing of it any more: its log is another one now."

REGISTER_TRIES: Final = 8
"""With the waits between them, about a minute: then the child is given up, and its parent told."""

_WAITS: Final = "waits for a worker"

_WORKER_CHARS_MAX: Final = 64
"""A longer name leaves no room for the child's in a title."""

TASK_CHARS_MAX: Final = 4_000_000
"""Below what the event service takes for a body, whose other members need little."""


class Office(Protocol):
    """What a remote child needs of the home."""

    client: EventClient
    ledger: Ledger
    limits: Limits

    @property
    def store(self) -> SessionStore:
        """Where logs go."""

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run it in a task that lives as long as the home."""

    def watch(self, child: "RemoteChild") -> None:
        """Bring the events of its run from now on."""

    def unwatch(self, child: "RemoteChild") -> None:
        """Bring them no more."""

    def new_id(self) -> str:
        """A fresh id."""

    def backoff(self) -> Backoff:
        """Waits between tries."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class RemoteChild:
    """Implements `elsewhere.RemoteSession`. ``run`` is what its home keeps of it."""

    def __init__(
        self, office: Office, activation: Activation, writer: LogWriter, run: PendingRun
    ) -> None:
        self._office = office
        self._activation = activation
        self._committer = Committer(writer)
        self._kept = KeptRun(office.ledger, run)
        self._was_kept = bool(run.task_id)
        self._family = RemoteFamily(self._committer, activation.root.tell, office.store)
        self._work = WaitingPrompt(Inbox())
        self._mode: Mode = activation.parents_mode()
        self._outbox = Outbox(self.session_id, office.backoff, office.sleep)
        self._calls = RunCalls(office.client, lambda: self._run)
        self._questions = Questions(
            activation.root,
            self._kept,
            self._calls,
            self._outbox,
            knows=lambda asker: asker == self.session_id or self._family.works(asker),
            start=office.start,
        )
        self._scope = anyio.CancelScope()
        self._partly: tuple[str, int] = ("", 0)
        self._standing = ""
        self._broken: str | None = None
        self._is_settled = False
        self._ended_by: str | None = None
        self._end = TurnEnd("aborted")
        self._is_left = False
        """Whether it goes on without being followed from here."""
        self._is_closed = False
        self._late: Sequence[LateMessage] = ()

    async def restore(self) -> None:
        """Before it is awake: find what was at work below it."""
        if self._was_kept:
            await self._family.restore(self._run.below)

    # --- what a session is ---------------------------------------------------------------------

    @property
    def _run(self) -> PendingRun:
        return self._kept.now

    @property
    def session_id(self) -> SessionId:
        """Its id, and that of its run."""
        return self._run.child_id

    @property
    def parent_id(self) -> SessionId:
        """The root that it works for."""
        return self._run.parent_id

    @property
    def header(self) -> Header:
        """Its header."""
        return self._committer.writer.header

    @property
    def cwd(self) -> Path:
        """Its working folder, on the worker's machine."""
        assert self.header.cwd is not None
        return Path(self.header.cwd)

    @property
    def events(self) -> Sequence[Event]:
        """Its log as consumers were told it."""
        return self._committer.told

    @property
    def late(self) -> Sequence[LateMessage]:
        """As `elsewhere.RemoteSession.late`."""
        return self._late

    def below(self) -> Sequence[LiveLog]:
        """The logs of its own subagents that work."""
        return self._family.working()

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._committer.attach(consumer)

    async def receive(
        self, rows: Sequence[Draft], message: JsonObject | None, target: Target
    ) -> None:
        """Append rows and put a message into the log's inbox; then it is pending.

        Raises:
            StoreFailedError: the disk refused.
        """
        more = [] if message is None else [self._put_row(target, message)]
        await self._committer.commit([*rows, *more])
        await self._kept.keep(task_id=self._office.new_id())

    def _put_row(self, target: Target, message: JsonObject) -> Draft:
        return splice(target, start=self._waiting(target), inserted=[message])

    def _waiting(self, target: Target) -> int:
        return len(self._committer.writer.state.inbox[target])

    def awake(self, title: str = "") -> WaitingPrompt:
        """Let a worker have it; ends when it has settled, or is not followed any more."""
        del title  # its label
        self._family.tell_restored()
        self._office.watch(self)
        self._office.start(self._serve)
        if not self._has_begun():
            self._stand(_WAITS)
        if not self._activation.root.watched.is_set():
            self._office.start(self._say_standing)
        self._questions.ask_again()
        return self._work

    # --- what the home says --------------------------------------------------------------------

    def cancel(self, why: Abort = "user") -> None:
        """End it; where the session or this process ends, only follow it no more."""
        if why == "disposed":
            self._leave()
        elif self._run.cancel_id is None:
            self._questions.take_back()
            cancel_id = self._office.new_id()
            self._kept.change(cancel_id=cancel_id)
            self._send(partial(self._cancel_run, Cancel(why), cancel_id))

    def _leave(self) -> None:
        if not self._is_settled and not self._is_left:
            self._is_left = True
            self._work.settle(TurnEnd("aborted"))

    def interrupt(self, why: Abort) -> bool:
        """End its turn alone; False: none runs."""
        if self._committer.writer.state.turn is None or self._ends:
            return False
        self._send(partial(self._calls.cancel, Cancel(why, "turn"), self._office.new_id()))
        return True

    def cancel_below(self, session_id: SessionId, why: Abort) -> bool:
        """End one of its own subagents; False: it is none of them."""
        if not self._family.works(session_id):
            return False
        cancel = Cancel(why, session_id=session_id)
        self._send(partial(self._calls.cancel, cancel, self._office.new_id()))
        return True

    async def steer(self, message: JsonObject) -> bool:
        """Send a message that it reads before its next step; False: it has ended, or was told to.

        Raises:
            StoreFailedError: the disk refused; the message is nowhere.
        """
        if self._ends:
            return False
        calls, call_id = self._activation.calls, self._activation.call_id
        call_id = calls.get(str(message["id"]), call_id)
        await self._post(LateMessage(message, _text_of(message), call_id))
        return True

    async def relay(self, message: JsonObject) -> bool:
        """As `elsewhere.RemoteSession.relay`."""
        if self._is_settled or self._is_left:
            return False
        known = any(one.message["id"] == message["id"] for one in self._run.messages)
        if not known and not was_put(self.events, message["id"]):
            await self._post(LateMessage(message, "", CallId("")))
        return True

    async def _post(self, one: LateMessage) -> None:
        """Keep a message, and send it while somebody can read it."""
        await self._kept.keep(messages=(*self._run.messages, one))
        if not self._ends:
            self._send(partial(self._calls.steer, one.message))

    async def take_mode(self, given: Callable[[], Mode]) -> None:
        """Let it go on in the mode that its parent has now."""
        self._give_mode(given())

    def _give_mode(self, mode: Mode) -> None:
        if mode != self._mode and not self._is_settled:
            self._mode = mode
            self._send(partial(self._calls.give_mode, mode, self._office.new_id()))

    @property
    def _ends(self) -> bool:
        return self._is_settled or self._is_left or self._run.cancel_id is not None

    # --- what its events say -------------------------------------------------------------------

    async def take(self, event: RunEvent) -> bool:
        """An event of its run; as `runevents.delivery.Delivery.deliver`."""
        await self._activation.root.watched.wait()  # else nobody would be told
        if self._is_left or self._is_settled:
            return False
        if event.event_id == self._run.before:
            return True  # told before a restart, and it works again since
        if event.event_type == ROWS:
            await self._take_rows(event)
            await self._activation.root.client.flow()  # a slow client slows its children down
        elif event.event_type == ASK:
            await self._take_ask(event)
        else:
            return await self._take_end(event)
        return True

    def show(self, event: RunEvent) -> None:
        """Tell how it gets on; live only: a restart knows its rows, not who executes it."""
        if event.event_type == RUN_BLOCKED:
            self._stand("is blocked")
        else:
            worker = _worker_of(event.payload)
            self._stand("works" if worker is None else f"works on {worker}")

    def _stand(self, words: str) -> None:
        if words != self._standing and not self._is_settled and not self._is_left:
            self._standing = words
            if self._activation.root.watched.is_set():
                self._activation.root.tell(ChildProgressed(self.session_id, words))

    async def _say_standing(self) -> None:
        """After a restart: what nobody was there to hear."""
        await self._activation.root.watched.wait()
        words, self._standing = self._standing, ""
        if words:
            self._stand(words)

    def _has_begun(self) -> bool:
        rows = self.events[self._run.first_seq :]
        return any(row.type == "turn/start" for row in rows)

    async def _take_rows(self, event: RunEvent) -> None:
        if self._broken is not None:
            return
        try:
            items = items_from_payload(event.payload)
            if self._standing == _WAITS:
                self._stand("works")  # who does was told when nobody listened
            done = self._partly[1] if self._partly[0] == event.event_id else 0
            for end in portions(items, done):
                await self._take_items(items[done:end], event.sequence)
                self._partly, done = (event.event_id, end), end
        except (InvalidParamsError, LocalProtocolError) as fault:
            if self._is_left:
                raise  # its log is released
            self._break(fault.details)

    async def _take_items(self, items: Sequence[Item], sequence: int) -> None:
        first = items[0]
        if isinstance(first, AskWithdrawnItem):
            await self._questions.withdraw(first.ask_id)
            return
        told = await self._family.take(items, is_old=sequence <= self._run.items_until)
        if not isinstance(first, RowItem):
            if self._family.kept != self._run.below:
                await self._kept.keep(below=self._family.kept, items_until=sequence)
        elif first.session_id == self.session_id:
            await self._receipts(told)

    async def _receipts(self, rows: Sequence[Event]) -> None:
        came = {message_id for row in rows for message_id in inserted_ids(row)}
        left = tuple(one for one in self._run.messages if one.message.get("id") not in came)
        if len(left) != len(self._run.messages):
            await self._kept.keep(messages=left)

    def _break(self, details: str) -> None:
        """It told what cannot be: it is to end, and has failed."""
        logger.error("subagent %s is ended: %s", self.session_id, details)
        self._broken = f"Its worker told what cannot be used: {details}"
        if not self._ends:
            self.cancel("parent")

    async def _take_ask(self, event: RunEvent) -> None:
        if self._broken is not None:
            return
        try:
            await self._questions.take(event.event_id, event.payload)
        except InvalidParamsError as fault:
            self._break(fault.details)

    async def _take_end(self, event: RunEvent) -> bool:
        try:
            end = settlement_from_event(event.event_type, event.payload).end
        except InvalidParamsError as fault:
            end = TurnEnd("error", fault.details, "WORKER")
        if self._broken is not None:
            end = TurnEnd("error", self._broken, "WORKER")
        self._activation.notice_id = event.event_id
        if not await self._settle(end, event.event_id):
            return False
        self._office.start(partial(self._say_delivered, event.sequence))
        return True

    async def _say_delivered(self, through: int) -> None:
        try:
            await self._calls.delivered(through)
        except EventServiceError as error:
            # Its next end makes up for it.
            logger.info("subagent %s: its events are kept: %s", self.session_id, error.details)

    async def fail(self, details: str) -> None:
        """It cannot be followed or reached any more: an end of the home's own making."""
        if not self._is_settled and not self._is_left:
            await self._settle(TurnEnd("error", details, "EVENTS"), HOME)

    def _ending(self) -> list[Draft]:
        state = self._committer.writer.state
        if state.compaction is not None:
            return []  # a repair closes it, with its turn
        return ending_rows(state, self.events[self._run.first_seq :], self._end)

    async def _settle(self, end: TurnEnd, ended_by: str) -> bool:
        """Let its end be told, and wait until it was; False: its parent could not be told."""
        self._is_settled = True
        self._ended_by, self._end = ended_by, end
        self._work.settle(end)
        await self._activation.gone.wait()
        if self._activation.is_told:
            await self._office.ledger.told(self._run, ended_by)
        return self._activation.is_told

    # --- what goes out -------------------------------------------------------------------------

    def _send(self, post: Post) -> None:
        self._outbox.put(post)

    async def _serve(self) -> None:
        """Register the run, then send what there is to be said, until it is closed."""
        with self._scope:
            try:
                if self._was_kept:
                    self._say_again()
                if not self._run.is_registered:
                    details = await self._register()
                else:
                    details = await self.check_known()
                if details is not None:
                    self._give_up(details)
                    return
                await self._outbox.send_all()
            except Exception:
                logger.exception("subagent %s: it could not be served", self.session_id)
                self._give_up(FAULT)

    def _say_again(self) -> None:
        """After a restart: what may not have gone out. The service knows each by its id."""
        run = self._run
        again: list[Post] = [partial(self._calls.steer, one.message) for one in run.messages]
        if run.cancel_id is not None:
            again.append(partial(self._calls.cancel, Cancel("user"), run.cancel_id))
        self._outbox.put_first(again)
        before = SessionMemory(self._committer.told).mode
        if before is not None and before != self._mode:
            self._send(partial(self._calls.give_mode, self._mode, self._office.new_id()))

    async def check_known(self) -> str | None:
        """Ask whether the service knows the run at all; a sentence: it does not."""
        known: list[bool] = []

        async def ask() -> None:
            known.append(await self._calls.is_known())

        with contextlib.suppress(RefusedError):  # it refuses to say; streams say why
            await self._outbox.until_taken(ask)
        return LOST if known == [False] else None

    async def _register(self) -> str | None:
        """Register the run; a sentence: why it was given up."""
        task = self._task()
        room = TASK_CHARS_MAX - len(json_text(task_json(task)))
        if room < 0:
            return (
                f"Its conversation is longer than {TASK_CHARS_MAX} bytes, which is what the event "
                "service takes. Start a new subagent with a shorter one."
            )
        try:
            find = self._activation.root.attachment
            task = await with_images(task, find, chars_max=room)
            register = partial(self._calls.register, task_json(task))
            await self._outbox.until_taken(register, tries_max=REGISTER_TRIES)
        except RefusedError as refused:
            return f"No worker could be asked: {refused}"
        await self._kept.keep(is_registered=True)
        return None

    def _give_up(self, details: str) -> None:
        # In a task of its own: closing ends the one that sends.
        self._office.start(partial(self._fail, details))

    async def _fail(self, details: str) -> None:
        await self.fail(details)

    def _task(self) -> Task:
        run, limits, root = self._run, self._office.limits, self._activation.root
        return Task(
            header=self.header,
            events=self._committer.told,
            place=run.place,
            title=run.label,
            label=run.label,
            model_id=run.model_id,
            effort=run.effort,
            mode=self._mode,
            depth_max=limits.depth_max,
            live_max=limits.live_max,
            takes_questions=root.client.takes_questions,
            system_prompt=root.given.system_prompt,
        )

    async def _cancel_run(self, cancel: Cancel, cancel_id: str) -> None:
        await self._kept.keep(cancel_id=cancel_id)
        await self._calls.cancel(cancel, cancel_id)

    # --- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Release the logs.

        Settled, they are closed as after a crash where a turn is open; else they stay as they are
        for whoever follows the child next.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._leave()
        self._questions.take_back()
        self._scope.cancel()
        self._office.unwatch(self)
        try:
            await self._family.close(repairs=self._is_settled)
            if self._is_settled:
                await self._keep_late()
        except BridgeError as failure:
            logger.warning("subagent %s: %s", self.session_id, failure.details)
        finally:
            await anyio.to_thread.run_sync(self._committer.writer.close)

    async def _keep_late(self) -> None:
        """Close the log, and put what no row says that it came in into its inbox."""
        await self._committer.commit(self._ending())
        await self._committer.repair()
        late = [one for one in self._run.messages if not was_put(self.events, one.message["id"])]
        for one in late:
            await self._committer.commit([self._put_row("next-step", one.message)])
        self._late = late
        await self._kept.keep(messages=(), asks={}, below={}, ended_by=self._ended_by)


def _worker_of(payload: JsonObject) -> str | None:
    """The name of the worker that began; None where it is no name for a title."""
    try:
        return checked_id(payload.get("worker"), "worker", chars_max=_WORKER_CHARS_MAX)
    except InvalidParamsError:
        return None


def _text_of(message: JsonObject) -> str:
    content = message.get("content")
    last = content[-1] if isinstance(content, list) and content else None
    text = last.get("text") if isinstance(last, dict) else None
    return text if isinstance(text, str) else ""
