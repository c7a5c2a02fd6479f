"""The session's plan: named, and removed, where the client takes that; else a list. Pure."""

from collections.abc import Iterable
from typing import Final

from acp_bridge.acp.types import (
    Plan,
    PlanEntry,
    PlanItems,
    PlanRemoved,
    PlanUpdate,
    SessionUpdate,
)
from acp_bridge.bridge.log_rows import plan_status
from acp_bridge.vocabulary import JsonObject

PLAN_ID: Final = "todos"
"""A session has one plan, so that it needs no more of a name; it is the same after a load."""


class Plans:
    """The fold for one session. ``by_id``: the client has negotiated ``plan``."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id
        self._is_shown = False

    def written(self, data: JsonObject) -> Iterable[SessionUpdate]:
        """``todo/write``: the whole plan; an empty one takes it away."""
        todos = data.get("todos")
        entries = [
            PlanEntry(
                content=str(todo.get("content")),
                priority="medium",
                status=plan_status(todo.get("status")),
            )
            for todo in (todos if isinstance(todos, list) else [])
            if isinstance(todo, dict)
        ]
        if not self._by_id:
            yield Plan(entries=entries)
        elif entries:
            self._is_shown = True
            yield PlanUpdate(plan=PlanItems(plan_id=PLAN_ID, entries=entries))
        elif self._is_shown:
            self._is_shown = False
            yield PlanRemoved(plan_id=PLAN_ID)
