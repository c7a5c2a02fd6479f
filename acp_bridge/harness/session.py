"""A live session: an inbox of prompts, one turn at a time, cancel and close.

Prompts wait in memory and enter the log when their turn starts (sessions: "Writing"); after a kill
the other harness would otherwise run them by itself. Prompts that it left in the log's inbox run
before ours.

A prompt is **held** while subagents work for it: their messages start further turns, and the prompt
ends when the session is idle and is owed nothing. Another prompt that comes while only subagents
work ends the held one and takes its place. With ``detaches`` nothing is held: the prompt ends with
its own turn, and what subagents tell later starts turns that no prompt waits for.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from acp_bridge.errors import FAULT, BridgeError
from acp_bridge.harness.choosing import choose, options_of, take_mode
from acp_bridge.harness.commands import commands_of, run_command
from acp_bridge.harness.desk import Choices, Desk, Given
from acp_bridge.harness.folder import move, settled
from acp_bridge.harness.inbox import Target, is_prompt, put_row, queues, was_put
from acp_bridge.harness.memory import STOPPED_ROW
from acp_bridge.harness.news import forget_told, look
from acp_bridge.harness.prompts import keep_attachments, user_message
from acp_bridge.harness.waiting import Inbox, WaitingPrompt, Work
from acp_bridge.ports import Client, Consumer, Extras, OptionName, SessionOptions, Tool
from acp_bridge.sessions.header import Header
from acp_bridge.vocabulary import (
    Abort,
    Command,
    CommandInfo,
    Descendant,
    Draft,
    Event,
    JsonObject,
    Mode,
    Prompt,
    RuntimeEvent,
    SessionId,
    TurnEnd,
)

logger = logging.getLogger(__name__)

CLOSE_WAIT_S = 5.0
"""How long a close waits for the running turn; what is left then has been told to stop."""


class HarnessSession:
    """Implements `ports.LiveSession`; ``serve`` must run in a task for as long as it is open.

    ``detaches``: no prompt waits for subagents.
    """

    def __init__(self, desk: Desk, *, detaches: bool = False) -> None:
        self._desk = desk
        self._detaches = detaches
        self._inbox: deque[WaitingPrompt] = deque()
        self._wake = anyio.Event()
        self._running: WaitingPrompt | None = None
        self._turn_scope: anyio.CancelScope | None = None
        self._has_news = False
        """Whether messages came into the log's inbox that must not wait for a prompt."""
        self._arriving = 0
        self._stops = 0
        self._closing = False
        self._served = anyio.Event()
        self.watched = anyio.Event()
        """Set once somebody is told what happens here, or nobody ever will be."""
        desk.committer.attach(self._remember)

    @property
    def session_id(self) -> SessionId:
        """The id that the client knows."""
        return self._desk.session_id

    @property
    def cwd(self) -> Path:
        """The working folder, absolute."""
        return self._desk.cwd

    @property
    def events(self) -> Sequence[Event]:
        """The log as consumers were told it."""
        return self._desk.committer.told

    @property
    def header(self) -> Header:
        """Its header."""
        return self._desk.committer.writer.header

    @property
    def place(self) -> str:
        """Where it stands among the sessions of this process: "1", its first child "1/1"."""
        return self._desk.place

    @property
    def client(self) -> Client:
        """Who is asked."""
        return self._desk.client

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What its model may call now, for subagents that may call the same."""
        return self._desk.tools

    @property
    def closing(self) -> bool:
        """Whether it takes no more prompts."""
        return self._closing

    @property
    def cancelling(self) -> bool:
        """Whether what runs was told to end."""
        return self._closing or (self._running is not None and self._running.scope.cancel_called)

    @property
    def busy(self) -> bool:
        """Whether a turn runs, a prompt waits, or one is held for subagents."""
        return self._running is not None or bool(self._inbox)

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._desk.committer.attach(consumer)
        self.watched.set()

    @property
    def commands(self) -> Sequence[CommandInfo]:
        """The slash commands that `admit` takes, as of the last look at the files."""
        return commands_of(self._desk)

    @property
    def folders(self) -> Sequence[Path]:
        """As `ports.LiveSession.folders`."""
        return self._desk.given.folders

    @property
    def given(self) -> Given:
        """What the client gave, for subagents that are given the same."""
        return self._desk.given

    async def take(self, extras: Extras) -> None:
        """What a client gives at this opening, in place of what it gave before; then a look."""
        self._desk.given.folders = tuple(extras.folders)
        self._desk.given.system_prompt = extras.system_prompt
        await look(self._desk)

    @property
    def choices(self) -> Choices:
        """What is chosen, for a fork that begins with it."""
        return attrs.evolve(self._desk.choices)

    def options(self) -> SessionOptions:
        """What can be chosen, and what is chosen."""
        return options_of(self._desk)

    async def working_folder(self) -> Path:
        """Where its tools work; if that folder is gone, they work in the session's own again."""
        return await settled(self._desk)

    async def move(self, path: str) -> Path:
        """Let its tools work in this folder: see `harness.folder`."""
        return await move(self._desk, path)

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value: see `ports.LiveSession`. A mode is given to running subagents too."""
        await choose(self._desk, option, value)
        if option == "mode":
            await self._give_mode()

    async def take_mode(self, given: Callable[[], Mode]) -> None:
        """Go on in the mode that the parent has now, and give it to subagents of its own.

        Raises:
            StoreFailedError: the disk refused; nothing changed.
        """
        await take_mode(self._desk, given)
        await self._give_mode()

    async def _give_mode(self) -> None:
        with anyio.CancelScope(shield=True):  # else a cancel would leave them with more rights
            await self._desk.children.give_mode(self.session_id)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt or a command, synchronously, first in first out."""
        return self._admit(prompt)

    async def interject(self, prompt: Prompt) -> bool:
        """Put what the user says before the next step: see `ports.LiveSession`.

        A cancel drops it, if no step took it before.
        """
        if not self._takes_more:
            return False
        await keep_attachments(self._desk, prompt)
        message = user_message(self._desk, prompt)
        if not await self._put(message, lambda: "next-step" if self._takes_more else None):
            return False
        self._has_news = True
        return True

    @property
    def _takes_more(self) -> bool:
        """Whether a prompt runs that will look for what the user says meanwhile."""
        running = self._running
        if running is None or self.cancelling or isinstance(running.prompt, Command):
            return False
        return self._in_turn or not self._detaches

    def awake(self, title: str = "") -> WaitingPrompt:
        """Run what `receive` put into the log's inbox; ends when nothing is owed any more."""
        return self._admit(Inbox(title))

    def _admit(self, work: Work) -> WaitingPrompt:
        waiting = WaitingPrompt(work)
        if self._closing:
            waiting.settle(TurnEnd("aborted"))
        else:
            self._inbox.append(waiting)
            self.stir()
        return waiting

    def note(self, text: str) -> None:
        """Begin the next turn with a sentence to the user."""
        self._desk.notice = text

    def tell(self, event: RuntimeEvent) -> None:
        """Tell this session's consumers something of its subagents."""
        self._desk.committer.emit(event)

    def stir(self) -> None:
        """Look again whether something is to be done: what is owed may have changed."""
        self._wake.set()

    async def append(self, rows: Sequence[Draft]) -> None:
        """Append rows that no turn makes.

        Raises:
            StoreFailedError: the disk refused.
        """
        await self._desk.committer.commit(rows)

    async def receive(
        self, rows: Sequence[Draft], message: JsonObject | None, target: Target
    ) -> None:
        """Append rows and put a message into the log's inbox, in one batch; `awake` runs it.

        ``message`` None: what is to be run is in the inbox already.

        Raises:
            StoreFailedError: the disk refused; nothing is in the log.
        """
        async with self._desk.inbox:
            more = [] if message is None else [put_row(self._desk, target, message)]
            await self._desk.committer.commit([*rows, *more])

    def has_message(self, message_id: str) -> bool:
        """Whether a message of this id came into the log's inbox, taken by now or not."""
        return was_put(self.events, message_id)

    async def steer(self, message: JsonObject) -> bool:
        """Put a message before the next step of what runs; False: nothing runs, or it ends.

        Raises:
            StoreFailedError: the disk refused; the message is nowhere.
        """
        if self._running is None or self.cancelling:
            return False
        await self._put(message, lambda: "next-step")
        self._has_news = True
        self.stir()
        return True

    async def notify(self, message: JsonObject, *, wakes: bool) -> bool:
        """Leave a message: the running turn or one of its own takes it; False: it is closed.

        With ``wakes`` False it starts nothing: whatever turn comes next takes it.

        Raises:
            StoreFailedError: the disk refused; the message is nowhere.
        """
        if self._closing:
            return False
        wakes = wakes and not self.cancelling
        stops = self._stops
        await self._put(message, lambda: "next-step" if wakes and self._in_turn else "next-turn")
        if wakes and stops == self._stops:  # no cancel came meanwhile
            self._has_news = True
            self.stir()
        return True

    @property
    def _in_turn(self) -> bool:
        """Whether a turn runs and its end is not in the log yet."""
        return self._turn_scope is not None and self._desk.committer.writer.state.turn is not None

    async def _put(self, message: JsonObject, target: Callable[[], Target | None]) -> bool:
        """Put a message into the log's inbox; a turn that ends holds it until its end is there.

        ``target`` is asked when nothing else can change the inbox; None: nothing is put.
        """
        self._arriving += 1  # whoever decides whether all is quiet waits for it
        try:
            async with self._desk.inbox:
                where = target()
                if where is not None:
                    await self._desk.committer.commit([put_row(self._desk, where, message)])
                return where is not None
        finally:
            self._arriving -= 1
            self.stir()

    def cancel(self, why: Abort = "user") -> None:
        """End the running turn, the waiting prompts and all subagents; nothing runs: no-op."""
        for waiting in self._inbox:
            waiting.withdraw()
        if self._running is None:
            self._stop_children(why)
        else:
            self._desk.abort = why
            self._running.withdraw()

    def interrupt(self, why: Abort) -> bool:
        """End the running turn alone; what waits in the log stays there. False: no turn runs."""
        self._has_news = False
        if self._turn_scope is None:
            return False
        self._desk.abort = why
        self._turn_scope.cancel()
        return True

    def _stop_children(self, why: Abort) -> None:
        self._has_news = False
        self._stops += 1
        self._desk.children.cancel_below(self.session_id, why)

    async def descendants(self) -> Sequence[Descendant]:
        """Its subagents at any depth, each after its parent, siblings oldest first."""
        return await self._desk.children.descendants(self.session_id)

    def cancel_child(self, child_id: SessionId) -> None:
        """End a running subagent's turn, and those of its own; one that does not run: no-op."""
        self._desk.children.cancel_child(self.session_id, child_id)

    async def close(self) -> None:
        """Cancel, wait until quiet, release the log. Idempotent."""
        if not self._closing:
            self._closing = True
            self.watched.set()
            self.cancel("disposed")
            self._desk.abort = "disposed"
            self.stir()
        with anyio.move_on_after(CLOSE_WAIT_S, shield=True) as bound:
            await self._served.wait()
        if bound.cancelled_caught:
            logger.warning("session %s: its turn did not end in time", self.session_id)

    async def serve(self) -> None:
        """Run turns until `close`, then release the log."""
        try:
            while not self._closing or self._inbox:
                if self._inbox:
                    await self._run(self._inbox.popleft())
                elif self._has_news:
                    await self._run(WaitingPrompt(Inbox()))
                else:
                    await self._stirred()
        finally:
            self._closing = True
            for waiting in self._inbox:
                waiting.settle(TurnEnd("aborted"))
            await self._owed_nothing()
            with anyio.CancelScope(shield=True):
                await self._desk.servers.close()
                await anyio.to_thread.run_sync(self._desk.committer.writer.close)
            self._served.set()

    async def _stirred(self) -> None:
        await self._wake.wait()
        self._wake = anyio.Event()

    async def _run(self, waiting: WaitingPrompt) -> None:
        end = TurnEnd("aborted")
        waiting.begin()
        self._running = waiting
        waiting.stops = lambda: self._stop_children(self._desk.abort)
        if not self._closing:
            self._desk.abort = "user"
        try:
            if not waiting.scope.cancel_called:
                end = await self._turns(waiting)
                if not self._closing:
                    await look(self._desk)  # it may have written a command, which editors now take
        except Exception:  # one session's fault must not end the others
            logger.exception("session %s: a prompt failed", self.session_id)
            end = TurnEnd("error", FAULT, "INTERNAL")
        finally:
            self._running = None
            waiting.stops = None
            waiting.settle(end)

    async def _turns(self, waiting: WaitingPrompt) -> TurnEnd:
        """All turns of the prompt, until it is owed nothing."""
        with waiting.scope:
            end = await self._first(waiting.prompt)
            if not self._detaches and not isinstance(waiting.prompt, Command):
                end = await self._held(end)
            # A failure that the user's cancel met half-way is no news to them (R035).
            if end.kind != "error" or not waiting.scope.cancel_called:
                return end
        await self._owed_nothing()
        self._has_news = False
        await self._log_stop()
        return TurnEnd("aborted")

    async def _log_stop(self) -> None:
        """Let a subagent's log say that it was ended, if no turn of it does."""
        ends = (event.data for event in reversed(self.events) if event.type == "turn/end")
        last = next(ends, None)
        reason = last["reason"] if isinstance(last, dict) else None
        is_told = not isinstance(reason, dict) or reason["kind"] == "aborted"
        if self.header.origin != "subagent" or is_told:
            return
        row = Draft(STOPPED_ROW, {"reason": {"kind": self._desk.abort}}, ignorable=True)
        try:
            await self._desk.committer.commit([row])
        except BridgeError as failure:
            logger.warning(
                "session %s: its log does not say that it was ended: %s",
                self.session_id,
                failure.details,
            )

    async def _first(self, work: Work) -> TurnEnd:
        """What was admitted, after the prompts that the log's inbox still holds."""
        try:
            await self._desk.committer.repair()
            with anyio.CancelScope(shield=True):  # see `Turn`: the prompt is still to be logged
                await look(self._desk)
            if isinstance(work, Command):
                await run_command(self._desk, work)
                return TurnEnd("completed")
            if isinstance(work, Inbox):
                return await self._drain(work.title) or TurnEnd("completed")
            for left in list(filter(is_prompt, queues(self._desk)["next-turn"])):
                end = await self._turn(left, pending=True)
                if end.code == "STORE":
                    return end
            await keep_attachments(self._desk, work)
            await settled(self._desk)
            await self._desk.servers.ready()
        except BridgeError as failure:
            return TurnEnd("error", failure.details, "STORE")
        return await self._turn(user_message(self._desk, work), title=work.title, pending=False)

    async def _held(self, end: TurnEnd) -> TurnEnd:
        """Go on as long as subagents work or have told something; the last turn's end."""
        while True:
            if self._has_news:
                end = await self._drain() or end
            elif not self._arriving and not self._desk.children.owes(self.session_id):
                return end
            elif self._inbox and isinstance(self._inbox[0].prompt, Command):
                await self._answer_command(self._inbox.popleft())
            elif self._inbox and not self._arriving:
                return TurnEnd("completed")
            else:
                await self._stirred()

    async def _answer_command(self, waiting: WaitingPrompt) -> None:
        """A command that comes while a prompt is held takes nothing from it."""
        end = TurnEnd("aborted")
        waiting.begin()
        try:
            with waiting.scope:
                end = await self._first(waiting.prompt)
        except Exception:  # nor does its fault
            logger.exception("session %s: a command failed", self.session_id)
            end = TurnEnd("error", FAULT, "INTERNAL")
        finally:
            waiting.settle(end)

    async def _drain(self, title: str = "") -> TurnEnd | None:
        """Turns for what waits in the log; the last one's end. An interrupt leaves the rest."""
        self._has_news = False
        end = None
        while any(queues(self._desk).values()):
            first = next(iter(queues(self._desk)["next-turn"]), None)
            own = first if first is not None and is_prompt(first) else None
            end = await self._turn(own, title=title, pending=True)
            if end.kind == "aborted" or end.code == "STORE":
                break
        return end

    async def _turn(self, message: JsonObject | None, *, title: str = "", pending: bool) -> TurnEnd:
        """One turn, which `interrupt` can end by itself."""
        from acp_bridge.harness.turn import Turn  # with all that it needs, behind session/new

        with anyio.CancelScope() as scope:
            self._turn_scope = scope
            try:
                return await Turn(self._desk, message, title=title, pending=pending).run()
            finally:
                self._turn_scope = None
        if not self._closing:
            self._desk.abort = "user"
        return TurnEnd("aborted")

    async def _owed_nothing(self) -> None:
        """Wait until the subagents that were told to end have ended."""
        with anyio.move_on_after(CLOSE_WAIT_S, shield=True):
            await self._desk.children.settled(self.session_id)

    async def attachment(self, attachment_id: str) -> bytes | None:
        """The bytes of an image that the log names, or None if they are lost."""
        return await anyio.to_thread.run_sync(self._desk.world.find_attachment, attachment_id)

    def _remember(self, event: object) -> None:
        if isinstance(event, Event):
            self._desk.memory.apply(event)
            forget_told(self._desk, event)
