"""What the real runtime wrote, killed in the middle of it: listed, loaded and continued by us."""

import base64
import hashlib
import json
from typing import Any

import anyio
import attrs
import pytest
from acp_rig import Bench
from dsh_rig import (
    HOLD,
    Dsh,
    Model,
    Round,
    dsh,
    dsh_command,
    have_a_turn,
    loopback_model,
    missing,
    text,
    tool,
)
from our_sessions import always_say, bench_in, foreign_problems
from picture_bytes import png

from acp_bridge.errors import SessionNotFoundError
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Event, JsonObject

pytestmark = [pytest.mark.dsh, pytest.mark.process]

PICTURE = png(4, 2)  # the one size of which all pixels are there: the runtime decodes it
PLAN = [{"content": "Read the parser", "status": "in_progress"}]

HOLDS = {
    "talk": ("first words", "an answer", "second words", "another “Antwort”"),
    "bash": ("use the shell", '"b1"', "out-of-bash", '"b2"', "after the shell"),
    "todo": ("plan it", '"p1"', "planned"),
    "image": ("see this",),
    "../odd id": ("an id that is no name", "still fine"),
    "cut text": ("a turn before", "went well", "cut me off"),
    "queued": ("the running one", "left in the inbox"),
    "cut tool": ("a slow tool", '"s1"', '"s2"'),
}
"""Each session of the runtime, and what a model must be told of it afterwards, in this order."""


def play(runtime: Dsh, model: Model) -> None:
    """Every session; the last three are in the middle of a turn when this returns."""
    model.answer("talk", text("an answer"))
    model.answer("talk", text("another “Antwort”"))
    model.answer("bash", tool("b1", "bash", command="echo out-of-bash", description="d"))
    model.answer("bash", tool("b2", "no_such_tool", x=1))
    model.answer("bash", text("after the shell"))
    model.answer("todo", tool("p1", "todo_write", todos=PLAN))
    model.answer("todo", text("planned"))
    model.answer("../odd id", text("still fine"))
    model.answer("cut text", text("went well"))
    model.answer("cut text", text("half an ans"), HOLD)
    model.answer("queued", text("half an ans"), HOLD)
    shell = tool("s1", "bash", command="echo slow; sleep 5", description="d")
    model.answer("cut tool", shell, tool("s2", "read", file_path="x"))
    for session_id, words in (
        ("talk", "first words"),
        ("talk", "second words"),
        ("bash", "use the shell"),
        ("todo", "plan it"),
        ("../odd id", "an id that is no name"),
        ("cut text", "a turn before"),
    ):
        assert runtime.prompt(session_id, words) == "completed"
    image = {"type": "image", "mimeType": "image/png", "data": PICTURE}
    runtime.send("image", "see this", image)
    runtime.call("session/wait", sessionId="image")
    runtime.send("cut text", "cut me off")
    runtime.send("queued", "the running one")
    runtime.send("queued", "left in the inbox")
    runtime.send("cut tool", "a slow tool")


def killed_in_the_middle(bench: Bench, model: Model, *, plain: bool) -> None:
    """Play all, and kill the runtime when everything is on the disk that can be."""
    store = SessionStore(bench.home / "sessions", clock=lambda: 0)
    with dsh(bench.home, bench.cwd, model, plain=plain) as runtime:
        play(runtime, model)
        runtime.until(lambda: all(is_stored(store, *row) for row in LAST_ROWS))
        runtime.until(lambda: model.holding == 2)
        runtime.kill()


LAST_ROWS = (
    ("cut text", "user/message", "cut me off"),
    ("queued", "user/message", "the running one"),
    ("queued", "agent/inbox/spliced", "left in the inbox"),
    ("cut tool", "tool/call", "s1"),
)
"""What the kill waits for: session, row type, and something in its data."""


def is_stored(store: SessionStore, session_id: str, type_: str, piece: str) -> bool:
    try:
        events = store.read(session_id).events
    except SessionNotFoundError:
        return False
    return any(event.type == type_ and piece in str(event.data) for event in events)


NEW = "what was not there before"


@attrs.frozen
class Journey:
    """What we saw of the runtime's sessions, and what it made of our turns in them."""

    bench: Bench
    listed: dict[str, JsonObject]
    shown: dict[str, str]
    after: dict[str, Round]

    def events(self, session_id: str) -> list[Event]:
        store = SessionStore(self.bench.home / "sessions", clock=lambda: 0)
        return list(store.read(session_id).events)


async def continued(bench: Bench) -> tuple[dict[str, JsonObject], dict[str, str]]:
    """What a list and each load show; and a turn in each."""
    always_say(bench, "Heard by us.")
    bench.judge = foreign_problems
    shown: dict[str, str] = {}
    async with bench.editor() as editor:
        sessions = (await editor.call("session/list", {}))["sessions"]
        assert isinstance(sessions, list)
        for session_id in HOLDS:
            await editor.load(session_id, bench.cwd)
            shown[session_id] = json.dumps(editor.updates(session_id), ensure_ascii=False)
            assert await editor.prompt(session_id, "from the editor") == "end_turn"
        new = await editor.new(bench.cwd)
        assert await editor.prompt(new, "from the editor") == "end_turn"
        shown[new] = NEW
    return {str(one["sessionId"]): one for one in sessions if isinstance(one, dict)}, shown


@pytest.fixture(scope="module", params=["zstd", "plain"])
def journey(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    dsh_command()
    plain = request.param == "plain"
    bench = bench_in(tmp_path_factory.mktemp("dsh") / "bench")
    with loopback_model() as model:
        killed_in_the_middle(bench, model, plain=plain)
    listed, shown = anyio.run(continued, bench)
    with loopback_model() as model, dsh(bench.home, bench.cwd, model, plain=plain) as runtime:
        after = {one: have_a_turn(runtime, model, one, "and dsh") for one in shown}
    return Journey(bench, listed, shown, after)


@pytest.mark.parametrize("session_id", HOLDS)
def test_a_session_of_the_runtime_is_listed_with_its_folder_and_title(
    journey: Journey, session_id: str
) -> None:
    one = journey.listed[session_id]
    assert one["cwd"] == str(journey.bench.cwd)
    assert one["title"] == HOLDS[session_id][0][:16]  # as long as the runtime makes them


@pytest.mark.parametrize("session_id", HOLDS)
def test_a_load_shows_what_people_and_models_said_and_nothing_internal(
    journey: Journey, session_id: str
) -> None:
    # What still waited in the inbox was no turn yet.
    holds = [piece for piece in HOLDS[session_id] if piece != "left in the inbox"]
    assert missing(holds, journey.shown[session_id]) == []
    assert "runtime context" not in journey.shown[session_id]


@pytest.mark.parametrize("session_id", HOLDS)
def test_our_turn_is_one_more_turn_to_the_runtime(journey: Journey, session_id: str) -> None:
    after = journey.after[session_id]
    assert after.outcome == "completed"
    ours = ("from the editor", "Heard by us.", "and dsh")
    assert missing([*HOLDS[session_id], *ours], after.asked) == []


def test_a_prompt_that_was_left_in_the_inbox_runs_before_ours_and_once(journey: Journey) -> None:
    messages: list[Any] = [
        event.data for event in journey.events("queued") if event.type == "user/message"
    ]
    said = [one["content"][0]["text"] for one in messages if one["source"] == {"kind": "user"}]
    assert said == ["the running one", "left in the inbox", "from the editor", "and dsh"]


def test_a_new_session_among_the_ones_of_the_runtime_is_one_to_it(journey: Journey) -> None:
    """In the root's encoding: one file of the other would make the runtime refuse them all."""
    [new] = [session_id for session_id, shown in journey.shown.items() if shown == NEW]
    after = journey.after[new]
    assert after.outcome == "completed"
    assert missing(("from the editor", "Heard by us.", "and dsh"), after.asked) == []


def test_an_image_that_the_runtime_stored_is_shown(journey: Journey) -> None:
    """As stored: the runtime encodes what it gets again, as JPEG."""
    updates = json.loads(journey.shown["image"])
    blocks = [one["content"] for one in updates if one["sessionUpdate"] == "user_message_chunk"]
    assert (blocks[1]["type"], blocks[1]["mimeType"]) == ("image", "image/jpeg")
    digest = hashlib.sha256(base64.b64decode(blocks[1]["data"])).hexdigest()
    assert f"sha256:{digest}" in str([event.data for event in journey.events("image")])


def test_the_calls_of_a_killed_turn_have_results_for_the_next_model(journey: Journey) -> None:
    asked = json.loads(journey.after["cut tool"].asked)
    results = [
        block for message in asked for block in message["content"] if block["type"] == "tool_result"
    ]
    assert [one["tool_use_id"] for one in results] == ["s1", "s2"]
    assert all(one["is_error"] for one in results)


def test_the_plan_of_the_runtime_is_shown(journey: Journey) -> None:
    updates = json.loads(journey.shown["todo"])
    plans = [one["entries"] for one in updates if one["sessionUpdate"] == "plan"]
    assert [entry["content"] for entry in plans[-1]] == ["Read the parser"]
