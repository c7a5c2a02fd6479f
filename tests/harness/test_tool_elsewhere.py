"""The `bash` tool when the client runs its commands: the same results, and no way round it."""

from pathlib import Path

import anyio.lowlevel
import pytest
from tool_world import World, meta_of

from acp_bridge.ports import ClientCommand, CommandEnd, ToolContext

pytestmark = pytest.mark.anyio


class Runner:
    """A client that ends each command in one way."""

    def __init__(self, end: CommandEnd | OSError, *, offers: bool = True) -> None:
        self.end = end
        self.runs_commands = offers
        self.commands: list[ClientCommand] = []

    async def run_command(self, command: ClientCommand) -> CommandEnd:
        self.commands.append(command)
        if isinstance(self.end, OSError):
            raise self.end
        command.started("t")
        return self.end


class Elsewhere(World):
    """A world whose commands the client runs; ``terminals`` are those it was told of."""

    def __init__(self, folder: Path, runner: Runner) -> None:
        super().__init__(folder)
        self.runner = runner
        self.terminals: list[str] = []

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            cwd=self.cwd,
            files=self.files,
            emit=self.told.append,
            spill_dir=self.spill,
            env=self.env,
            flow=anyio.lowlevel.checkpoint,
            runner=self.runner,
            in_terminal=self.terminals.append,
        )


async def test_a_command_is_handed_over_whole(tmp_path: Path) -> None:
    runner = Runner(CommandEnd(output="a\r\nb\r\n", exit_code=3))
    world = Elsewhere(tmp_path, runner)
    (world.cwd / "sub").mkdir()
    result = await world.bash("echo a && echo b", workdir="sub", timeoutMs=1500)
    assert result.text == "a\nb\n[exit code: 3]"
    assert not result.is_error
    assert meta_of(result) == {"cwd": str(world.cwd / "sub"), "exitCode": 3}
    (command,) = runner.commands
    assert (command.shell, command.line) == ("bash", "echo a && echo b")
    assert (command.cwd, command.timeout_s) == (world.cwd / "sub", 1.5)
    assert world.terminals == ["t"]


async def test_a_client_without_terminals_runs_nothing_and_nor_do_we(tmp_path: Path) -> None:
    runner = Runner(CommandEnd(), offers=False)
    world = Elsewhere(tmp_path, runner)
    result = await world.bash("touch ran")
    assert result.is_error
    assert "`execution` is `client`" in result.text
    assert "--execution local" in result.text
    assert runner.commands == []
    assert not (world.cwd / "ran").exists()


@pytest.mark.parametrize(
    ("signal", "code", "shown", "exit_code"),
    [
        ("SIGKILL", None, "SIGKILL", 137),
        ("kill", None, "SIGKILL", 137),
        ("9", None, "SIGKILL", 137),
        ("SIGTERM", 1, "SIGTERM", 1),
        ("Killed", None, "Killed", None),
    ],
)
async def test_signals_are_told_as_here(
    tmp_path: Path, signal: str, code: int | None, shown: str, exit_code: int | None
) -> None:
    world = Elsewhere(tmp_path, Runner(CommandEnd(output="x", signal=signal, exit_code=code)))
    result = await world.bash("true")
    told = "unknown" if exit_code is None else exit_code
    assert result.text == f"x\n[signal: {shown}]\n[exit code: {told}]"
    assert (meta_of(result)["signal"], meta_of(result)["exitCode"]) == (shown, exit_code)


async def test_what_ran_too_long_is_the_same_error_as_here(tmp_path: Path) -> None:
    elsewhere = Elsewhere(tmp_path, Runner(CommandEnd(output="x\n", timed_out=True)))
    result = await elsewhere.bash("sleep 60", timeoutMs=20)
    (tmp_path / "here").mkdir()
    local = await World(tmp_path / "here").bash("echo x; sleep 60", timeoutMs=300)
    assert result.text == local.text.replace("300", "20")
    assert (result.error_name, result.error_code) == (local.error_name, local.error_code)
    assert meta_of(result)["timedOut"] is True


async def test_long_output_is_cut_and_kept_and_a_cut_of_the_client_is_told(tmp_path: Path) -> None:
    world = Elsewhere(
        tmp_path, Runner(CommandEnd(output="é" * 40_000 + "end", is_cut=True, exit_code=0))
    )
    result = await world.bash("true")
    assert result.text.startswith("[… the client kept only a part of the output …]\né")
    assert result.text.endswith("end\n[exit code: 0]")
    assert len(result.text) < 31_000
    (kept,) = world.spill.iterdir()
    assert str(kept) == meta_of(result)["outputFile"]
    assert kept.read_text() == "é" * 40_000 + "end"


async def test_a_client_that_fails_is_an_error_with_what_is_known(tmp_path: Path) -> None:
    refusal = OSError("the client could not make a terminal: no")
    result = await Elsewhere(tmp_path, Runner(refusal)).bash("true")
    assert result.is_error
    assert result.text.endswith("the client could not make a terminal: no.")
    end = CommandEnd(output="half\n", fault="the client could not wait for the command: no")
    (tmp_path / "second").mkdir()
    result = await Elsewhere(tmp_path / "second", Runner(end)).bash("true")
    assert result.is_error
    assert result.text == (
        "Error: the client could not wait for the command: no. What is known of the command:\n"
        "half\n[exit code: unknown]"
    )


async def test_arguments_are_checked_before_the_client_is_asked(tmp_path: Path) -> None:
    runner = Runner(CommandEnd())
    world = Elsewhere(tmp_path, runner)
    assert (await world.bash("true", workdir="none")).is_error
    assert (await world.bash("true", timeoutMs=0)).is_error
    assert runner.commands == []
