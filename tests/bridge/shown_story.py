"""What a client is shown of a story, and what it has in the end."""

from collections import defaultdict
from collections.abc import Sequence

from story_rows import CWD, ROOT, Story

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.subagent_history import history
from acp_bridge.bridge.subagent_view import SubagentView
from acp_bridge.vocabulary import JsonObject, RuntimeEvent, SessionId

Sent = list[tuple[str, JsonObject]]
Told = Sequence[tuple[str, JsonObject]]


def view(*, native: bool, replay: bool = False, root: SessionId = ROOT) -> SubagentView:
    return SubagentView(root, CWD, View(native_subagents=native), replay=replay)


def sent(events: list[RuntimeEvent], *, native: bool) -> Sent:
    shown = view(native=native)
    return [(str(name), unstructure(u)) for event in events for name, u in shown.project(event)]


def replayed(story: Story, *, native: bool) -> Sent:
    shown = view(native=native, replay=True)
    past = history(story.root_id, story.root.events, story.descendants())
    found = [(name, unstructure(u)) for event in past for name, u in shown.project(event)]
    return found + [(str(name), unstructure(u)) for name, u in shown.finish_replay()]


def of_kind(found: Told, *kinds: str) -> Told:
    return [(name, update) for name, update in found if update["sessionUpdate"] in kinds]


def texts(found: Told, session: str) -> str:
    return "".join(
        str(update["content"]["text"])  # type: ignore[call-overload,index]
        for name, update in of_kind(found, "agent_message_chunk")
        if name == session
    )


def states(found: Told, child: str) -> list[object]:
    """The child's states as the client was told them, each with the session it came on."""
    return [
        (name, update["state"])
        for name, update in of_kind(found, "subagent_update")
        if update["sessionId"] == child and "state" in update
    ]


def calls(found: Told, session: str = ROOT) -> dict[str, JsonObject]:
    """A session's calls as the client has them in the end."""
    drawn: dict[str, JsonObject] = {}
    for name, update in of_kind(found, "tool_call", "tool_call_update"):
        if name == session:
            call_id = str(update["toolCallId"])
            assert (update["sessionUpdate"] == "tool_call") == (call_id not in drawn), update
            drawn.setdefault(call_id, {}).update(update)
    return drawn


def content(call: JsonObject) -> str:
    return str(call["content"][0]["content"]["text"])  # type: ignore[call-overload,index]


def background(label: str = "reviewer", kind: str = "completed") -> Story:
    story = Story()
    story.turn()
    story.say(ROOT, "P1 ")
    child = story.delegate(ROOT, "c1", "kid", label, task="Look at it.")
    story.result(ROOT, "c1", "started subagent kid")
    story.say(child, "C1")
    story.call(child, "c1", "read", {"file_path": "a.txt"})
    story.result(child, "c1", "text")
    story.say(ROOT, "P2")
    story.say(child, "The answer.")
    story.finish(child, kind)
    story.end_turn()
    return story


def three_levels() -> Story:
    story = Story()
    story.turn()
    one = story.delegate(ROOT, "c", "one", "first")
    two = story.delegate(one, "c", "two", "second")
    three = story.delegate(two, "c", "three", "third")
    story.say(ROOT, "R")
    for number, child in enumerate((one, two, three), start=1):
        story.say(child, str(number))
    for parent, child in ((two, three), (one, two), (ROOT, one)):
        story.finish(child)
        story.result(parent, "c", f"started subagent {child}")
    story.end_turn()
    return story


def drawn(found: Told) -> dict[str, object]:
    """What a client has in the end, whatever the order: texts, calls, states."""
    sessions = {name for name, _ in found}
    known: set[str] = {ROOT}
    for name, update in found:
        assert name in known, f"{name} is not announced: {update}"
        if update["sessionUpdate"] == "subagent_update":
            known.add(str(update["sessionId"]))
    last: dict[str, object] = defaultdict(dict)
    for name in sessions:
        last[f"text {name}"] = texts(found, name)
        for call_id, call in calls(found, name).items():
            kept = ("title", "status", "content", "kind")
            last[f"call {name} {call_id}"] = {key: call.get(key) for key in kept}
    for name, update in of_kind(found, "subagent_update"):
        last[f"state {update['sessionId']}"] = (name, update.get("state"))
    for name, update in of_kind(found, "session_message"):
        last[f"message {name} {update['messageId']}"] = update["content"]
    return dict(last)
