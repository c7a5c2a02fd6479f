"""A session that a connection has open, and what of it the client is shown, live and replayed.

While a replay is shown, what happens meanwhile waits: else a busy session's updates would come in
the middle of its past. What concerns subagents waits on, until the answer to the load is sent and
those that work are announced anew (ACP v1, Subagents).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio.lowlevel

from acp_bridge.acp.client_side import ClientCalls
from acp_bridge.acp.types import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigOption,
    SessionUpdate,
)
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.config_options import commands_update, config_from_options
from acp_bridge.bridge.notices import failure
from acp_bridge.bridge.permissions import AcpClient
from acp_bridge.bridge.subagent_family import Shown
from acp_bridge.bridge.subagent_history import history, missed
from acp_bridge.bridge.subagent_view import CHILD_EVENTS, SubagentView
from acp_bridge.errors import BridgeError
from acp_bridge.ports import LiveSession
from acp_bridge.vocabulary import (
    CommandsChanged,
    Descendant,
    Event,
    OptionsChanged,
    RuntimeEvent,
    SessionId,
)

logger = logging.getLogger(__name__)

EVENTS_PER_YIELD = 100
"""Events replayed between two looks at the event loop: a long log must not delay other sessions."""


class OpenSession:
    """One open session; made when it is opened, it shows the client what happens from then on.

    ``descendants`` are the subagents that it has already. ``told_mode`` and ``told_config`` are
    what the client last heard of the two forms of the options; while requests of the client set
    some (``being_set``), their answers come before any update. ``cancels`` counts those that came.
    """

    def __init__(
        self,
        live: LiveSession,
        client: AcpClient,
        calls: ClientCalls,
        view: View,
        descendants: Sequence[Descendant] = (),
    ) -> None:
        self.live = live
        self.client = client
        self.being_set = 0
        self.cancels = 0
        self.told_mode = ""
        self.told_config: list[SessionConfigOption] = []
        self._calls = calls
        self._view = view
        self._shown = SubagentView(live.session_id, live.cwd, view)
        self._dropped = 0
        self._held: list[Shown] | None = None
        """During a replay: what happens meanwhile, of the root alone or, as tool calls, of all."""
        self._children_held: list[Shown] | None = None
        """From a replay's start until its answer is sent: what subagents do as sessions."""
        self._recorded: list[RuntimeEvent] | None = None
        """What happens while the logs for a replay are read, which may not have it yet."""
        self._unread: list[Shown] = []
        """What it would show; shown only if no replay comes of it."""
        # The stored part is folded silently: ids, titles and the context's size follow from it.
        self._shown.prime(history(live.session_id, live.events, descendants))
        client.session_id = live.session_id
        client.asked = self._shown.asked
        client.waiting = self._waiting
        live.attach(self._consume)

    def tell_commands(self) -> None:
        """The slash commands."""
        self.show(commands_update(self.live.commands))

    def tell_options(self) -> None:
        """Both forms of the options, where the client does not know them: controls follow."""
        if self.being_set:
            return
        options = self.live.options()
        config = config_from_options(options)
        if self._view.config_options and config != self.told_config:
            self.told_config = config
            self.show(ConfigOptionUpdate(config_options=config))
        if options.mode != self.told_mode:
            self.told_mode = options.mode
            self.show(CurrentModeUpdate(current_mode_id=options.mode))

    def tell_failure(self, details: str, code: str | None) -> None:
        """Say why a turn failed whose end answers no request."""
        logger.warning(
            "session %s: a turn failed beside any prompt: %s", self.live.session_id, code
        )
        message_id = f"failed.{len(self.live.events)}"
        self.show(failure(details, message_id, as_notice=self._view.notices))

    def show(self, update: SessionUpdate) -> None:
        """Send an update of the session itself, now or behind the replay."""
        self._show_all([(self.live.session_id, update)], self._held)

    def knows_child(self, session_id: str) -> bool:
        """Whether this is one of the session's subagents."""
        return self._shown.knows(session_id)

    def cancel_child(self, session_id: str) -> None:
        """Stop a subagent, if the client was told that it may."""
        if self._shown.can_cancel(session_id):
            self.live.cancel_child(SessionId(session_id))

    async def replay(self) -> None:
        """Show all that happened so far, then what happened while it was shown.

        `tell_running` must follow, whatever becomes of this.
        """
        live = self.live
        self._held, self._children_held = [], []
        self._recorded, self._unread = [], []
        try:
            descendants = await descendants_of(live)
            # From here to the next wait, the past and what comes after it are told apart.
            recorded, self._recorded = self._recorded, None
            ours, theirs = self._shown.unfinished()
            self._held += ours
            self._children_held = theirs
            events = list(live.events)
            past = list(history(live.session_id, events, descendants))
            past += missed(past, recorded, descendants, self._shown.told)
            self._shown.forget_announcements()
            images = await _images(live, events)
            shown = SubagentView(
                live.session_id, live.cwd, self._view, replay=True, find_attachment=images.get
            )
            for number, event in enumerate(past):
                self._send(shown.project(event))
                await self._calls.flow()
                if number % EVENTS_PER_YIELD == EVENTS_PER_YIELD - 1:
                    await anyio.lowlevel.checkpoint()
            self._send(shown.finish_replay())
        finally:
            held, self._held = self._held, None
            if self._recorded is not None:  # it was given up before there was a past to show
                self._recorded = None
                self._send(self._unread)
            self._send(held)

    def tell_running(self) -> None:
        """Announce the subagents that work, then what they did since the replay began."""
        held, self._children_held = self._children_held or [], None
        self._send(self._shown.running())
        self._send(held)

    def tell_reopened(self) -> None:
        """What follows the answer of a load or a resume: who works, and the slash commands."""
        self.tell_running()
        self.tell_commands()

    def _consume(self, event: RuntimeEvent) -> None:
        if self._recorded is not None:
            # The replay that is about to begin will show it, or what it belongs to.
            self._unread += self._shown.project(event)
            self._recorded.append(event)
            self._tell_changes(event)
            return
        apart = self._view.native_subagents and isinstance(event, CHILD_EVENTS)
        self._show_all(self._shown.project(event), self._children_held if apart else self._held)
        self._tell_changes(event)
        if self._shown.dropped > self._dropped:
            self._dropped = self._shown.dropped
            logger.warning(
                "session %s: %d events of subagents that never started are not shown",
                self.live.session_id,
                self._dropped,
            )

    def _tell_changes(self, event: RuntimeEvent) -> None:
        if isinstance(event, OptionsChanged):
            self.tell_options()
        elif isinstance(event, CommandsChanged):
            self.tell_commands()

    @contextmanager
    def _waiting(self, child_id: SessionId) -> Iterator[None]:
        """A question of a subagent is open."""
        if self._children_held is not None:
            self.tell_running()  # the client must have what it is asked about
        self._send(self._shown.waits(child_id, for_user=True))
        try:
            yield
        finally:
            self._send(self._shown.waits(child_id, for_user=False))

    def _show_all(self, shown: list[Shown], held: list[Shown] | None) -> None:
        if held is None:
            self._send(shown)
        else:
            held += shown

    def _send(self, shown: list[Shown]) -> None:
        for session_id, update in shown:
            self._calls.session_update(session_id, update)


async def descendants_of(live: LiveSession) -> Sequence[Descendant]:
    """A session's subagents; none where the store cannot say, so that its own past opens still."""
    try:
        return await live.descendants()
    except BridgeError as failure:
        logger.warning(
            "session %s is opened without its subagents: %s", live.session_id, failure.details
        )
        return ()


async def _images(live: LiveSession, events: list[Event]) -> dict[str, bytes]:
    """The bytes of every image in the user's messages, fetched before the fold."""
    found: dict[str, bytes] = {}
    for event in events:
        content = event.data.get("content") if isinstance(event.data, dict) else None
        if event.type != "user/message" or not isinstance(content, list):
            continue
        for block in content:
            attachment = block.get("attachment") if isinstance(block, dict) else None
            if isinstance(attachment, dict):
                name = str(attachment.get("attachmentId"))
                data = await live.attachment(name)
                if data is not None:
                    found[name] = data
    return found
