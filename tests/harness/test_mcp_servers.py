"""Servers of a session over all three transports, with real servers of the library."""

import os
import signal
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest
from mcp_rig import SECRET, lives, schema_of, serving, site, tiny, until
from pace import patient
from tool_world import World

from acp_bridge.harness.mcp import servers as servers_module
from acp_bridge.harness.mcp.merging import Wanted
from acp_bridge.harness.mcp.servers import Connector
from acp_bridge.vocabulary import HttpServer, McpServer, StdioServer

pytestmark = pytest.mark.anyio


async def test_a_process_gets_exactly_its_environment_and_none_of_our_keys(world: World) -> None:
    given = {"A": "1", "EMPTY": "", "ODD": "x=y\nz ü"}
    ours = {**world.env, "ANTHROPIC_API_KEY": SECRET, "A": "ours", "OTHER": "stays"}
    async with serving(world, tiny(env=given), env=ours) as served:
        await served.offers("mcp__tiny__env")
        for name, value in {**given, "OTHER": "stays", "ANTHROPIC_API_KEY": None}.items():
            assert await served.text("mcp__tiny__env", name=name) == repr(value)
        assert served.notes == []


async def test_a_process_works_in_the_sessions_folder_and_ends_with_it(world: World) -> None:
    async with serving(world, tiny()) as served:
        await served.offers("mcp__tiny__facts")
        pid, folder, is_terminal = (await served.text("mcp__tiny__facts")).split()
        assert (folder, is_terminal) == (str(world.cwd), "False")
        stray = int(await served.text("mcp__tiny__stray"))
        assert lives(int(pid))
        assert lives(stray)
    assert not lives(int(pid))
    assert not lives(stray)
    assert served.servers.tools == {}


async def test_a_process_that_will_not_end_is_killed(world: World) -> None:
    async with serving(world, tiny("stubborn")) as served:
        await served.offers("mcp__tiny__facts")
        pid = int((await served.text("mcp__tiny__facts")).split()[0])
        started = anyio.current_time()
    assert anyio.current_time() - started < patient(servers_module.CLOSE_WAIT_S)
    assert not lives(pid)


@pytest.mark.parametrize("is_sse", [False, True])
async def test_a_server_at_an_address_gets_exactly_the_headers(world: World, is_sse: bool) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "X-Two": "a, b"}
    async with (
        site(is_sse=is_sse) as place,
        serving(world, place.server(is_sse=is_sse, headers=headers)) as served,
    ):
        await served.offers("mcp__site__add")
        assert await served.text("mcp__site__add", a=1, b=2) == "3"
        assert len(place.headers) >= 3
        for sent in place.headers:
            assert (sent["authorization"], sent["x-two"]) == (f"Bearer {SECRET}", "a, b")
        assert served.notes == []


async def test_results_read_as_text_and_failures_are_failures(world: World) -> None:
    async with serving(world, tiny()) as served:
        await served.offers("mcp__tiny__add")
        assert schema_of(served, "mcp__tiny__add")["required"] == ["a", "b"]
        assert served.servers.tools["mcp__tiny__add"].description == "Adds two numbers."
        assert await served.text("mcp__tiny__picture") == "[image: image/png, about 30 bytes]"
        failed = await served.call("mcp__tiny__fail")
        assert failed.is_error
        assert failed.text == "Error executing tool fail"
        long = await served.call("mcp__tiny__big", chars=100_000)
        assert len(long.text) < 31_000
        assert (world.spill / "mcp-1.txt").read_text() == "x" * 100_000


async def test_tools_that_come_later_are_offered(world: World) -> None:
    async with serving(world, tiny()) as served:
        await served.offers("mcp__tiny__grow")
        assert "mcp__tiny__grown" not in served.servers.tools
        assert await served.text("mcp__tiny__grow") == "told"
        await served.offers("mcp__tiny__grown")
        assert await served.text("mcp__tiny__grown") == "big now"


@pytest.mark.parametrize("how", ["crash", "kill"])
async def test_a_server_that_dies_in_a_call_fails_it_and_is_told_of(world: World, how: str) -> None:
    async with serving(world, tiny()) as served:
        await served.offers("mcp__tiny__facts")
        if how == "crash":
            failed = await served.call("mcp__tiny__crash")
            why = "ended with exit code 7"
        else:
            pid = int((await served.text("mcp__tiny__facts")).split()[0])
            mark = world.cwd / "mark"
            async with anyio.create_task_group() as group:

                async def kill() -> None:
                    await until(mark.exists)
                    os.kill(pid, signal.SIGKILL)

                group.start_soon(kill)
                failed = await served.call("mcp__tiny__slow", mark=str(mark))
            why = "was ended by signal 9"
        assert failed.is_error
        assert failed.text == f"Error: the MCP server tiny {why}."
        assert await served.told() == (
            f"The MCP server tiny {why}. Its tools are gone; they come back when the session is "
            "opened again."
        )
        await until(lambda: not served.servers.tools)


async def test_a_cancelled_call_is_cancelled_at_the_server_which_goes_on(world: World) -> None:
    mark = world.cwd / "mark"
    async with serving(world, tiny()) as served:
        await served.offers("mcp__tiny__slow")
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await until(mark.exists)
                group.cancel_scope.cancel()

            group.start_soon(cancel)
            await served.call("mcp__tiny__slow", mark=str(mark))
        await until((world.cwd / "mark.cancelled").exists)
        assert await served.text("mcp__tiny__add", a=2, b=2) == "4"


async def test_a_call_has_the_time_that_the_user_says(world: World) -> None:
    async with serving(world, Wanted(tiny(), call_s_max=0.5)) as served:
        await served.offers("mcp__tiny__slow")
        failed = await served.call("mcp__tiny__slow", mark=str(world.cwd / "mark"))
        assert failed.is_error
        assert failed.text == "Error: the MCP server tiny did not answer within 0.5 s."
        await until((world.cwd / "mark.cancelled").exists)


BROKEN: dict[str, tuple[McpServer, str]] = {
    "fails": (tiny("fails", name="bad", env={"TINY_SECRET": SECRET}), "ended with exit code 3"),
    "missing": (
        StdioServer("bad", "/no/such/program", (SECRET,), {"K": SECRET}),
        "cannot be started: there is no command /no/such/program",
    ),
    "folder": (
        StdioServer("bad", "/", (SECRET,)),
        "cannot be started: / may not be run",
    ),
    "not there": (
        HttpServer("bad", f"http://127.0.0.1:9/{SECRET}", {"X": SECRET}),
        "cannot be reached",
    ),
    "not there, sse": (
        HttpServer("bad", f"http://127.0.0.1:9/{SECRET}", {"X": SECRET}, is_sse=True),
        "cannot be reached",
    ),
    "no address": (
        HttpServer("bad", f"gopher:{SECRET}", {"X": SECRET}),
        "cannot be used: its address is no HTTP address",
    ),
    "bad header": (
        HttpServer("bad", "http://127.0.0.1:9/", {"X\n": f"{SECRET}\r\nY: 1"}),
        "cannot be reached",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_server_that_cannot_be_used_is_named_and_costs_the_others_nothing(
    world: World, what: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    bad, why = BROKEN[what]
    async with serving(world, bad, tiny()) as served:
        told = await served.told()
        await served.offers("mcp__tiny__add")
        assert await served.text("mcp__tiny__add", a=1, b=2) == "3"
        assert all(name.startswith("mcp__tiny__") for name in served.servers.tools)
    assert told == f"The MCP server bad {why}. The session goes on without it."
    assert served.notes == [told]
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize("is_sse", [False, True])
async def test_a_wrong_path_is_told_as_such(world: World, is_sse: bool) -> None:
    async with (
        site(is_sse=is_sse) as place,
        serving(world, place.server(is_sse=not is_sse)) as served,
    ):
        assert (await served.told()).startswith("The MCP server site cannot be used: it answered ")


async def test_what_a_program_prints_beside_its_messages_is_passed_over(world: World) -> None:
    async with serving(world, tiny("garbage")) as served:
        await served.offers("mcp__tiny__add")
        assert served.notes == []


async def test_a_first_prompt_waits_a_bounded_time_and_later_ones_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "PROMPT_WAIT_S", 0.05)
    async with serving(world, tiny("hangs", name="slow one")) as served:
        with anyio.fail_after(60):
            await served.servers.ready()
        assert served.notes == [
            "The MCP server slow one is still connecting: its tools come when it is there."
        ]
        await served.servers.ready()
        assert len(served.notes) == 1


async def test_a_first_prompt_finds_the_tools_of_a_server_that_is_fast_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "PROMPT_WAIT_S", 20.0)
    async with serving(world, tiny()) as served:
        await served.servers.ready()
        assert "mcp__tiny__add" in served.servers.tools


async def test_a_server_that_never_answers_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "CONNECT_S_MAX", 1.0)
    async with serving(world, tiny("hangs")) as served:
        assert await served.told() == (
            "The MCP server tiny did not connect within 1 s. The session goes on without it."
        )


async def test_a_session_that_closes_does_not_wait_for_servers_that_connect(world: World) -> None:
    async with serving(world, tiny("hangs")) as served:
        await anyio.lowlevel.checkpoint()
    assert served.notes == []


async def test_without_the_library_one_sentence_says_what_to_install(world: World) -> None:
    def not_installed() -> Connector:
        raise ModuleNotFoundError("No module named 'mcp'")

    one, two = tiny(name="one"), tiny(name="two")
    async with serving(world, one, two, find_connector=not_installed) as served:
        with anyio.fail_after(60):
            await served.servers.ready()
    assert served.notes == [
        (
            "MCP servers need a part of acp-bridge that is not installed: "
            "`pip install 'harness-acp-bridge[mcp]'`. Without it these are not used: one, two."
        )
    ]


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("acp_bridge.cli.assemble", "acp_bridge.harness.mcp.servers"),
        ("acp_bridge.harness.mcp.servers", "mcp"),
        ("acp_bridge.harness.mcp.servers", "pydantic"),
    ],
)
def test_a_session_without_servers_pays_nothing_for_them(imported: str, absent: str) -> None:
    code = f"import sys, {imported}; print({absent!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
