"""What the real runtime's model is told and offered: by the client, by files, by our settings."""

import json
from pathlib import Path
from typing import Any

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import text, tool
from process_rig import Bridge

pytestmark = [pytest.mark.dsh, pytest.mark.process]

VERSE = "Answer in verse, {{model}} or not."


def new(bridge: Bridge, place: DshPlace, **extras: Any) -> str:
    made = bridge.result("session/new", cwd=str(place.work), mcpServers=[], **extras)
    return str(made["sessionId"])


def told(place: DshPlace, session: str) -> str:
    """The system prompt of a session's last request."""
    return json.dumps(place.loopback.requests[session][-1]["system"], ensure_ascii=False)


def offered(place: DshPlace, session: str) -> set[str]:
    return {one["name"] for one in place.loopback.requests[session][-1]["tools"]}


def rules(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "AGENTS.md").write_text(f"Rules of {folder.name}.")


def test_a_system_prompt_counts_for_the_session_and_its_subagents_until_the_next_opening(
    place: DshPlace,
) -> None:
    with place.bridge("--mode", "full") as bridge:
        bridge.hello(elicitation={"form": {}})
        session = new(bridge, place, _meta={"systemPrompt": {"append": VERSE}})
        other = new(bridge, place)
        place.loopback.answer(
            session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
        )
        place.loopback.promise("Child, work.", text("Worked."))
        for one in (session, other):
            assert end_of(bridge, one) == "end_turn"
        (child,) = set(place.loopback.requests) - {session, other}
        assert [VERSE in told(place, one) for one in (session, child, other)] == [True, True, False]
        assert told(place, session).index("DeepSeek Harness") < told(place, session).index(VERSE)
        assert "ask_user_question" in offered(place, session)
        bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        assert end_of(bridge, session) == "end_turn"
        assert VERSE not in told(place, session)


def test_instructions_of_files_reach_the_model_and_no_question_does_where_nobody_is_asked(
    place: DshPlace,
) -> None:
    more = place.root / "more"
    for folder in (place.home, place.work, more):
        rules(folder)
    with place.editor() as bridge:
        session = new(bridge, place, additionalDirectories=[str(more)])
        assert end_of(bridge, session) == "end_turn"
        assert f"Rules of {place.home.name}." in told(place, session)
        assert "Rules of more." in told(place, session)
        assert f"- {more}" in told(place, session)
        # These the runtime reads by itself, and puts into the conversation.
        rest = told(place, session) + place.loopback.asked(session)
        assert rest.count(f"Rules of {place.work.name}.") == 1
        assert "ask_user_question" not in offered(place, session)
        assert "bash" in offered(place, session)
    with place.editor("--instructions", "off") as bridge:
        session = new(bridge, place)
        assert end_of(bridge, session) == "end_turn"
        assert "Rules of" not in told(place, session) + place.loopback.asked(session)
