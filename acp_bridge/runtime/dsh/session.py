"""A live session of the real runtime behind `ports.LiveSession`: its turns, and what is told.

Without the control plugin a turn is cancelled by the end of its process, which this session then
has for itself; the next prompt finds a new one. Mode and model are then changed in the log, between
two processes.
"""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import anyio.to_thread

from acp_bridge.errors import (
    FAULT,
    BridgeError,
    PeerError,
    PeerGoneError,
)
from acp_bridge.harness.command_texts import title_data
from acp_bridge.harness.memory import NOTICE_ROW, SessionMemory
from acp_bridge.harness.modes import mode_rows
from acp_bridge.harness.waiting import WaitingPrompt, Work
from acp_bridge.ports import Client, Consumer, Extras, OptionName, SessionOptions
from acp_bridge.runtime.dsh.children import Children
from acp_bridge.runtime.dsh.choosing import CHOICE_ROWS, chosen, options_of, selection_row
from acp_bridge.runtime.dsh.client import Session, event_of
from acp_bridge.runtime.dsh.commands import COMMANDS, run_command
from acp_bridge.runtime.dsh.control_types import ModelChoice
from acp_bridge.runtime.dsh.given import Given
from acp_bridge.runtime.dsh.grants import Grants
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.runtime.dsh.models import choice_from_log, model_id_of, selection_name
from acp_bridge.runtime.dsh.prompt_queue import PromptQueue
from acp_bridge.runtime.dsh.prompts import PromptFold, content_for_runtime, end_from_reason
from acp_bridge.runtime.dsh.residence import Owner, Residence, Shop
from acp_bridge.sessions.header import Header
from acp_bridge.vocabulary import (
    Command,
    CommandInfo,
    CommandsChanged,
    Descendant,
    Draft,
    Event,
    Mode,
    OptionsChanged,
    Prompt,
    RuntimeEvent,
    SessionId,
    StreamDelta,
    TurnEnd,
)
from acp_bridge.wire.messages import Notification

if TYPE_CHECKING:
    from acp_bridge.runtime.dsh.servers import DshServers

logger = logging.getLogger(__name__)

CANCEL_WAIT_S: Final = 8.0
"""How long a cancel may take: a command that ignores SIGTERM is killed after 3 s."""

CLOSE_WAIT_S: Final = 15.0
"""How long a close may take: a cancel, and the end of the process."""

NO_PLUGIN: Final = (
    "The control plugin did not start in DeepSeek Harness: answers come whole instead of "
    "streaming, nothing can be asked (what would need your permission is refused), MCP servers are "
    "not used, the model is not told of additional folders and instructions of yours, and a cancel "
    "restarts the runtime. `acp-bridge doctor` says what is missing."
)


class DshSession:
    """Implements `ports.LiveSession`; ``serve`` must run in a task for as long as it is open.

    ``events`` are its log so far; empty: nothing is stored before its first prompt. ``mode`` and
    ``model`` hold where the log says nothing.
    """

    def __init__(
        self,
        shop: Shop,
        header: Header,
        client: Client,
        *,
        mode: Mode,
        model: ModelChoice,
        events: Sequence[Event] = (),
    ) -> None:
        assert header.cwd is not None
        self._given = Given(
            SessionId(header.session_id),
            Path(header.cwd),
            home=shop.people_home,
            reads_instructions=shop.reads_instructions,
            takes_questions=client.takes_questions,
        )
        self._shop = shop
        self._header = header
        self.client = client
        self._memory = SessionMemory(events)
        self._mode = self._memory.mode or mode
        found = choice_from_log(self._memory.selection)
        self._model = found or model
        self._news: list[str] = []
        """What is to be said to the user at the next turn."""
        if found is None and (gone := selection_name(self._memory.selection)) is not None:
            answers = model_id_of(model)
            self._news.append(f"The model {gone} is not available now; {answers} answers.")
        self.servers: DshServers | None = None
        """Its MCP servers; set before it is served."""
        self._grants = Grants(self.session_id, self._memory.grants, shop.store)
        self._inbox = PromptQueue(self.session_id, self._run, close_wait_s=CLOSE_WAIT_S)
        self._consumers: list[Consumer] = []
        self._children = Children(header, events, shop.store, self._emit)
        owner = Owner(
            apply=self._apply,
            hear=self._hear,
            opened=self._begin,
            settle=self._children.settle,
            model=lambda: self._model,
            first_rows=self._first_rows,
            late_rows=self._late_rows,
            closing=lambda: self._inbox.closing,
        )
        self._residence = Residence(shop, header, owner, events=events)
        self._fold: PromptFold | None = None
        self._is_compacting = False
        self._knows_no_plugin = False
        self._is_root_idle = True
        self._changed = anyio.Event()

    # --- what the port asks -------------------------------------------------------------------

    @property
    def session_id(self) -> SessionId:
        """The id that the client knows."""
        return SessionId(self._header.session_id)

    @property
    def cwd(self) -> Path:
        """The working folder, absolute."""
        return Path(self._header.cwd or "/")

    @property
    def events(self) -> Sequence[Event]:
        """The log as consumers were told it."""
        return self._residence.events

    @property
    def closing(self) -> bool:
        """Whether it takes no more prompts."""
        return self._inbox.closing

    @property
    def busy(self) -> bool:
        """Whether a turn runs or a prompt waits."""
        return self._inbox.busy

    @property
    def mode(self) -> Mode:
        """The permission mode in force."""
        return self._mode

    @property
    def model(self) -> ModelChoice:
        """The model in force."""
        return self._model

    @property
    def commands(self) -> Sequence[CommandInfo]:
        """The slash commands that `admit` takes, as of the last look at the files."""
        return [*COMMANDS, *self._given.commands]

    @property
    def folders(self) -> Sequence[Path]:
        """More roots of the workspace, as the client gave them at the last opening."""
        return self._given.folders

    async def take(self, extras: Extras) -> None:
        """What a client gives at this opening, in place of what it gave before; then a look."""
        self._news += self._given.take(extras, self._residence.host)
        await self._look()

    async def _look(self) -> None:
        """Look at what people have written down, and tell of commands that came or went."""
        before = self._given.commands
        self._news += await self._given.look()
        if self._given.commands != before:
            self._emit(CommandsChanged())

    @property
    def host(self) -> Host | None:
        """The process that has it open."""
        return self._residence.host

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._consumers.append(consumer)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt, synchronously, first in first out."""
        waiting = self._inbox.admit(prompt)
        self._change()
        return waiting

    async def interject(self, prompt: Prompt) -> bool:
        """Put what the user says before the next step of what runs: see `ports.LiveSession`.

        Without the control plugin nothing can be put there.
        """
        host = self._residence.host
        if host is None or not host.usable or not host.can("steer"):
            return False
        if self._fold is None or self._inbox.withdrawn:  # else a cancel would drop it
            return False
        assert host.control is not None
        wakes = not self._shop.detaches and self._fold.end is not None
        content = content_for_runtime(self._given.content(prompt), prompt.attachments)
        try:
            taken = await host.control.steer(self.session_id, content, wakes=wakes)
        except PeerGoneError:
            return False
        return taken is not None

    def cancel(self) -> None:
        """End the running turn, the waiting prompts and all subagents; nothing running: no-op."""
        if not self._inbox.busy and (self._children.working or not self._is_root_idle):
            self._shop.group.start_soon(self._stop_strays)
        self._inbox.cancel()

    async def descendants(self) -> Sequence[Descendant]:
        """Its subagents: see `ports.LiveSession`."""
        return await self._children.descendants()

    def has_child(self, child_id: SessionId) -> bool:
        """Whether this subagent works for it now."""
        return self._children.has(child_id)

    def cancel_child(self, child_id: SessionId) -> None:
        """End a running subagent's turn; one that does not run: no-op.

        Without the control plugin nothing can end it but the end of all.
        """
        host = self._residence.host
        if self.has_child(child_id) and host is not None:
            self._shop.group.start_soon(self._children.cancel, child_id, host)

    async def close(self) -> None:
        """Cancel, wait until quiet, let the runtime release the log. Idempotent."""
        await self._inbox.close()

    async def serve(self) -> None:
        """Run turns until `close`."""
        await self._inbox.serve(self._release)

    async def attachment(self, attachment_id: str) -> bytes | None:
        """The bytes of an image that the log names, or None if they are lost."""
        return await anyio.to_thread.run_sync(self._shop.attachments.find, attachment_id)

    def options(self) -> SessionOptions:
        """What can be chosen, and what is chosen."""
        return options_of(self._shop.models, self._mode, self._model)

    def offer_anew(self) -> None:
        """There are other models to choose from."""
        self._emit(OptionsChanged())

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value: see `ports.LiveSession`."""
        residence = self._residence
        async with residence.lock:
            mode, model = chosen(self._shop.models, self._mode, self._model, option, value)
            if (mode, model) == (self._mode, self._model):
                return
            by_mode = option == "mode"
            drafts = mode_rows(mode, before=self._mode) if by_mode else [selection_row(model)]
            host = residence.host
            if host is not None and host.usable and host.control is not None:
                if by_mode:
                    await host.control.set_mode(self.session_id, mode)
                else:
                    await host.control.set_model(self.session_id, model)
            elif residence.events:
                residence.unsaid += drafts
                if not self.busy:
                    await residence.leave()
                    await residence.continue_log()
            self._mode, self._model = mode, model
        self._emit(OptionsChanged())
        self.prepare()

    def prepare(self) -> None:
        """Have a process start and open the session, so that the next prompt need not wait."""
        self._residence.prepare()

    # --- turns --------------------------------------------------------------------------------

    async def _run(self, waiting: WaitingPrompt) -> TurnEnd:
        end = None
        with waiting.scope:
            try:
                end = await self._end_of(waiting.prompt)
            except PeerGoneError:
                end = await self._after_a_loss()
            except BridgeError as failure:
                end = TurnEnd("error", failure.details, "INTERNAL")
            except Exception:  # one session's fault must not end the others
                logger.exception("session %s: a prompt failed", self.session_id)
                end = TurnEnd("error", FAULT, "INTERNAL")
        if end is None or (end.kind == "error" and waiting.scope.cancel_called):
            with anyio.CancelScope(shield=True):
                await self._stop()
            end = TurnEnd("aborted")
        self._fold, self._is_compacting = None, False
        if not self._inbox.closing:
            await self._look()  # it may have written a command: editors take it from here on
        return end

    async def _end_of(self, work: Work) -> TurnEnd:
        await self._look()
        if isinstance(work, Command):
            await self._residence.opened(is_prompted=True)
            await self._give()
            await run_command(self, work, self._shop.new_id())
            return TurnEnd("completed")
        assert isinstance(work, Prompt), "the runtime has an inbox of its own"
        return await self._turn(work)

    async def _turn(self, prompt: Prompt) -> TurnEnd:
        session = await self._residence.opened(is_prompted=True)
        assert session is not None
        await self._give()
        await self._say_news()
        await self._ready_servers()
        self._is_root_idle = False
        fold = self._fold = PromptFold()
        content = content_for_runtime(self._given.content(prompt), prompt.attachments)
        fold.expect(await session.prompt(content))
        await self._until_quiet(session, fold)
        if fold.end is None:
            return TurnEnd("error", "The prompt was given no turn: send it again.", "INTERNAL")
        return end_from_reason(fold.end)

    async def _until_quiet(self, session: Session, fold: PromptFold) -> None:
        """Wait for the turn and for all that it left running.

        When only subagents run, a prompt that waits ends the wait (architecture, "Background
        subagents"); detached, nothing waits for them.
        """
        holds = not self._shop.detaches
        failure: BridgeError | None = None
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                nonlocal failure
                try:
                    await session.wait()
                except BridgeError as fault:
                    failure = fault
                group.cancel_scope.cancel()

            group.start_soon(wait)
            while True:
                if fold.end is not None and self._is_root_idle:
                    if holds and (command := self._inbox.take_command()) is not None:
                        await self._answer_beside(command)
                        continue
                    if not holds or self._inbox.has_waiting:
                        break
                await self._changed.wait()
            group.cancel_scope.cancel()
        if failure is not None and (fold.end is None or isinstance(failure, PeerGoneError)):
            raise failure

    async def _answer_beside(self, waiting: WaitingPrompt) -> None:
        """A command that comes while a prompt is held takes nothing from it."""
        held = self._fold
        with anyio.CancelScope(shield=True):  # whoever cancels the prompt has withdrawn it too
            waiting.settle(await self._run(waiting))
        self._fold = held

    async def _stop(self) -> None:
        """End what the withdrawn prompt started."""
        residence = self._residence
        host = residence.host
        if host is None or self._fold is None:
            return
        if host.control is not None and host.usable:
            try:
                with anyio.fail_after(CANCEL_WAIT_S):
                    await host.control.cancel(self.session_id, alone=self._inbox.is_beside)
                    if self._is_compacting:
                        # What it says of its end follows at once, so it is ahead of this answer.
                        await host.control.state(self.session_id)
            except PeerGoneError:
                await self._after_a_loss()
            except (PeerError, TimeoutError):
                logger.exception("session %s: its turn was not cancelled", self.session_id)
                if await host.end_if_hung():
                    await self._after_a_loss()
            return
        async with residence.lock:
            await residence.leave()
            await residence.continue_log()
        if not self._inbox.closing:
            self.prepare()

    async def _stop_strays(self) -> None:
        """End what works for no prompt; the next one waits for it, since it would be dropped."""
        async with self._residence.lock:
            host = self._residence.host
            if host is not None:
                await self._children.cancel(self.session_id, host)

    async def _after_a_loss(self) -> TurnEnd:
        with anyio.CancelScope(shield=True):
            async with self._residence.lock:
                details = await self._residence.lost()
        return TurnEnd("error", details, "INTERNAL")

    def _first_rows(self, host: Host) -> list[Draft]:
        return [*mode_rows(self._mode, before=None), *self._late_rows(host)]

    def _late_rows(self, host: Host) -> list[Draft]:
        if host.control is not None:
            return []
        said = [*([] if self._knows_no_plugin else [NO_PLUGIN]), *self._news]
        self._knows_no_plugin = True
        self._news.clear()
        return [_notice(text) for text in said]

    async def _say_news(self) -> None:
        while self._news:
            await self._residence.append(_notice(self._news[0]))
            del self._news[0]

    # --- what commands do ---------------------------------------------------------------------

    async def log(self, row: Draft) -> None:
        """Append a row to the log, which must be begun; told when this returns."""
        await self._residence.append(row)

    async def rename(self, title: str) -> str:
        """Give the session a title, once its log is begun; as it is now."""
        host = self._residence.host
        if host is None or not host.usable or not host.can("title"):
            await self.log(Draft("session/title", title_data(title)))
            return title
        assert host.control is not None
        return await host.control.rename(self.session_id, title)

    async def fork(self) -> SessionId | None:
        """Store a fork of the completed turns and leave it closed; None: there are none."""
        return await self._shop.fork(self.session_id, self.cwd)

    async def compact(self, argument: str) -> bool:
        """Have the runtime compact the conversation and log it; False: it cannot."""
        host = self._residence.host
        if host is None or not host.can("compact"):
            return False
        assert host.control is not None
        self._fold, self._is_compacting = PromptFold(), True
        await host.control.compact(self.session_id, argument)
        return True

    async def _release(self) -> None:
        """Side by side: who leaves waits for both."""
        async with anyio.create_task_group() as group:
            if self.servers is not None:
                group.start_soon(self.servers.close)
            await self._residence.release()

    # --- what it is given, MCP servers, what was allowed ---------------------------------------

    async def _begin(self, host: Host) -> None:
        self._given.reopened()
        if self.servers is not None:
            await self.servers.begin(host)

    async def _give(self) -> None:
        host = self._residence.host
        if host is not None:
            await self._given.give(host)

    async def _ready_servers(self) -> None:
        """Before a prompt: have the tools of its servers there, and say what there is to say."""
        servers, host = self.servers, self._residence.host
        if servers is None or host is None or host.control is None:
            return
        await servers.ready()
        await servers.give(host)
        while servers.news:
            await self.log(_notice(servers.news[0]))
            del servers.news[0]

    async def grants_of(self, session_id: SessionId) -> Collection[str]:
        """What was allowed "always" to this session, or to a subagent of it."""
        return await self._grants.of(session_id)

    async def grant(self, session_id: SessionId, grant: str) -> None:
        """Allow something "always", to this session or to a subagent of it."""
        await self._grants.add(session_id, grant, self._residence.host)

    # --- what is told -------------------------------------------------------------------------

    def tell(self, delta: StreamDelta) -> None:
        """A piece of an answer as it arrives."""
        self._emit(delta)

    def tell_of_child(self, child_id: SessionId, delta: StreamDelta) -> None:
        """A piece of a subagent's answer as it arrives."""
        self._children.stream(child_id, delta)

    def _hear(self, notification: Notification) -> None:
        if notification.method == "session.status":
            params = notification.params
            if isinstance(params, dict) and params.get("sessionId") == self.session_id:
                self._is_root_idle = params.get("status") == "idle"
        event = event_of(notification, self.session_id)
        if event is not None:
            self._residence.add(event)
        self._children.hear(notification)
        self._change()

    def _apply(self, event: Event) -> None:
        if self._fold is not None:
            self._fold.apply(event)
        self._memory.apply(event)
        self._emit(event)
        self._children.note(event)
        if event.type in CHOICE_ROWS and not self._residence.unsaid:
            mode = self._memory.mode or self._mode
            model = choice_from_log(self._memory.selection) or self._model
            if (mode, model) != (self._mode, self._model):
                self._mode, self._model = mode, model
                self._emit(OptionsChanged())

    def _emit(self, event: RuntimeEvent) -> None:
        for consumer in self._consumers:
            consumer(event)

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _notice(text: str) -> Draft:
    return Draft(NOTICE_ROW, {"text": text}, ignorable=True)
