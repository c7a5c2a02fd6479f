"""A live session of the real runtime behind `ports.LiveSession`.

Its log is begun and reopened by us and continued by the runtime, which tells each row on the wire.
What it does not tell (a shutdown's last rows, a crash's repair) is read from the log afterwards, so
that consumers hear every row once, in order.

Without the control plugin a turn is cancelled by the end of its process, which this session then
has for itself; the next prompt finds a new one. Mode and model are then changed in the log, between
two processes.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.errors import (
    FAULT,
    BridgeError,
    InvalidParamsError,
    PeerError,
    PeerGoneError,
    RuntimeFailedError,
    SessionConflictError,
    SessionNotFoundError,
)
from acp_bridge.harness.memory import NOTICE_ROW, SessionMemory
from acp_bridge.harness.modes import MODES, mode_rows
from acp_bridge.harness.waiting import WaitingPrompt, Work
from acp_bridge.ports import DEFAULT_EFFORT, Client, Consumer, OptionName, SessionOptions
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.runtime.dsh.children import Children
from acp_bridge.runtime.dsh.client import Session, event_of
from acp_bridge.runtime.dsh.control_types import ModelChoice, Opening
from acp_bridge.runtime.dsh.host import Host
from acp_bridge.runtime.dsh.hosts import Hosts
from acp_bridge.runtime.dsh.logs import begin_log, continue_log, first_difference
from acp_bridge.runtime.dsh.models import DshModels, choice_from_log, choice_of, model_id_of
from acp_bridge.runtime.dsh.prompt_queue import PromptQueue
from acp_bridge.runtime.dsh.prompts import PromptFold, content_for_runtime, end_from_reason
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.store import SessionStore
from acp_bridge.vocabulary import (
    Command,
    CommandInfo,
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

logger = logging.getLogger(__name__)

CANCEL_WAIT_S: Final = 8.0
"""How long a cancel may take: a command that ignores SIGTERM is killed after 3 s."""

OPEN_WAIT_S: Final = 30.0
"""How long the runtime may take to open a session: 20 ms, and more for a log of many megabytes."""

CLOSE_WAIT_S: Final = 15.0
"""How long a close may take: a cancel, and the end of the process."""

NO_PLUGIN: Final = (
    "The control plugin did not start in DeepSeek Harness: answers come whole instead of "
    "streaming, nothing can be asked (what would need your permission is refused), and a cancel "
    "restarts the runtime. `acp-bridge doctor` says what is missing."
)

_HELD: Final = ("already owned by an active write handle", "already open or opening")


@attrs.frozen(slots=True)
class Shop:
    """What the sessions of one runtime share. ``detaches``: no prompt waits for subagents."""

    store: SessionStore
    hosts: Hosts
    models: DshModels
    attachments: AttachmentStore
    group: anyio.abc.TaskGroup
    detaches: bool = False


class DshSession:
    """Implements `ports.LiveSession`; ``serve`` must run in a task for as long as it is open.

    ``events`` are its log so far; empty: nothing is stored before its first prompt. ``mode`` and
    ``model`` hold where the log says nothing. ``notice`` is a sentence that a new log begins with.
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
        notice: str | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        assert header.cwd is not None
        self.folders = folders
        """More roots of the workspace, as the client gave them at the last opening."""
        self._shop = shop
        self._header = header
        self.client = client
        self._events = list(events)
        self._memory = SessionMemory(events)
        self._notice = notice
        self._mode = self._memory.mode or mode
        self._model = choice_from_log(self._memory.selection) or model
        self.grants: dict[SessionId, set[str]] = defaultdict(set)
        """What the user allowed "always", to this session and to each of its subagents; not in the
        log, which is not ours."""
        self.grants[self.session_id] |= set(self._memory.grants)
        self._inbox = PromptQueue(self.session_id, self._run, close_wait_s=CLOSE_WAIT_S)
        self._consumers: list[Consumer] = []
        self._host: Host | None = None
        self._heard = ExitStack()
        self._opening = anyio.Lock()
        self._preparing: set[anyio.CancelScope] = set()
        self._unsaid: list[Draft] = []
        """Choices that the runtime could not be told: rows for the log's next opening by us."""
        self._children = Children(header, events, shop.store, self._emit)
        self._fold: PromptFold | None = None
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
        return self._events

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
        """None: what begins with a slash goes to the model as it is."""
        return ()

    def attach(self, consumer: Consumer) -> None:
        """Tell ``consumer`` everything from now on."""
        self._consumers.append(consumer)

    def admit(self, prompt: Prompt | Command) -> WaitingPrompt:
        """Take a prompt, synchronously, first in first out."""
        waiting = self._inbox.admit(prompt)
        self._change()
        return waiting

    async def interject(self, prompt: Prompt) -> bool:  # noqa: ARG002
        """Nothing is taken: a prompt waits for its turn."""
        return False

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
        if self.has_child(child_id) and self._host is not None:
            self._shop.group.start_soon(self._children.cancel, child_id, self._host)

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
        models = list(self._shop.models.available())
        model_id = model_id_of(self._model)
        if all(info.model_id != model_id for info in models):
            models.insert(0, self._shop.models.info(model_id))
        return SessionOptions(self._mode, model_id, self._model.effort, models)

    async def choose(self, option: OptionName, value: str) -> None:
        """Choose a value: see `ports.LiveSession`."""
        async with self._opening:
            mode, model = self._chosen(option, value)
            if (mode, model) == (self._mode, self._model):
                return
            drafts = mode_rows(mode, before=self._mode) if option == "mode" else [_selection(model)]
            host = self._host
            if host is not None and host.usable and host.control is not None:
                if option == "mode":
                    await host.control.set_mode(self.session_id, mode)
                else:
                    await host.control.set_model(self.session_id, model)
            elif self._events:
                self._unsaid += drafts
                if not self.busy:
                    await self._leave()
                    await self._continue_log()
            self._mode, self._model = mode, model
        self._emit(OptionsChanged())
        self.prepare()

    def _chosen(self, option: OptionName, value: str) -> tuple[Mode, ModelChoice]:
        options = self.options()
        match option:
            case "mode":
                allowed = list(MODES)
            case "model":
                allowed = [info.model_id for info in options.models]
            case "effort":
                allowed = [DEFAULT_EFFORT, *options.efforts] if options.efforts else []
        if value not in allowed:
            there_is = ", ".join(allowed) or "none for this model"
            raise InvalidParamsError(
                f"There is no {option} {value!r:.100} to choose: there is {there_is}.",
                field="value",
            )
        if option == "mode":
            return MODES[value].mode, self._model
        if option == "effort":
            effort = None if value == DEFAULT_EFFORT else value
            return self._mode, attrs.evolve(self._model, effort=effort)
        effort = self._model.effort
        known = self._shop.models.info(value).efforts
        return self._mode, choice_of(value, effort if effort in known else None)

    # --- turns --------------------------------------------------------------------------------

    async def _run(self, waiting: WaitingPrompt) -> TurnEnd:
        end = None
        with waiting.scope:
            try:
                end = await self._turn(waiting.prompt)
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
        self._fold = None
        return end

    async def _turn(self, prompt: Work) -> TurnEnd:
        assert isinstance(prompt, Prompt), "there are no commands here"
        session = await self._opened(is_prompted=True)
        assert session is not None
        self._is_root_idle = False
        fold = self._fold = PromptFold()
        fold.expect(await session.prompt(content_for_runtime(prompt)))
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
            while (
                (holds and not self._inbox.has_waiting)
                or not self._is_root_idle
                or fold.end is None
            ):
                await self._changed.wait()
            group.cancel_scope.cancel()
        if failure is not None and (fold.end is None or isinstance(failure, PeerGoneError)):
            raise failure

    async def _stop(self) -> None:
        """End what the withdrawn prompt started."""
        host = self._host
        if host is None or self._fold is None:
            return
        if host.control is not None and host.usable:
            try:
                with anyio.fail_after(CANCEL_WAIT_S):
                    await host.control.cancel(self.session_id)
            except PeerGoneError:
                await self._after_a_loss()
            except (PeerError, TimeoutError):
                logger.exception("session %s: its turn was not cancelled", self.session_id)
            return
        async with self._opening:
            await self._leave()
            await self._continue_log()
        if not self._inbox.closing:
            self.prepare()

    async def _stop_strays(self) -> None:
        """End what works for no prompt; the next one waits for it, since it would be dropped."""
        async with self._opening:
            if self._host is not None:
                await self._children.cancel(self.session_id, self._host)

    async def _after_a_loss(self) -> TurnEnd:
        """The process is gone: what is known of why, and what the log says since."""
        host = self._host
        details = "DeepSeek Harness is gone: send the prompt again."
        with anyio.CancelScope(shield=True):
            async with self._opening:
                await self._leave()
                if host is not None:
                    try:
                        await host.ready()
                    except RuntimeFailedError as failure:
                        details = f"{failure.details} The session goes on with the next prompt."
                await self._continue_log()
        return TurnEnd("error", details, "INTERNAL")

    # --- the log and the process --------------------------------------------------------------

    def prepare(self) -> None:
        """Have a process start, and open the session there, so that the next prompt need not wait.

        What goes wrong is left for that prompt to find and tell.
        """
        self._shop.group.start_soon(self._prepare)

    async def _prepare(self) -> None:
        with anyio.CancelScope() as scope:
            self._preparing.add(scope)
            try:
                await self._opened(is_prompted=False)
            except BridgeError as failure:
                logger.warning("session %s: %s", self.session_id, failure.details)
            finally:
                self._preparing.discard(scope)

    async def _opened(self, *, is_prompted: bool) -> Session | None:
        """The session as the wire has it, opened there if need be.

        None if nothing is stored yet and no prompt asks for it.
        """
        async with self._opening:
            host = self._host
            if host is not None and host.usable and not self._unsaid:
                return host.client.session(self.session_id)
            if self._inbox.closing:
                raise RuntimeFailedError(f"Session {self.session_id} is being closed.")
            if host is not None:
                await self._leave()
                await self._continue_log()
            elif self._unsaid:
                await self._continue_log()
            if not self._events and not is_prompted:
                self._shop.hosts.prewarm()
                return None
            host = await self._shop.hosts.take(self.session_id)
            try:
                # Shielded: else the runtime might open it for nobody, and keep its lock.
                with anyio.fail_after(OPEN_WAIT_S, shield=True):
                    if not self._events:
                        await self._begin_log(host)
                    return await self._open_in(host)
            except BaseException as failure:
                with anyio.CancelScope(shield=True):
                    await self._shop.hosts.release(host, self.session_id)
                if isinstance(failure, TimeoutError):
                    raise RuntimeFailedError(
                        f"DeepSeek Harness did not open session {self.session_id} within "
                        f"{OPEN_WAIT_S:.0f} s: try again."
                    ) from failure
                raise

    async def _open_in(self, host: Host) -> Session:
        session = host.client.session(self.session_id)
        try:
            if host.control is not None:
                opening = Opening(self.session_id, str(self.cwd), model=self._model)
                await host.control.resume_session(opening)
            else:
                await host.set_up(str(self.cwd), self._model)
                await session.resume()
        except PeerError as refusal:
            raise self._refusal(refusal) from refusal
        self._heard.enter_context(host.client.subscribe(self.session_id, self._hear))
        self._host = host
        return session

    def _refusal(self, refusal: PeerError) -> BridgeError:
        if any(words in refusal.details for words in _HELD):
            return SessionConflictError(
                f"Session {self.session_id} is open in another program: close it there, then send "
                "the prompt again."
            )
        return RuntimeFailedError(refusal.details)

    async def _begin_log(self, host: Host) -> None:
        drafts = mode_rows(self._mode, before=None)
        for text in (NO_PLUGIN if host.control is None else None, self._notice):
            if text is not None:
                drafts.append(Draft(NOTICE_ROW, {"text": text}, ignorable=True))
        write = partial(begin_log, self._shop.store, self._header, drafts)
        self._take(await anyio.to_thread.run_sync(write))

    async def _continue_log(self) -> None:
        """Hear from the log what the wire did not tell, and write what the runtime was not told."""
        drafts, self._unsaid = self._unsaid, []
        write = partial(continue_log, self._shop.store, self.session_id, drafts)
        try:
            _, stored = await anyio.to_thread.run_sync(write)
        except SessionNotFoundError:
            self._events.clear()  # it ended before anything was stored
            return
        except BaseException:
            self._unsaid = drafts
            raise
        self._take(stored)

    def _take(self, stored: Sequence[Event]) -> None:
        at = first_difference(self._events, stored)
        if at < len(self._events):
            logger.warning("session %s: rows from seq %d were lost", self.session_id, at)
            del self._events[at:]
        for event in stored[at:]:
            self._apply(event)

    async def _leave(self) -> None:
        """Let go of the process, which has closed the log when this returns."""
        host, self._host = self._host, None
        if host is None:
            return
        self._heard.close()
        if host.usable and host.control is not None:
            try:
                with anyio.fail_after(CANCEL_WAIT_S):
                    await host.control.close(self.session_id)
            except (PeerError, PeerGoneError, TimeoutError):
                logger.exception("session %s was not closed", self.session_id)
        if host.usable:
            host.client.forget(self.session_id)
        await self._shop.hosts.release(host, self.session_id)
        if not host.usable:
            await host.wait_ended()
        await self._children.settle()

    async def _release(self) -> None:
        for scope in self._preparing:
            scope.cancel()
        async with self._opening:
            await self._leave()
            if self._unsaid:
                try:
                    await self._continue_log()
                except BridgeError as failure:
                    logger.warning("session %s: %s", self.session_id, failure.details)

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
            if event.seq != len(self._events):
                logger.warning(
                    "session %s: seq %d came after %d rows",
                    self.session_id,
                    event.seq,
                    len(self._events),
                )
            self._apply(event)
        self._children.hear(notification)
        self._change()

    def _apply(self, event: Event) -> None:
        self._events.append(event)
        if self._fold is not None:
            self._fold.apply(event)
        self._memory.apply(event)
        self._emit(event)
        self._children.note(event)
        if event.type in _CHOICES and not self._unsaid:
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


_CHOICES: Final = frozenset(
    {"sandbox/mode", "approval/policy", "plan/mode", "model/selection", "request/header"}
)


def _selection(model: ModelChoice) -> Draft:
    effort = {} if model.effort is None else {"reasoningEffort": model.effort}
    return Draft("model/selection", {"provider": model.provider, "model": model.model, **effort})
