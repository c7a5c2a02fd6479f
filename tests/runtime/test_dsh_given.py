"""What a session of the real runtime is given, and what it can do of that without the plugin."""

from pathlib import Path

import pytest
from dsh_world import Nobody, World, prompted

from acp_bridge.runtime.dsh.commands import COMMANDS
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.vocabulary import Command, CommandsChanged, Event, JsonObject, Prompt, TurnEnd

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write_command(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def names(session: DshSession) -> list[str]:
    return [info.name for info in session.commands]


def said_of(world: World, kind: str) -> list[object]:
    return [event.data for event in world.told if isinstance(event, Event) and event.type == kind]


async def answered(world: World, session: DshSession, name: str) -> dict[str, object]:
    """How a command ended, as the log has it."""
    assert await session.admit(Command(name, "")).ended() == TurnEnd("completed")
    done = said_of(world, "command/done")[-1]
    assert isinstance(done, dict)
    return done


async def test_a_projects_command_is_offered_and_the_model_gets_what_it_stands_for(
    world: World,
) -> None:
    write_command(world.cwd / ".acp-bridge" / "commands", "review", "Review $1, please.")
    write_command(world.scratch / "commands", "mine", "Mine.")
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        assert names(session) == [*(info.name for info in COMMANDS), "mine", "review"]
        words: JsonObject = {"type": "text", "text": "/review lexer.py"}
        typed = Prompt(content=[words], command=Command("review", "lexer.py"))
        assert await session.admit(typed).ended() == TurnEnd("completed")
    (heard,) = said_of(world, "user/message")
    assert isinstance(heard, dict)
    expected = {"type": "text", "text": "Review lexer.py, please.", "_meta": {"acp": words}}
    assert heard["content"] == [expected]


async def test_a_command_that_came_is_told_around_the_next_prompt(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        write_command(world.cwd / ".acp-bridge" / "commands", "late", "Late.")
        assert await prompted(session) == TurnEnd("completed")
        assert names(session)[-1] == "late"
        assert await prompted(session) == TurnEnd("completed")
    assert world.told.count(CommandsChanged()) == 1


async def test_a_fork_is_stored_and_its_id_is_said(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        early = await answered(world, session, "fork")
        assert (early["kind"], "no turn is completed" in str(early["text"])) == ("error", True)
        assert await prompted(session) == TurnEnd("completed")
        late = await answered(world, session, "fork")
        assert late["kind"] == "success"
        page = await runtime.list_sessions(None, None)
        (fork_id,) = {one.session_id for one in page.sessions} - {session.session_id}
        assert f"session `{fork_id}`" in str(late["text"])
        fork = await runtime.open_session(fork_id, world.cwd, Nobody())
        assert await prompted(fork, "go on") == TurnEnd("completed")
        assert [event.type for event in fork.events].count("turn/end") == 2
        assert [event.type for event in session.events].count("turn/end") == 1
