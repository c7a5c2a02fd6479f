"""What a session of the real runtime is given, and what it can do of that without the plugin."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from dsh_world import Nobody, World, prompted

from acp_bridge.errors import RuntimeFailedError
from acp_bridge.harness.memory import NOTICE_ROW
from acp_bridge.ports import NO_EXTRAS, Extras
from acp_bridge.runtime.dsh.commands import COMMANDS
from acp_bridge.runtime.dsh.given import Given
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.vocabulary import (
    Command,
    CommandsChanged,
    Event,
    JsonObject,
    Prompt,
    SessionId,
    TurnEnd,
)

if TYPE_CHECKING:
    from acp_bridge.runtime.dsh.host import Host

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


async def test_that_added_folders_have_no_sandbox_is_said_once(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime, Extras(folders=[world.home.parent]))
        assert await prompted(session) == TurnEnd("completed")
        assert await prompted(session) == TurnEnd("completed")
        again = await runtime.open_session(session.session_id, world.cwd, Nobody())
        assert (again, again.folders) == (session, ())
    told = f"additional folders ({world.home.parent}) it changes without its sandbox"
    assert [told in str(data) for data in said_of(world, NOTICE_ROW)].count(True) == 1


async def test_that_instructions_are_too_long_is_said_once(world: World) -> None:
    (world.scratch / "AGENTS.md").write_text("Be brief.\n" * 4000)
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        for _ in range(2):
            await prompted(session)
    (said,) = [
        text for text in map(str, said_of(world, NOTICE_ROW)) if "is given the first" in text
    ]
    assert str(world.scratch / "AGENTS.md") in said


async def test_a_system_prompt_that_cannot_be_given_is_never_dropped(world: World) -> None:
    extras = Extras(system_prompt="Answer in verse.")
    async with world.runtime() as runtime:
        session = await world.new(runtime, extras)
        end = await prompted(session)
        assert (end.kind, "control plugin did not start" in str(end.details)) == ("error", True)
        assert said_of(world, "user/message") == []
        with pytest.raises(RuntimeFailedError, match="cannot be given the system prompt"):
            await runtime.open_session(session.session_id, world.cwd, Nobody(), extras=extras)
        await runtime.open_session(session.session_id, world.cwd, Nobody())
        assert await prompted(session) == TurnEnd("completed")


class FakeHost:
    """A process whose plugin keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    @property
    def control(self) -> "FakeHost":
        return self

    def can(self, feature: str) -> bool:
        return feature == "prompt"

    async def set_prompt(self, _session_id: str, text: str, *, withheld: Iterable[str]) -> None:
        self.told.append((text, list(withheld)))


async def test_the_runtime_is_told_what_it_does_not_read_itself_and_only_once(
    tmp_path: Path,
) -> None:
    home, cwd, more = (tmp_path / name for name in ("home", "work", "more"))
    for folder in (home, cwd, more):
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"Rules of {folder.name}.")
    fake = FakeHost()
    host = cast("Host", fake)
    given = Given(SessionId("s"), cwd, home=home, reads_instructions=True, takes_questions=False)
    assert given.take(Extras(folders=[more], system_prompt="Answer in verse."), host)
    for _ in range(2):
        assert await given.look() == []
        await given.give(host)
    ((text, withheld),) = fake.told
    heard = ["Rules of home.", "Rules of more.", "Answer in verse."]
    assert sorted(heard, key=text.index) == heard
    assert f"- {more}" in text
    assert "Rules of work." not in text
    assert withheld == ["ask_user_question"]
    given.reopened()
    await given.give(host)
    assert fake.told == [(text, withheld)] * 2
    given.take(NO_EXTRAS, host)
    (home / "AGENTS.md").write_text("x" * 40_000)
    (note,) = await given.look()
    assert "has 40,000 bytes" in note
    assert await given.look() == []
    await given.give(host)
    assert "verse" not in fake.told[-1][0]


async def test_whoever_can_be_asked_is_and_then_there_is_nothing_to_tell(tmp_path: Path) -> None:
    fake = FakeHost()
    given = Given(
        SessionId("s"), tmp_path, home=tmp_path, reads_instructions=False, takes_questions=True
    )
    await given.look()
    await given.give(cast("Host", fake))
    assert fake.told == []
