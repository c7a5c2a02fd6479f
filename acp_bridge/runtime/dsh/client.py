"""HarnessClient: one connection to the runtime's SDK wire, and who hears which notification.

The wire tells everything of every session, unfiltered. This end keeps the tree of delegations and
gives each notification to the subscriptions of the trees that it belongs to; what belongs to none
goes to a bounded queue that anybody may drain. A client lives as long as its process, and the tree
with it: a new process gets a new client.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import anyio
import attrs

from acp_bridge.errors import (
    MethodNotFoundError,
    PeerError,
    PeerGoneError,
    RuntimeFailedError,
    SessionCorruptError,
)
from acp_bridge.runtime.dsh.backlog import Backlog
from acp_bridge.runtime.dsh.prompts import PromptFold
from acp_bridge.runtime.dsh.tree import SessionTree, edge_of, subject_of
from acp_bridge.runtime.dsh.wire import Listener, RequestHandler
from acp_bridge.sessions.events import event_from_row
from acp_bridge.vocabulary import Event, JsonObject, JsonValue
from acp_bridge.wire.endpoint import ByteStream, Endpoint, Outcome, Reply
from acp_bridge.wire.messages import Notification, Request

logger = logging.getLogger(__name__)

QUEUED_MAX: Final = 10_000
"""Notifications kept for nobody in particular or for a tree's next subscription.

A turn makes about 10, and 6 more a tool call; a row of tool schemas is 20 kB, most far below 1.
"""

COLLECTED_MAX: Final = 100_000
"""Notifications that one run keeps; more reach ``on_notification`` only, and are counted."""

PEER: Final = "DeepSeek Harness"

OnNotification: TypeAlias = Callable[[Notification], None]
"""Called synchronously, in wire order; must not block. What it raises is logged and goes no
further."""


@attrs.frozen(slots=True)
class TurnResult:
    """What came of one run.

    ``notifications`` is the whole stream of the session's tree in wire order, ``events`` the rows
    of the session itself, and ``final_response`` its own last answer: a child's never takes its
    place. ``finish_reason`` is the kind with which the prompt's turn ended. ``uncollected`` counts
    notifications over the bound of a run, which are in neither list.
    """

    session_id: str
    final_response: str
    finish_reason: str
    events: Sequence[Event]
    notifications: Sequence[Notification]
    uncollected: int = 0


class HarnessClient:
    """One end of the SDK wire; `run` serves it, the rest may be used while it does.

    ``is_subagent`` tells from the header of a stored session whether it is a subagent's: forks that
    name a parent are announced like children, and the wire does not tell them apart. ``stray``
    takes lines of the runtime that are no message. Fills `wire.Wire` for the control plugin.
    """

    def __init__(
        self,
        stream: ByteStream,
        *,
        is_subagent: Callable[[str], bool],
        stray: Callable[[bytes], None] = lambda _line: None,
        queued_max: int = QUEUED_MAX,
    ) -> None:
        self._endpoint = Endpoint(stream, self._admit, peer=PEER, stray=stray)
        self._is_subagent = is_subagent
        self._handlers: dict[str, RequestHandler] = {}
        self._listeners: dict[str, Listener] = {}
        self._tree = SessionTree()
        self._subscriptions: dict[str, list[OnNotification]] = {}
        self._roots: set[str] = set()
        """Every session that was subscribed to: what its tree says in between waits for it."""
        self._backlog = Backlog(queued_max)
        self._sessions: dict[str, Session] = {}

    async def run(self) -> None:
        """Serve until the runtime closes its end, or `stop`."""
        await self._endpoint.run()

    def stop(self, cause: str) -> None:
        """End the connection; requests under way fail with this sentence."""
        self._endpoint.stop(cause)

    @property
    def gone(self) -> PeerGoneError | None:
        """Why the connection ended; None while it stands."""
        return self._endpoint.gone

    async def request(self, method: str, params: JsonObject) -> JsonValue:
        """Ask the runtime; no time limit but the caller's.

        Raises:
            PeerError: it refused; the text is its own.
            PeerGoneError: the connection ended first.
        """
        return await self._endpoint.request(method, params)

    def serve(self, method: str, handler: RequestHandler) -> None:
        """Answer the runtime's requests of this method (a control plugin's)."""
        self._handlers[method] = handler

    def listen(self, method: str, listener: Listener) -> None:
        """Tell ``listener`` the notifications of this method, and nobody else."""
        self._listeners[method] = listener

    def session(self, session_id: str) -> "Session":
        """The session of this id, opened or to be made by its first prompt."""
        return self._sessions.setdefault(session_id, Session(self, session_id))

    # --- who hears what -----------------------------------------------------------------------

    @contextmanager
    def subscribe(self, root: str, on_notification: OnNotification) -> Iterator[None]:
        """Hear all that the tree below ``root`` says, and first what it said since the last time.

        Several may hear the same tree.
        """
        heard = self._subscriptions.setdefault(root, [])
        if not heard:
            for notification in self._backlog.take(root):
                _tell([on_notification], notification)
        heard.append(on_notification)
        self._roots.add(root)
        try:
            yield
        finally:
            heard.remove(on_notification)
            if not heard:
                del self._subscriptions[root]

    def forget(self, root: str) -> None:
        """The session is closed: keep nothing more for it. Its tree's edges stay."""
        self._roots.discard(root)
        self._sessions.pop(root, None)
        self._backlog.take(root)

    def drain(self) -> list[Notification]:
        """Notifications of no subscribed tree since the last call, in wire order."""
        return self._backlog.drain()

    @property
    def dropped(self) -> int:
        """How many notifications were not taken in time and are lost, since the start."""
        return self._backlog.dropped

    def _admit(self, message: Request | Notification) -> "Awaitable[Outcome] | None":
        if isinstance(message, Notification):
            self._route(message)
            return None
        handler = self._handlers.get(message.method)
        if handler is None:
            raise MethodNotFoundError(f"Nothing here serves {message.method}.")
        return _reply(handler, message.params if isinstance(message.params, dict) else {})

    def _route(self, notification: Notification) -> None:
        method, params = notification.method, notification.params
        if method in self._listeners:
            self._listeners[method](params if isinstance(params, dict) else {})
            return
        if method == "subagent.started" and not self._attach(params):
            return
        subject = subject_of(method, params)
        lineage = set() if subject is None else set(self._tree.lineage(subject))
        heard = [
            one for root, all_ in self._subscriptions.items() if root in lineage for one in all_
        ]
        if heard:
            _tell(heard, notification)
        else:
            self._backlog.put(notification, frozenset(self._roots & lineage))

    def _attach(self, params: JsonValue) -> bool:
        """Record a delegation, before anybody hears of it; False if it is none."""
        edge = edge_of(params)
        if edge is None or not self._is_subagent(edge[0]):
            logger.info("not a delegation: %.200r", params)
            return False
        self._tree.attach(*edge)
        return True


class Session:
    """One session on the wire. Runs of it follow each other."""

    def __init__(self, client: HarnessClient, session_id: str) -> None:
        self._client = client
        self.session_id = session_id
        self._running = anyio.Lock()

    async def resume(self) -> None:
        """Open a stored session. Raises as `HarnessClient.request`."""
        await self._client.request("session/resume", {"sessionId": self.session_id})

    async def prompt(self, content: Sequence[JsonObject]) -> str:
        """Put a prompt into the session's inbox; the id of its message.

        ``content`` must be text and image blocks: the runtime checks nothing, and any other block
        spoils the session for good.
        """
        assert content
        assert all(block.get("type") in {"text", "image"} for block in content)
        params: JsonObject = {"sessionId": self.session_id, "contentBlocks": [*content]}
        answer = await self._client.request("session/prompt", params)
        message_id = answer.get("messageId") if isinstance(answer, dict) else None
        if not isinstance(message_id, str):
            raise PeerError(f"{PEER} took a prompt and named no message.", code=-32603)
        return message_id

    async def wait(self) -> None:
        """Wait until the session is idle and its children have settled."""
        await self._client.request("session/wait", {"sessionId": self.session_id})

    async def run(
        self,
        content: Sequence[JsonObject],
        *,
        on_notification: OnNotification = lambda _notification: None,
        collected_max: int = COLLECTED_MAX,
    ) -> TurnResult:
        """Prompt, wait until all is quiet, and give what happened meanwhile in the whole tree.

        Raises:
            PeerError: the runtime refused the prompt.
            PeerGoneError: it ended first.
            RuntimeFailedError: all is quiet and the prompt had no turn.
        """
        collected = _Collected(self.session_id, on_notification, collected_max)
        async with self._running:
            with self._client.subscribe(self.session_id, collected.take):
                # What was kept since the last run is a part of the stream, but no answer to this.
                collected.fold = PromptFold()
                collected.fold.expect(await self.prompt(content))
                await self.wait()
        return collected.result()


class _Collected:
    """What one run has heard."""

    def __init__(self, root: str, on_notification: OnNotification, collected_max: int) -> None:
        self.fold = PromptFold()
        self._root = root
        self._tell = on_notification
        self._max = collected_max
        self._heard: list[Notification] = []
        self._events: list[Event] = []
        self._uncollected = 0

    def take(self, notification: Notification) -> None:
        if len(self._heard) < self._max:
            self._heard.append(notification)
        else:
            self._uncollected += 1
        event = event_of(notification, self._root)
        if event is not None:
            self.fold.apply(event)
            if not self._uncollected:
                self._events.append(event)
        self._tell(notification)

    def result(self) -> TurnResult:
        end = self.fold.end
        if end is None:
            raise RuntimeFailedError(
                f"{PEER} took a prompt of session {self._root} and gave it no turn: send it again."
            )
        return TurnResult(
            self._root,
            self.fold.answer,
            str(end.get("kind")),
            self._events,
            self._heard,
            self._uncollected,
        )


def event_of(notification: Notification, session_id: str) -> Event | None:
    """The log row that a notification tells of this session; None for anything else."""
    params = notification.params
    if notification.method != "session.event" or not isinstance(params, dict):
        return None
    row = params.get("event")
    if params.get("sessionId") != session_id or not isinstance(row, dict):
        return None
    seq = row.get("seq")
    try:
        return event_from_row(row, seq if type(seq) is int else -1)
    except SessionCorruptError as fault:
        logger.warning("session %s: a row on the wire is none (%s)", session_id, fault.details)
        return None


async def _reply(handler: RequestHandler, params: JsonObject) -> Reply:
    return Reply(await handler(params))


def _tell(heard: Iterable[OnNotification], notification: Notification) -> None:
    for one in [*heard]:
        try:
            one(notification)
        except Exception:
            logger.exception("what hears %s failed", notification.method)
