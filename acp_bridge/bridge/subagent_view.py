"""A root session and its subagents to what a client is shown: one fold, live and replay. Pure.

Each session has a projector of its own. What the client gets of them is decided by a form (see
`subagent_forms`), which this fold gives everything in an order that makes sense: a parent before
its child, a start before what follows from it. What comes early waits for what it depends on, so
that every order of arrival shows the same: one entry for each run, and nothing is dropped.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from acp_bridge.bridge.clients import View
from acp_bridge.bridge.projector import FindAttachment, Projector
from acp_bridge.bridge.subagent_family import Asked, Child, Family, Form, Shown
from acp_bridge.bridge.subagent_forms import form_of
from acp_bridge.bridge.subagent_history import Told, told_of
from acp_bridge.ports import PermissionAsk, QuestionsAsk
from acp_bridge.vocabulary import (
    ChildFinished,
    ChildMessaged,
    ChildProgressed,
    ChildSaid,
    ChildStarted,
    RuntimeEvent,
    SessionId,
)

ChildEvent: TypeAlias = ChildStarted | ChildSaid | ChildMessaged | ChildProgressed | ChildFinished

CHILD_EVENTS: Final = (ChildStarted, ChildSaid, ChildMessaged, ChildProgressed, ChildFinished)

PARKED_MAX: Final = 10_000
"""Events that wait for a start. Only a runtime that lost one gets there; then the oldest go."""


class SubagentView:
    """The fold for one consumer of a root session; see `Projector` for ``replay`` and images."""

    def __init__(
        self,
        root_id: SessionId,
        cwd: Path,
        view: View,
        *,
        replay: bool = False,
        find_attachment: FindAttachment = lambda _id: None,
    ) -> None:
        self._root = Projector(
            cwd=cwd,
            view=view,
            replay=replay,
            find_attachment=find_attachment,
            holds_delegations=not view.native_subagents,
        )
        self._family = Family(root_id, cwd, self._root, {}, view, replay)
        self._form: Form = form_of(self._family)
        self._parked: dict[SessionId, deque[ChildEvent]] = defaultdict(deque)
        self._parked_count = 0
        self.dropped = 0
        """Events that waited for a start in vain."""
        self.told: Counter[Told] = Counter()
        """How often each subagent was told to begin, to have a message, and to end."""

    def project(self, event: RuntimeEvent) -> list[Shown]:
        """The updates that this event means, in order, each with its session."""
        if isinstance(event, CHILD_EVENTS):
            return list(self._child_event(event))
        root_id = self._family.root_id
        return [(root_id, update) for update in self._root.project(event)]

    def prime(self, past: Iterable[RuntimeEvent]) -> None:
        """Fold silently what the client is not shown now: ids and numbers follow from it."""
        for event in past:
            self.project(event)
        for child in self._family.children.values():
            child.announced = False

    def running(self) -> list[Shown]:
        """Say anew who works, each after its parent: comes behind the answer to load and resume."""
        shown: list[Shown] = []
        for child in list(self._family.children.values()):
            if child.state == "running":
                child.announced = False
                shown += self._form.again(child)
        return shown

    def forget_announcements(self) -> None:
        """The client draws everything anew: what a replay announces cannot be acted on."""
        for child in self._family.children.values():
            child.announced = False

    def finish_replay(self) -> list[Shown]:
        """What a replay ends with: each session's context."""
        root_id = self._family.root_id
        shown = [(root_id, update) for update in self._root.finish_replay()]
        for child in self._family.children.values():
            shown += self._form.closed(child)
        return shown

    def unfinished(self) -> tuple[list[Shown], list[Shown]]:
        """What a replay cannot know, of the root and of its subagents."""
        root_id = self._family.root_id
        ours = [(root_id, update) for update in self._root.unfinished()]
        theirs: list[Shown] = []
        for child in self._family.children.values():
            if child.state == "running":
                theirs += self._form.unfinished(child)
        return ours, theirs

    def knows(self, session_id: str) -> bool:
        """Whether this is a subagent of the root, at any depth."""
        return session_id in self._family.children

    def can_cancel(self, session_id: str) -> bool:
        """Whether the client was told that it may cancel this subagent."""
        child = self._family.children.get(SessionId(session_id))
        return child is not None and child.announced and self._family.view.native_subagents

    def asked(self, ask: PermissionAsk | QuestionsAsk) -> Asked | None:
        """Where a question is asked; None: the client knows no such call or asker."""
        if ask.child_id is None:
            call = self._root.shown_call(ask.call_id)
            return None if call is None else Asked(self._family.root_id, call, call.look.title)
        child = self._family.children.get(ask.child_id)
        call = None if child is None else child.projector.shown_call(ask.call_id)
        return None if child is None or call is None else self._form.asked(child, call)

    def waits(self, child_id: SessionId, *, for_user: bool) -> list[Shown]:
        """A question of this subagent is open from now on, or no more."""
        child = self._family.children[child_id]
        child.asking += 1 if for_user else -1
        if child.state == "idle" or child.asking != int(for_user):
            return []
        return list(self._form.waits(child, for_user=for_user))

    def _child_event(self, event: ChildEvent) -> Iterable[Shown]:
        waits_for = self._waits_for(event)
        if waits_for is not None:
            self._park(waits_for, event)
            return
        if (key := told_of(event)) is not None:
            self.told[key] += 1
        match event:
            case ChildStarted():
                yield from self._started(event)
                yield from self._unpark(event.child_id)
            case ChildSaid(child_id=child_id, event=said):
                child = self._family.children[child_id]
                yield from self._form.said(child, said, child.projector.project(said))
            case ChildMessaged():
                child = self._family.children[event.child_id]
                child.messages += 1
                yield from self._form.messaged(child, event)
            case ChildProgressed():
                child = self._family.children[event.child_id]
                if child.state == "running":
                    child.standing = event.words
                    yield from self._form.progressed(child)
            case ChildFinished():
                child = self._family.children[event.child_id]
                child.state = "idle"
                yield from self._form.finished(child, event)
                yield from self._unpark(event.child_id)

    def _waits_for(self, event: ChildEvent) -> SessionId | None:
        """The session that has to be told of before this event makes sense."""
        child = self._family.children.get(event.child_id)
        if isinstance(event, ChildStarted):
            known = event.parent_id == self._family.root_id
            if not known and event.parent_id not in self._family.children:
                return event.parent_id
            # Its last run has not ended yet, as far as was told.
            return event.child_id if child is not None and child.state == "running" else None
        if child is None:
            return event.child_id
        # Idle, it ends no run: this is of one whose start is still to come.
        is_early = isinstance(event, ChildFinished) or bool(self._parked.get(event.child_id))
        return event.child_id if child.state == "idle" and is_early else None

    def _started(self, event: ChildStarted) -> Iterable[Shown]:
        child = self._family.children.get(event.child_id)
        if child is None:
            child = self._new_child(event)
            self._family.children[event.child_id] = child
        child.label = event.label
        child.runs += 1
        child.messages = 0
        child.standing = ""
        child.state = "running"
        yield from self._form.started(child, event)

    def _new_child(self, event: ChildStarted) -> Child:
        family = self._family
        parent = family.children.get(event.parent_id)
        projector = Projector(
            cwd=event.cwd,
            view=family.view,
            replay=family.replay,
            child=self._form.look(event.child_id),
        )
        return Child(
            session_id=event.child_id,
            parent_id=event.parent_id,
            label=event.label,
            cwd=event.cwd,
            projector=projector,
            depth=1 if parent is None else parent.depth + 1,
        )

    def _park(self, waits_for: SessionId, event: ChildEvent) -> None:
        self._parked[waits_for].append(event)
        self._parked_count += 1
        if self._parked_count > PARKED_MAX:
            longest = max(self._parked.values(), key=len)
            longest.popleft()
            self._parked_count -= 1
            self.dropped += 1

    def _unpark(self, session_id: SessionId) -> Iterable[Shown]:
        """Tell what waited for this session; what still cannot be told waits on, in its order."""
        waiting: Sequence[ChildEvent] = self._parked.pop(session_id, deque())
        self._parked_count -= len(waiting)
        for event in waiting:
            yield from self._child_event(event)
