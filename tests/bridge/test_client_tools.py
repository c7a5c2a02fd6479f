"""What the agent asks of a client: only what it offers, and for every tool (R019)."""

import anyio
import pytest
from acp_rig import Bench, Reply, allow, bash, said, write
from pace import patient

from acp_bridge.vocabulary import JsonObject

pytestmark = pytest.mark.anyio

FILES: JsonObject = {"readTextFile": True, "writeTextFile": True}
TERMINAL_CALLS = [
    "terminal/create",
    "terminal/wait_for_exit",
    "terminal/output",
    "terminal/release",
]


class Host:
    """Answers as a client with files and terminals; ``silent`` methods get no answer."""

    def __init__(self, *silent: str) -> None:
        self.silent = set(silent)
        self.asked: list[str] = []
        self.texts: dict[str, str] = {}

    def reply(self, request: JsonObject) -> Reply:
        method, params = str(request["method"]), request["params"]
        assert isinstance(params, dict)
        self.asked.append(method)
        if method in self.silent:
            return None
        match method:
            case "fs/read_text_file":
                return {"result": {"content": self.texts.get(str(params["path"]), "")}}
            case "fs/write_text_file":
                self.texts[str(params["path"])] = str(params["content"])
                return {"result": {}}
            case "terminal/create":
                return {"result": {"terminalId": f"t{self.asked.count(method)}"}}
            case "terminal/wait_for_exit":
                return {"result": {"exitCode": 0}}
            case "terminal/output":
                return {"result": {"output": "said\n", "truncated": False}}
            case "terminal/kill" | "terminal/release":
                return {"result": {}}
            case _:
                return allow(request)

    @property
    def used(self) -> list[str]:
        return [method for method in self.asked if method != "session/request_permission"]


EDIT: JsonObject = {"file_path": "a.txt", "old_string": "unsaved", "new_string": "changed"}
SAVED_EDIT: JsonObject = {"file_path": "a.txt", "old_string": "saved", "new_string": "changed"}
READ, WRITE = "fs/read_text_file", "fs/write_text_file"


@pytest.mark.parametrize(
    ("offers", "execution", "used"),
    [
        ({}, "local", []),
        ({"fs": {"readTextFile": True}}, "local", [READ, READ, READ]),
        ({"fs": {"writeTextFile": True}}, "local", [WRITE, WRITE]),
        ({"terminal": True}, "local", []),
        ({"terminal": True}, "client", TERMINAL_CALLS),
        ({}, "client", []),
        ({"fs": FILES}, "local", [READ, READ, READ, WRITE, WRITE]),
        (
            {"fs": FILES, "terminal": True},
            "client",
            [READ, READ, READ, WRITE, WRITE, *TERMINAL_CALLS],
        ),
    ],
)
async def test_a_client_is_asked_for_what_it_offers_and_nothing_else_r019(
    bench: Bench, offers: JsonObject, execution: str, used: list[str]
) -> None:
    host = Host()
    path = bench.cwd / "a.txt"
    path.write_text("saved\n")
    reads = READ in used
    host.texts[str(path)] = "unsaved\n"
    bench.answers(
        [{"tool_call": {"id": "c1", "name": "read", "arguments": {"file_path": "a.txt"}}}],
        [{"tool_call": {"id": "c2", "name": "edit", "arguments": EDIT if reads else SAVED_EDIT}}],
        [write("c3", "new.txt", "new\n")],
        [bash("c4", "touch ran")],
        [{"text": "Done."}],
    )
    async with bench.editor(offers, execution=execution) as editor:
        editor.reply = host.reply
        session = await editor.new(bench.cwd)
        assert await editor.prompt(session) == "end_turn"
        results = [u for u in editor.updates() if "rawOutput" in u]
    allowed = sorted(set(host.used) - {READ}), sorted(set(used) - {READ})
    assert allowed[0] == allowed[1]
    assert (READ in host.used) == reads
    assert ("unsaved" in str(results[0]["rawOutput"])) == reads
    if WRITE in used:
        changed = host.texts[str(path)]
        assert host.texts[str(bench.cwd / "new.txt")] == "new\n"
    else:
        changed = path.read_text()
    assert changed == "changed\n"
    assert (bench.cwd / "ran").exists() == (execution == "local")
    assert (results[3]["status"] == "failed") == (
        execution == "client" and "terminal" not in offers
    )


@pytest.mark.parametrize("silent", ["terminal/create", "terminal/wait_for_exit"])
async def test_a_client_that_hangs_cannot_hold_a_cancel(bench: Bench, silent: str) -> None:
    host = Host(silent, "terminal/output", "terminal/kill", "terminal/release")
    bench.answers([bash("c1", "make")])
    # Only answered calls can be judged: a terminal that never came is not there to release.
    async with bench.editor({"terminal": True}, execution="client", is_judged=False) as editor:
        editor.reply = host.reply
        session = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session))
        await editor.seen(lambda m: m.get("method") == silent)
        await editor.cancel(session)
        with anyio.fail_after(patient(2)):
            answer = await editor.answer(prompt)
        assert answer["result"] == {"stopReason": "cancelled"}
        released = [] if silent == "terminal/create" else ["terminal/kill", "terminal/output"]
        expected = released + (["terminal/release"] if released else [])
        assert [
            m for m in host.used if m.split("/")[1] in {"kill", "output", "release"}
        ] == expected
        if silent == "terminal/create":
            made = await editor.seen(lambda m: m.get("method") == silent)
            await editor.send({"id": made["id"], "result": {"terminalId": "t1"}})
            await editor.seen(lambda m: m.get("method") == "terminal/release")
    assert host.asked.count("terminal/release") == 1


async def test_a_client_that_leaves_ends_the_command_and_may_still_read_its_release(
    bench: Bench,
) -> None:
    host = Host("terminal/wait_for_exit", "terminal/release")
    bench.answers([bash("c1", "make")])
    async with bench.editor({"terminal": True}, execution="client", is_judged=False) as editor:
        editor.reply = host.reply
        session = await editor.new(bench.cwd)
        await editor.start("session/prompt", said(session))
        await editor.seen(lambda m: m.get("method") == "terminal/wait_for_exit")
    assert host.used == ["terminal/create", "terminal/wait_for_exit", "terminal/release"]


async def test_a_session_loaded_while_a_command_runs_shows_its_terminal(bench: Bench) -> None:
    host = Host("terminal/wait_for_exit")
    bench.answers([bash("c1", "make")], [{"text": "Made."}])
    async with bench.editor({"terminal": True}, execution="client", is_judged=False) as editor:
        editor.reply = host.reply
        session = await editor.new(bench.cwd)
        prompt = await editor.start("session/prompt", said(session))
        waiting = await editor.seen(lambda m: m.get("method") == "terminal/wait_for_exit")
        before = len(editor.updates(session))
        await editor.load(session, bench.cwd)
        again = editor.updates(session)[before:]
        assert any(u.get("content") == [{"type": "terminal", "terminalId": "t1"}] for u in again)
        await editor.send({"id": waiting["id"], "result": {"exitCode": 0}})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        last = [u for u in editor.updates(session) if u.get("toolCallId") == "c1"][-1]
        assert last["status"] == "completed"
        assert "content" not in last, "the terminal is released: it is not to be named again"
