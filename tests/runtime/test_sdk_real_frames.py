"""The SDK wire's notifications against frames that the real runtime sent.

What the captures hold of rows and subagents is told to a `Feed`, which must say what was sent.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.runtime.sdk.feed import Feed, Notice
from acp_bridge.sessions.events import event_from_row
from acp_bridge.vocabulary import (
    CallId,
    ChildFinished,
    ChildSaid,
    ChildStarted,
    Event,
    RuntimeEvent,
    SessionId,
    TurnEnd,
)

REPO = Path(__file__).parents[2]
Message = dict[str, Any]


def captures() -> list[Path]:
    shared = Path(os.environ.get("ACP_BRIDGE_SHARED", REPO.parent / "shared"))
    found = sorted((shared / "data" / "dsh-0.2.1rc2" / "wire").glob("*.jsonl"))
    assert found, f"{shared} has no captures: set ACP_BRIDGE_SHARED to the shared folder"
    return found


def messages(capture: Path) -> list[tuple[str, Message]]:
    """Direction and message of each line."""
    records = map(json.loads, capture.read_text("utf-8").splitlines())
    return [(record["dir"], record["msg"]) for record in records]


class Retelling:
    """Tells feeds, one a root, what a capture says happened."""

    def __init__(self, wire: list[tuple[str, Message]]) -> None:
        self._answers = {
            message["id"]: message.get("result") or {}
            for direction, message in wire
            if direction == "out" and "id" in message
        }
        self._root_of: dict[str, str] = {}
        self._feeds: dict[str, Feed] = {}

    def take(self, direction: str, message: Message) -> Iterator[Notice]:
        """What the feeds say when this happens."""
        params = message.get("params") or {}
        match direction, message.get("method"):
            case "in", "session/prompt":
                message_id = self._answers[message["id"]].get("messageId")
                if message_id is not None:
                    self._feed(params["sessionId"]).expect(message_id)
            case "out", "session.event":
                session_id = params["sessionId"]
                row = params["event"]
                event = event_from_row(row, row["seq"])
                is_root = session_id not in self._root_of
                told: RuntimeEvent = event if is_root else ChildSaid(session_id, event)
                yield from self._feed(session_id).take(told)
            case "out", "subagent.started":
                yield from self._started(params)
            case "out", "subagent.finished":
                yield from self._feed(params["childSessionId"]).take(_finish(params))

    def _started(self, params: Message) -> Iterator[Notice]:
        parent, child = SessionId(params["parentSessionId"]), SessionId(params["childSessionId"])
        self._root_of[child] = self._root_of.get(parent, parent)
        started = ChildStarted(parent, child, "label", "task", CallId("c"), Path("/w"))
        yield from self._feed(child).take(started)

    def describe(self, child: str, provider: str) -> None:
        """The descriptor, which is in the child's log but not on the real wire."""
        row = Event(0, 0, "subagent/descriptor", {"provider": provider})
        self._feed(child).take(ChildSaid(SessionId(child), row))

    def _feed(self, session_id: str) -> Feed:
        root = self._root_of.get(session_id, session_id)
        return self._feeds.setdefault(root, Feed(SessionId(root)))


def _finish(params: Message) -> ChildFinished:
    blocks = params.get("lastAssistantMessage")
    end = TurnEnd(params["stopReason"])
    answer = None if blocks is None else "".join(block["text"] for block in blocks)
    return ChildFinished(params["parentSessionId"], params["childSessionId"], end, answer)


def forks_told_as_subagents(wire: list[tuple[str, Message]]) -> set[str]:
    """Sessions that this release announces for their ``parentSession`` alone (dsh section 7)."""
    started = {
        message["params"]["childSessionId"]
        for direction, message in wire
        if direction == "out" and message.get("method") == "subagent.started"
    }
    resumed = {
        message["params"]["sessionId"]
        for direction, message in wire
        if direction == "in" and message.get("method") == "session/resume"
    }
    return started & resumed


@pytest.mark.parametrize("capture", captures(), ids=lambda path: path.stem)
def test_the_same_happenings_give_the_same_frames(capture: Path) -> None:
    wire = messages(capture)
    forks = forks_told_as_subagents(wire)
    retelling = Retelling(wire)
    told: list[Notice] = []
    sent: list[Notice] = []
    for direction, message in wire:
        params = message.get("params") or {}
        if params.get("childSessionId") in forks:
            continue
        if message.get("method") == "subagent.finished":
            retelling.describe(params["childSessionId"], params["provider"])
        told += retelling.take(direction, message)
        if direction == "out" and "method" in message:
            sent.append((message["method"], params))
    assert told == sent
