"""The bash tool, on real processes."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from pace import patient
from tool_world import World, meta_of

from acp_bridge.harness.tools import output
from acp_bridge.harness.tools.output import KeptOutput, LiveOutput
from acp_bridge.ports import Access

pytestmark = pytest.mark.anyio


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def cancelled_when(world: World, command: str, pattern: str) -> tuple[list[int], float]:
    """Run a command and cancel it once it said ``pattern``.

    The process ids that it said, and the seconds from the cancel to the end.
    """
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(world.bash, command)
            said = await world.heard(pattern)
            group.cancel_scope.cancel()
            started = anyio.current_time()
    return [int(pid) for found in said for pid in found.split()], anyio.current_time() - started


# --- results ---


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi; exit 3", "hi\n[exit code: 3]"),
        ("echo hi", "hi\n[exit code: 0]"),
        ("printf hi", "hi\n[exit code: 0]"),
        ("printf 'hi\\n\\n'", "hi\n\n[exit code: 0]"),
        ("true", "(no output)\n[exit code: 0]"),
        ("echo a; echo b >&2; echo c", "a\nb\nc\n[exit code: 0]"),
        ("echo a && echo 'b c' | tr a-c A-C", "a\nB C\n[exit code: 0]"),
        ("nosuchcommand-x 2>/dev/null", "(no output)\n[exit code: 127]"),
        ("kill -9 $$", "(no output)\n[signal: SIGKILL]\n[exit code: 137]"),
        ("printf 'a\\377b'", "a\ufffdb\n[exit code: 0]"),
        ("printf 'a\\303'", "a\ufffd\n[exit code: 0]"),
    ],
)
async def test_output_and_exit_code_are_the_result(world: World, command: str, text: str) -> None:
    """R105: a whole shell line goes to a shell."""
    with anyio.fail_after(60):
        result = await world.bash(command)
    assert result.text == text
    assert not result.is_error
    assert (
        "".join(world.told).strip() == text.partition("\n[")[0].replace("(no output)", "").strip()
    )


async def test_meta_tells_folder_exit_code_and_signal(world: World) -> None:
    assert meta_of(await world.bash("exit 3")) == {"cwd": str(world.cwd), "exitCode": 3}
    assert meta_of(await world.bash("kill -TERM $$")) == {
        "cwd": str(world.cwd),
        "exitCode": 143,
        "signal": "SIGTERM",
    }
    assert meta_of(await world.bash("kill -40 $$"))["signal"] == "SIG40"


async def test_a_command_runs_in_its_folder_with_the_environment_given(
    world: World, tmp_path: Path
) -> None:
    (world.cwd / "sub").mkdir()
    world.env["GIVEN"] = "yes"
    assert "HOME" not in world.env
    result = await world.bash('pwd; echo "$GIVEN ${HOME-none}"', workdir="sub")
    assert result.text.startswith(f"{world.cwd / 'sub'}\nyes none\n")
    assert meta_of(result)["cwd"] == str(world.cwd / "sub")
    access = world.tools["bash"].access(
        {"command": "ls", "description": "x", "workdir": str(tmp_path)}, world.cwd
    )
    assert access == Access(reads=(tmp_path,), command="ls")
    assert world.tools["bash"].access({"command": "ls", "description": "x"}, world.cwd) == Access(
        reads=(world.cwd,), command="ls"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"workdir": "no"}, "is not a folder"),
        ({"workdir": "a\0b"}, "is not a folder"),
        ({"command": "echo \0"}, "no file or command can have"),
        ({"command": "echo " + "x" * 200_000}, "the command is too long"),
        ({"timeoutMs": 0}, "timeoutMs"),
        ({"timeoutMs": -5}, "timeoutMs"),
        ({"timeoutMs": 1.5}, "timeoutMs"),
    ],
)
async def test_a_command_that_cannot_be_started_is_an_error(
    world: World, arguments: Any, text: str
) -> None:
    result = await world.run("bash", **{"command": "true", "description": "x", **arguments})
    assert result.is_error
    assert result.text.startswith("Error: ")
    assert text in result.text


async def test_sh_is_used_where_there_is_no_bash(world: World, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    world.env["PATH"] = str(tmp_path / "bin")
    assert (await world.bash("echo ${BASH_VERSION-none}")).text.startswith("none\n")
    world.env["PATH"] = ""
    assert (await world.bash("echo hi")).text == "hi\n[exit code: 0]"


async def test_a_timeout_above_the_limit_is_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.harness.tools.bash.TIMEOUT_MAX_MS", 200)
    with anyio.fail_after(60):
        result = await world.bash("sleep 60", timeoutMs=10**30)
    assert "still running after 200 ms" in result.text


# --- stdin, descriptors ---


@pytest.mark.parametrize("command", ["cat", "read line", "python3 -c 'input()' 2>/dev/null"])
async def test_a_command_that_reads_its_input_sees_the_end_at_once(
    world: World, command: str
) -> None:
    """R029: no child may eat what the client sends."""
    with anyio.fail_after(60):
        result = await world.bash(command)
    assert not result.is_error


async def test_a_command_has_no_terminal_and_no_descriptor_of_ours(
    world: World, tmp_path: Path
) -> None:
    with (tmp_path / "secret").open("w") as ours:
        result = await world.bash(
            f"(: </dev/tty) 2>/dev/null || echo none; ls /proc/self/fd/{ours.fileno()} 2>&1"
        )
    assert result.text.startswith("none\n")
    assert "No such file" in result.text


# --- live output ---


async def test_output_is_told_while_the_command_runs(world: World) -> None:
    world.file("go", "")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(
                world.bash, "echo first; while [ -e go ]; do sleep 0.01; done; echo last"
            )
            await world.heard("first")
            assert world.told == ["first\n"]
            (world.cwd / "go").unlink()
    assert "".join(world.told) == "first\nlast\n"


async def test_thirty_five_thousand_lines_are_told_whole_and_in_few_pieces(world: World) -> None:
    """R049: bytes stay a small multiple of the output, and the end is complete."""
    with anyio.fail_after(60):
        started = anyio.current_time()
        await world.bash("seq 35000")
        took_s = anyio.current_time() - started
    assert "".join(world.told) == "".join(f"{n}\n" for n in range(1, 35001))
    assert len(world.told) <= 8 + 20 * took_s + 1
    assert max(len(piece.encode()) for piece in world.told) <= output.LIVE_PIECE_BYTES_MAX


def test_pieces_come_at_most_twenty_a_second() -> None:
    told: list[str] = []
    live = LiveOutput(told.append)
    assert live.due_in(10.0) == float("inf")
    for step in range(1000):
        live.add("x", 10.0 + step / 1000)
    assert 19 <= len(told) <= 20
    assert 0 < live.due_in(10.999) <= 0.05
    live.finish()
    assert "".join(told) == "x" * 1000


def test_a_piece_is_bounded_in_bytes_and_a_flood_loses_its_oldest() -> None:
    told: list[str] = []
    live = LiveOutput(told.append)
    live.add("€" * 20_000, 0.0)
    live.finish()
    assert "".join(told) == "€" * 20_000
    assert max(len(piece.encode()) for piece in told) <= 32 * 1024
    told.clear()
    live.add("first", 1.0)
    live.add("A" * 100 + "B" * 512 * 1024, 1.0)
    live.finish()
    assert told[0] == "first"
    assert told[1].startswith("\n[… 100 characters were too fast to be shown …]\nBBB")
    assert max(len(piece.encode()) for piece in told) <= 32 * 1024
    assert sum(piece.count("B") for piece in told) == 512 * 1024


async def test_a_character_cut_between_reads_is_put_together(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash("printf '\\342'; sleep 0.1; printf '\\202\\254'")
    assert result.text.startswith("€\n")
    assert "".join(world.told) == "€"


# --- kept output ---


async def test_long_output_shows_head_and_tail_and_a_file_has_it_all(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash("seq 35000; exit 2")
    file = world.spill / "bash-1.txt"
    assert meta_of(result)["outputFile"] == str(file)
    full = "".join(f"{n}\n" for n in range(1, 35001))
    assert file.read_text() == full
    assert result.text == (
        f"{full[:10_000]}\n[… {len(full) - 30_000} characters left out. "
        f"The full output is in {file} …]\n{full[-20_000:]}[exit code: 2]"
    )
    assert file.stat().st_mode & 0o777 == 0o600
    second = await world.bash("seq 35000")
    assert meta_of(second)["outputFile"] == str(world.spill / "bash-2.txt")


async def test_short_output_leaves_no_file(world: World) -> None:
    result = await world.bash("head -c 30000 /dev/zero | tr '\\0' x")
    assert result.text == "x" * 30_000 + "\n[exit code: 0]"
    assert not world.spill.exists()


async def test_an_endless_flood_stays_small_in_memory_and_on_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FILE_BYTES_MAX", 1024**2)
    with anyio.fail_after(60):
        result = await world.bash("yes", timeoutMs=300)
    assert "Its first 1 MiB are in " in result.text
    assert (world.spill / "bash-1.txt").stat().st_size == 1024**2
    assert len(result.text) < 31_000
    assert meta_of(result)["timedOut"] is True


async def test_a_disk_that_refuses_costs_only_the_file(world: World) -> None:
    world.spill.write_text("a file where the folder should be")
    result = await world.bash("seq 35000")
    assert "The full output could not be kept." in result.text
    assert "outputFile" not in meta_of(result)
    assert not result.is_error


@pytest.mark.parametrize("size", [29_999, 30_000, 30_001, 60_000])
@pytest.mark.parametrize("piece", [1000, 30_000, 100_000])
async def test_what_is_kept_is_right_at_every_size_and_split(
    tmp_path: Path, size: int, piece: int
) -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(size))
    kept = KeptOutput(tmp_path)
    for start in range(0, size, piece):
        await kept.add(text[start : start + piece].encode(), text[start : start + piece])
    kept.close()
    if size <= 30_000:
        assert kept.text() == text
        assert kept.file is None
        return
    assert kept.file is not None
    assert kept.file.read_text() == text
    assert kept.text().startswith(text[:10_000] + "\n[… " + str(size - 30_000))
    assert kept.text().endswith("\n" + text[-20_000:])


# --- ends ---


async def test_a_timeout_kills_and_returns_the_output_so_far(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash("echo before; sleep 60; echo after", timeoutMs=200)
    assert result.is_error
    assert (result.error_name, result.error_code) == ("ToolTimeoutError", "TIMEOUT")
    assert result.text == (
        "Error: the command was still running after 200 ms and was killed. "
        "Its output so far:\nbefore\n"
    )
    assert meta_of(result) == {
        "cwd": str(world.cwd),
        "exitCode": 143,
        "signal": "SIGTERM",
        "timedOut": True,
    }


async def test_what_a_command_says_while_it_is_ended_is_kept(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash("trap 'echo bye; exit 5' TERM; sleep 60 & wait", timeoutMs=200)
    assert result.text.endswith("bye\n")
    assert meta_of(result)["exitCode"] == 5


async def test_a_child_that_keeps_the_pipe_open_is_not_awaited(world: World) -> None:
    with anyio.fail_after(30):
        result = await world.bash("sleep 60 & echo $!")
    pid, _, rest = result.text.partition("\n")
    assert rest == "[processes left in the background were ended]\n[exit code: 0]"
    assert not alive(int(pid))


async def test_a_child_in_the_background_that_let_go_of_the_pipe_is_ended_too(
    world: World,
) -> None:
    with anyio.fail_after(60):
        result = await world.bash("sleep 60 >/dev/null 2>&1 & echo $!")
    assert not alive(int(result.text.partition("\n")[0]))


async def test_a_daemon_that_left_on_purpose_lives_on_after_a_normal_end(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash(
            "setsid sh -c 'echo $$ >pid; exec sleep 60' >/dev/null 2>&1 & "
            "while [ ! -s pid ]; do sleep 0.01; done; cat pid"
        )
    pid = int(result.text.partition("\n")[0])
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


async def test_the_last_output_of_a_pipeline_is_not_lost(world: World) -> None:
    with anyio.fail_after(60):
        result = await world.bash("(sleep 0.1; echo late) & echo early")
    assert result.text.startswith("early\nlate\n")


async def test_cancel_kills_a_shell_tree_with_a_grandchild_in_another_group(world: World) -> None:
    """R038: no x, and the call is over only when the tree is gone."""
    command = (
        "setsid sh -c 'echo $$ >one; sleep 30; touch x' & "
        "sh -c 'echo $$ >two; sleep 30; touch x' & "
        "while [ ! -s one ] || [ ! -s two ]; do sleep 0.01; done; cat one two; wait"
    )
    pids, took_s = await cancelled_when(world, command, r"\d+\n\d+\n")
    assert took_s < patient(2)
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    assert not (world.cwd / "x").exists()


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(world: World) -> None:
    command = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    (pid,), took_s = await cancelled_when(world, command, r"\d+\n")
    assert 0.4 < took_s < patient(2)
    assert not alive(pid)


async def test_a_grandchild_elsewhere_that_ignores_sigterm_is_killed_too(world: World) -> None:
    command = "setsid bash -c \"trap '' TERM; echo \\$\\$; while :; do sleep 0.05; done\" & wait"
    (pid,), took_s = await cancelled_when(world, command, r"\d+\n")
    assert 0.4 < took_s < patient(2)
    assert not alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_daemon_that_lost_its_parents_is_found_by_its_mark(world: World) -> None:
    command = "setsid sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 60\" & exit' ; sleep 60"
    (pid,), _ = await cancelled_when(world, command, r"\d+\n")
    assert not alive(pid)


async def test_other_commands_and_their_children_are_left_alone(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(other.bash, "setsid sh -c 'echo $$; exec sleep 60' & wait")
            (said,) = await other.heard(r"\d+\n")
            await cancelled_when(world, "echo $$; sleep 60", r"\d+\n")
            assert alive(int(said))
            group.cancel_scope.cancel()
    assert not alive(int(said))


async def test_a_cancel_after_the_shell_s_own_end_leaves_nothing(world: World) -> None:
    command = "setsid sh -c 'echo $$; exec sleep 60' & exit"
    (pid,), _ = await cancelled_when(world, command, r"\d+\n")
    assert not alive(pid)


async def test_a_cancel_before_the_start_starts_nothing(world: World) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await world.bash("touch x")
    assert scope.cancelled_caught
    assert not (world.cwd / "x").exists()


async def test_no_descriptor_is_left_open(world: World) -> None:
    await world.bash("true")
    before = open_descriptors()
    await world.bash("seq 35000")
    await world.bash("sleep 60", timeoutMs=50)
    await world.bash("echo \0")
    await world.run("grep", pattern="x")
    assert open_descriptors() == before
