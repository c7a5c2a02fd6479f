"""Notifications that nobody has taken yet: bounded, and what had to be dropped is counted."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from acp_bridge.wire.messages import Notification


class _Kept(NamedTuple):
    notification: Notification
    trees: frozenset[str]


class Backlog:
    """At most ``size_max`` notifications, in wire order; the oldest give way to new ones.

    Those of a tree wait for its next subscription, the others for whoever drains them.
    """

    def __init__(self, size_max: int) -> None:
        self._kept: deque[_Kept] = deque(maxlen=size_max)
        self.dropped = 0
        """How many gave way, of both kinds."""

    def put(self, notification: Notification, trees: frozenset[str]) -> None:
        """Keep one that belongs to these trees' roots, or to none."""
        if len(self._kept) == self._kept.maxlen:
            self.dropped += 1
        self._kept.append(_Kept(notification, trees))

    def take(self, root: str) -> list[Notification]:
        """Those of a tree; they are gone from here."""
        return self._remove(lambda kept: root in kept.trees)

    def drain(self) -> list[Notification]:
        """Those of no tree; they are gone from here."""
        return self._remove(lambda kept: not kept.trees)

    def _remove(self, wanted: Callable[[_Kept], bool]) -> list[Notification]:
        taken = [kept.notification for kept in self._kept if wanted(kept)]
        if taken:
            rest = [kept for kept in self._kept if not wanted(kept)]
            self._kept = deque(rest, maxlen=self._kept.maxlen)
        return taken
