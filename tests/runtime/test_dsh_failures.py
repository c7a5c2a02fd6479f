"""What can go wrong with the runtime's process: each is one sentence, and the session goes on."""

from pathlib import Path

import anyio
import pytest
from dsh_world import Nobody, World, prompted, said
from fake_dsh_program import SECRET

from acp_bridge.errors import (
    AuthRequiredError,
    ConfigError,
    InvalidParamsError,
    SessionConflictError,
)
from acp_bridge.runtime.dsh.models import DshModels
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.vocabulary import Event, RuntimeEvent, TurnEnd

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def told_of(session: DshSession, kind: str) -> anyio.Event:
    """Set when a row of this kind is told."""
    event = anyio.Event()

    def watch(told: RuntimeEvent) -> None:
        if isinstance(told, Event) and told.type == kind:
            event.set()

    session.attach(watch)
    return event


async def failed(session: DshSession, words: str = "hello") -> str:
    """The sentence with which a prompt fails, which never shows the key."""
    end = await prompted(session, words)
    assert (end.kind, end.code) == ("error", "INTERNAL")
    assert SECRET not in str(end.details)
    return str(end.details)


async def test_what_is_told_is_what_is_stored_row_by_row(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        assert await prompted(session) == TurnEnd("completed")
        assert await prompted(session, "again") == TurnEnd("completed")
    stored = world.store.read(session.session_id).events
    assert world.rows() == stored == session.events


async def test_a_missing_command_says_how_to_get_it(world: World) -> None:
    async with world.runtime(command="/no/such/dsh") as runtime:
        session = await world.new(runtime)
        assert "'/no/such/dsh' (the setting `dsh`) is no command" in await failed(session)
    assert not world.home.exists()


async def test_a_command_that_is_no_program_is_named(world: World) -> None:
    world.command.write_text("#!/no/such/interpreter\n")
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        details = await failed(session)
    assert details.startswith(f"DeepSeek Harness cannot be started: {world.command}")


async def test_one_that_exits_at_once_is_quoted_without_the_key(world: World) -> None:
    async with world.runtime("exits") as runtime:
        session = await world.new(runtime)
        details = await failed(session)
    assert "ended with exit code 3. It said: dsh: cannot start with key [redacted]." in details
    assert "acp-bridge doctor" in details


async def test_one_that_hangs_at_its_start_is_stopped(world: World) -> None:
    async with world.runtime("hangs", start_wait_s=1) as runtime:
        session = await world.new(runtime)
        assert "did not answer within 1 s" in await failed(session)


async def test_another_version_is_refused_by_name(world: World) -> None:
    async with world.runtime("old") as runtime:
        session = await world.new(runtime)
        details = await failed(session)
    assert "is version 0.1.1-rc.2; this acp-bridge works with 0.2.1-rc.2" in details


async def test_noise_on_its_stdout_harms_nothing(world: World) -> None:
    async with world.runtime("noise") as runtime:
        session = await world.new(runtime)
        assert await prompted(session) == TurnEnd("completed")


async def test_a_death_in_a_turn_is_told_with_its_cause_and_the_session_goes_on(
    world: World,
) -> None:
    async with world.runtime("dies") as runtime:
        session = await world.new(runtime)
        assert await prompted(session) == TurnEnd("completed")
        details = await failed(session, "die")
        assert "ended with exit code 7. It said: fatal: out of luck, key [redacted]." in details
        assert details.endswith("The session goes on with the next prompt.")
        # Its open turn was closed in the log, and told.
        assert world.rows()[-2].data == {"turn": 2, "reason": {"kind": "interrupted"}}
        assert await prompted(session, "and now") == TurnEnd("completed")
    assert world.rows() == world.store.read(session.session_id).events


async def test_a_death_while_idle_is_noticed_by_the_next_prompt_only(world: World) -> None:
    async with world.runtime("dies") as runtime:
        first, second = await world.new(runtime), await world.new(runtime)
        assert await prompted(first) == TurnEnd("completed")
        await failed(second, "die")
        assert await prompted(first) == TurnEnd("completed")
        assert await prompted(second) == TurnEnd("completed")


async def test_without_a_key_nothing_is_opened_or_started(world: World) -> None:
    world.key = None
    async with world.runtime() as runtime:
        with pytest.raises(AuthRequiredError, match="DeepSeek Harness needs a key"):
            await world.new(runtime)
    world.home.mkdir()
    (world.home / ".credentials.yaml").touch()  # the runtime's own
    async with world.runtime() as runtime:
        assert await prompted(await world.new(runtime)) == TurnEnd("completed")


async def test_a_key_that_was_replaced_counts_for_the_next_session(world: World) -> None:
    async with world.runtime() as runtime:
        assert await prompted(await world.new(runtime)) == TurnEnd("completed")
        world.key = "another-key-of-the-test"
        assert await prompted(await world.new(runtime)) == TurnEnd("completed")


async def test_a_session_that_another_program_has_open_is_refused_at_once(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        await prompted(session)
        await session.close()
        writer = world.store.open(session.session_id)
        try:
            with pytest.raises(SessionConflictError):
                await runtime.open_session(session.session_id, world.cwd, Nobody())
        finally:
            writer.close()
        again = await runtime.open_session(session.session_id, world.cwd, Nobody())
        assert await prompted(again) == TurnEnd("completed")


async def test_a_session_that_another_program_took_meanwhile_is_told_by_the_prompt(
    world: World,
) -> None:
    async with world.runtime("held") as runtime:
        session = await world.new(runtime)
        assert "is open in another program" in await failed(session)


async def test_a_cancel_without_the_plugin_ends_the_process_and_the_session_goes_on(
    world: World,
) -> None:
    async with world.runtime("stalls") as runtime:
        session = await world.new(runtime)
        begun = told_of(session, "user/message")
        waiting = [session.admit(said(words)) for words in ("stall", "never sent")]
        await begun.wait()
        assert session.busy
        session.cancel()
        assert [await one.ended() for one in waiting] == [TurnEnd("aborted")] * 2
        # The runtime closed the turn without a word on the wire; the log had it.
        ends = [event.data for event in world.rows() if event.type == "turn/end"]
        assert ends == [{"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}}]
        assert await prompted(session) == TurnEnd("completed")
    assert world.rows() == world.store.read(session.session_id).events


async def test_a_withdrawn_prompt_that_waits_stops_nothing(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        first, second = session.admit(said("one")), session.admit(said("two"))
        second.withdraw()
        assert await first.ended() == TurnEnd("completed")
        assert await second.ended() == TurnEnd("aborted")


async def test_the_end_of_the_runtime_closes_a_turn_that_runs(world: World) -> None:
    async with world.runtime("stalls") as runtime:
        session = await world.new(runtime)
        begun = told_of(session, "user/message")
        turn = session.admit(said("stall"))
        await begun.wait()
    assert await turn.ended() == TurnEnd("aborted")
    assert world.store.read(session.session_id).events[-2].type == "turn/end"


async def test_a_model_that_is_not_deepseeks_is_refused_at_the_start(tmp_path: Path) -> None:
    for name in ("demo", "openai:gpt-5.6", "deepseek:", "deepseek"):
        with pytest.raises(ConfigError, match="deepseek:NAME"):
            DshModels(
                home=tmp_path,
                configured=name,
                overrides={},
                find_key=lambda: None,
                forget=lambda: None,
            )


async def test_a_choice_without_the_plugin_is_stored_and_holds_for_the_next_process(
    world: World,
) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        await prompted(session)
        await session.choose("mode", "accept-edits")
        await session.choose("model", "deepseek:deepseek-v4-pro")
        await session.choose("effort", "max")
        assert await prompted(session) == TurnEnd("completed")
        await session.close()
        again = await runtime.open_session(session.session_id, world.cwd, Nobody())
        options = again.options()
        assert (options.mode, options.model_id, options.effort) == (
            "accept-edits",
            "deepseek:deepseek-v4-pro",
            "max",
        )
        assert await prompted(again) == TurnEnd("completed")


async def test_a_start_that_nobody_waits_for_any_more_is_ended_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.runtime.dsh.process.EXIT_WAIT_S", 1000)  # it never leaves
    async with world.runtime("hangs") as runtime:
        session = await world.new(runtime)
        turn = session.admit(said("hello"))
        with anyio.fail_after(60):
            await session.close()
        assert await turn.ended() == TurnEnd("aborted")
        await world.new(runtime)


async def test_choices_that_are_made_at_once_all_hold(world: World) -> None:
    async with world.runtime() as runtime:
        session = await world.new(runtime)
        await prompted(session)
        async with anyio.create_task_group() as group:
            group.start_soon(session.choose, "mode", "plan")
            group.start_soon(session.choose, "model", "deepseek:deepseek-v4-pro")
        options = session.options()
        assert (options.mode, options.model_id) == ("plan", "deepseek:deepseek-v4-pro")
        assert await prompted(session) == TurnEnd("completed")
        with pytest.raises(InvalidParamsError, match="There is no mode 'yolo'"):
            await session.choose("mode", "yolo")
