"""What a client has after a load must be what it had when it watched: held equal over a transcript.

Compared are messages, calls and compactions in order of appearance with ids, kinds, texts, titles,
final status, content, output and summary, and the last plan. Left out is what only lives: a user's
own prompts, a diff shown before a question, terminal output, where a call pointed meanwhile, why a
turn failed that no prompt waits for, and what a client has in a terminal of its own, of which a
replay shows the text.

Subagents are compared with their root: their sessions, their last state and what they were told,
or the calls that show their work and what is said of them. Those have no order among others, since
they work beside them; and while one works, it is not compared.
"""

import copy
from collections.abc import Iterable
from itertools import islice

import attrs

from acp_bridge.testing.transcript import Entry, arr, child_of, obj, read, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

_MESSAGES = {"agent_message_chunk", "agent_thought_chunk"}
_OPENINGS = {"session/load", "session/resume"}
_BETWEEN = {"session_message", "session_message_chunk"}
_COMPACTION_MEMBERS = ("status", "summary", "error")
_CALL_MEMBERS = ("title", "kind", "name", "status", "content", "rawInput", "rawOutput")


@attrs.define(slots=True)
class Drawn:
    """What a client shows of one session: items by id in order of appearance, and the plan.

    ``beside`` are items without an order: of subagents, and messages between sessions. ``foreign``
    are calls that showed the work of another session's subagents. While ``prompts`` are not
    answered yet, ``settled`` is how many items and which plan there were when the turn began, and
    ``run`` which of the agent's starts they were sent to.
    """

    items: dict[str, JsonObject] = attrs.field(factory=dict)
    beside: set[str] = attrs.field(factory=set)
    foreign: set[str] = attrs.field(factory=set)
    plan: JsonValue = None
    prompts: int = 0
    run: int = 0
    settled: tuple[int, JsonValue] = (0, None)

    def prompt(self, more: int, run: int) -> None:
        """A prompt was sent (1) or answered (-1): a turn begins, unless that was the last."""
        if self.prompts == 0 or more < 0:
            self.settled = (len(self.items), self.plan)
        self.prompts += more
        self.run = run

    def opened(self, run: int) -> None:
        """It was opened again; prompts of a run that has ended are never answered."""
        if run != self.run:
            self.prompts = 0

    def draw(self, update: JsonObject) -> None:
        """Fold one update."""
        kind = text_or_none(update.get("sessionUpdate"))
        if kind in _MESSAGES and not str(update.get("messageId")).startswith("failed."):
            name = f"message {update.get('messageId')}"
            item = self.items.setdefault(name, {"kind": kind})
            if child_of(update):
                self.beside.add(name)
            item["text"] = f"{item.get('text', '')}{obj(update.get('content')).get('text', '')}"
        elif kind in {"tool_call", "tool_call_update"}:
            name = f"call {update.get('toolCallId')}"
            item = self.items.setdefault(name, {})
            if child_of(update):
                self.beside.add(name)
            item.update({name: update[name] for name in _CALL_MEMBERS if name in update})
        elif kind == "compaction_update":
            item = self.items.setdefault(f"compaction {update.get('compactionId')}", {})
            item.update({name: update[name] for name in _COMPACTION_MEMBERS if name in update})
        elif kind in _BETWEEN:
            name = f"between {update.get('messageId')}"
            item = self.items.setdefault(name, {"text": ""})
            self.beside.add(name)
            parts = arr(update.get("content")) or [update.get("content")]
            item["text"] = str(item["text"]) + "".join(str(obj(p).get("text")) for p in parts)
        elif kind == "subagent_update":
            name = f"subagent {update.get('sessionId')}"
            item = self.items.setdefault(name, {})
            self.beside.add(name)
            item.update({name: update[name] for name in ("title", "state") if name in update})
        elif kind in {"plan", "plan_update", "plan_removed"}:
            # An empty list and a removal leave the same: no plan.
            self.plan = arr((obj(update.get("plan")) or update).get("entries")) or None

    def past(self) -> "Drawn":
        """What a fork shows of it: no running turn, and no subagents, which are not the fork's."""
        count, plan = self.settled if self.prompts else (len(self.items), self.plan)
        shown = islice(self.items.items(), count)
        own = {name: item for name, item in shown if name not in self.beside}
        foreign = self.foreign | {name for name in self.beside if name.startswith("call ")}
        return Drawn(copy.deepcopy(own), foreign=foreign, plan=plan)

    def working(self) -> set[str]:
        """The subagents, and calls of subagents, that are not at their end."""
        return {
            name
            for name in self.beside
            if obj(self.items[name].get("state")).get("state", "idle") != "idle"
            or self.items[name].get("status") in {"pending", "in_progress"}
        }


def replay_differences(entries: Iterable[Entry], *, killed_runs: Iterable[int] = ()) -> list[str]:
    """Each load whose replay differs from what was live before, as sentences.

    A session that lived in one of ``killed_runs`` is left out: a kill takes what was not stored.
    """
    killed = set(killed_runs)
    live: dict[str, Drawn] = {}
    loading: dict[str, dict[str, Drawn]] = {}
    root_of: dict[str, str] = {}
    skipped: set[str] = set()
    found: list[str] = []
    for line in read(entries):
        session = line.session
        if session is None:
            continue
        root = root_of.get(session, session)
        if line.entry.run in killed:
            skipped.add(root)
        if line.update.get("sessionUpdate") == "subagent_update":
            root_of[str(line.update.get("sessionId"))] = root
        if line.kind == "request" and line.method in _OPENINGS and session in live:
            live[session].opened(line.entry.run)
        if line.method == "session/load" and line.kind == "request":
            loading[session] = {}
        elif line.method == "session/load":
            replayed = loading.pop(session, None)
            if replayed is not None and "result" in line.message and session not in skipped:
                family = [name for name in live if root_of.get(name, name) == session]
                found += _family_differences(session, family, live, replayed)
        elif line.method == "session/fork" and line.kind == "response":
            # Its past is what its source showed; only a load will show it under the new id.
            source = text_or_none(obj(obj(line.request).get("params")).get("sessionId"))
            live[session] = live.get(source or "", Drawn()).past()
        elif line.method == "session/new" and line.kind == "response":
            live.setdefault(session, Drawn())
        elif line.method == "session/prompt":
            more = 1 if line.kind == "request" else -1
            live.setdefault(session, Drawn()).prompt(more, line.entry.run)
        elif line.update:
            drawn = loading.get(root, live).setdefault(session, Drawn())
            drawn.draw(line.update)
    return found


def _family_differences(
    root: str, family: list[str], live: dict[str, Drawn], replayed: dict[str, Drawn]
) -> list[str]:
    """A root and its subagents after a load; those that work go on after it."""
    at_work = {name for drawn in live.values() for name in drawn.working()}
    found = []
    for session in dict.fromkeys([root, *family]):
        again = replayed.get(session, Drawn())
        if f"subagent {session}" in at_work:
            live[session] = again  # what it says now comes anew, from its beginning
        else:
            # What was stored before the transcript began has never been live in it.
            found += _differences(live.setdefault(session, again), again, at_work)
        if session in replayed and live[session].prompts:
            live[session].items = {**replayed[session].items, **live[session].items}
    return found


def _is_in_a_terminal(name: str, item: JsonObject) -> bool:
    """Whether a call ran in the client's own terminal: ours have the call's id."""
    (first, *_) = arr(item.get("content")) or [None]
    terminal_id = obj(first).get("terminalId")
    return terminal_id is not None and name != f"call {terminal_id}"


def _differences(live: Drawn, replayed: Drawn, at_work: set[str]) -> list[str]:
    found = []
    beside = live.beside | replayed.beside | live.foreign
    order, order_again = ([n for n in d.items if n not in beside] for d in (live, replayed))
    if live.prompts:  # a turn goes on while it is replayed: what is new was never live before
        order_again = order_again[: len(order)]
    if order != order_again:
        found.append(f"live had {order}, the replay {order_again}")
    if lost := (live.beside ^ replayed.beside) - at_work:
        found.append(f"of subagents, only one of live and replay had {sorted(lost)}")
    for name, item in live.items.items():
        if name in at_work:
            continue
        again = replayed.items.get(name, item)
        if _is_in_a_terminal(name, item):
            again = {**again, "content": item["content"]}
        found += [
            f"{name}: {member} was {item.get(member)!r} live, is {again.get(member)!r} replayed"
            for member in sorted(set(item) | set(again))
            if item.get(member) != again.get(member)
        ]
    if live.plan != replayed.plan:
        found.append(f"the plan was {live.plan!r} live, is {replayed.plan!r} replayed")
    return [f"a_replay_shows_what_was_live: {difference}" for difference in found]
