"""Permission modes: what each lets every tool do (R088), and how the log says them (R066)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_models import FakeCatalog, FakeModel
from harness_rig import FakeClient, call, rig, script, store

from acp_bridge.harness.approvals import EDITS_GRANT, Question, Refusal, verdict_on
from acp_bridge.harness.memory import SessionMemory
from acp_bridge.harness.modes import MODES, mode_from_log, mode_rows
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.ports import Access
from acp_bridge.vocabulary import Answer, Draft, Event, JsonObject, Mode, TurnEnd

ALL: list[Mode] = [info.mode for info in MODES.values()]

RUNS, ASKS, REFUSED = "runs", "asks", "refused"

# What a call does where it runs: a look has nothing to show on the disk.
LOOKS = ("read", "glob", "grep", "todo_write", "read outside", "glob outside", "grep outside")

IN_MODES: dict[str, dict[str, str]] = {
    name: dict(zip(("ask", "accept-edits", "plan", "full"), verdicts, strict=True))
    for name, verdicts in {
        "read": (RUNS, RUNS, RUNS, RUNS),
        "glob": (RUNS, RUNS, RUNS, RUNS),
        "grep": (RUNS, RUNS, RUNS, RUNS),
        "todo_write": (RUNS, RUNS, RUNS, RUNS),
        "write": (ASKS, RUNS, REFUSED, RUNS),
        "edit": (ASKS, RUNS, REFUSED, RUNS),
        "bash": (ASKS, ASKS, REFUSED, RUNS),
        "read outside": (ASKS, ASKS, REFUSED, RUNS),
        "glob outside": (ASKS, ASKS, REFUSED, RUNS),
        "grep outside": (ASKS, ASKS, REFUSED, RUNS),
        "write outside": (ASKS, ASKS, REFUSED, RUNS),
        "edit outside": (ASKS, ASKS, REFUSED, RUNS),
    }.items()
}

CASES: list[tuple[str, str, str, Answer | None]] = [
    (mode, name, verdict, answer)
    for name, verdicts in IN_MODES.items()
    for mode, verdict in verdicts.items()
    for answer in ([*Answer] if verdict == ASKS else [None])
]
"""A question with every answer; what is no question has none."""


def a_call(name: str, folder: Path) -> tuple[JsonObject, Path]:
    """The call of this name, and the file that it changes if it runs."""
    place = folder / "outside" if name.endswith("outside") else folder / "work"
    seen, made = str(place / "seen.txt"), str(place / "made.txt")
    tool = name.split(maxsplit=1)[0]
    calls: dict[str, JsonObject] = {
        "read": call("c", "read", file_path=seen),
        "glob": call("c", "glob", pattern="*", path=str(place)),
        "grep": call("c", "grep", pattern="x", path=str(place)),
        "todo_write": call("c", "todo_write", todos=[]),
        "write": call("c", "write", file_path=made, content="made\n"),
        "edit": call("c", "edit", file_path=seen, old_string="x", new_string="made"),
        "bash": call("c", "bash", command=f"echo made > {made}", description="test"),
    }
    return calls[tool], Path(seen if tool == "edit" else made)


def is_changed(path: Path) -> bool:
    return path.exists() and "made" in path.read_text()


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "name", "verdict", "answer"), CASES)
async def test_every_mode_with_every_tool_and_every_answer_r088(
    tmp_path: Path, mode: str, name: str, verdict: str, answer: Answer | None
) -> None:
    for folder in ("work", "outside"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "seen.txt").write_text("x\n")
    item, path = a_call(name, tmp_path)
    model = script([item], [{"text": "ok"}], releases=tmp_path)
    client = FakeClient(*([answer] if answer is not None else []))
    async with rig(tmp_path, model, client=client, mode=MODES[mode].mode) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert len(client.asks) == (verdict == ASKS)
        [result] = r.results()
    runs = verdict == RUNS or answer in {Answer.ALLOW_ONCE, Answer.ALLOW_ALWAYS}
    assert is_changed(path) == (runs and name not in LOOKS)
    assert result.startswith("Error") != runs
    assert ("plan mode" in result) == (verdict == REFUSED)


def test_the_table_knows_every_mode_and_every_tool() -> None:
    assert set(ALL) == {mode for verdicts in IN_MODES.values() for mode in verdicts}
    assert {tool.name for tool in builtin_tools()} == {name.split()[0] for name in IN_MODES}


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("access", "grant"),
    [
        (Access(writes=(Path("/work/a"),)), EDITS_GRANT),
        (Access(command="git status"), "program:git status"),
    ],
)
def test_what_was_granted_always_holds_in_every_mode_but_plan(
    access: Access, grant: str, mode: Mode
) -> None:
    verdict = verdict_on(
        access, mode=mode, workspace=Path("/work"), spill_dir=Path("/spill"), grants={grant}
    )
    assert isinstance(verdict, Refusal) == (mode == "plan")
    assert not isinstance(verdict, Question)


@pytest.mark.anyio
async def test_a_grant_does_not_outlive_a_switch_to_plan(tmp_path: Path) -> None:
    model = script(
        [call("a", "write", file_path="a.txt", content="1")],
        [{"text": "ok"}],
        [call("b", "write", file_path="b.txt", content="1")],
        [{"text": "ok"}],
        [call("c", "write", file_path="c.txt", content="1")],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    client = FakeClient(Answer.ALLOW_ALWAYS)
    async with rig(tmp_path, model, client=client) as r:
        await r.prompt()
        await r.session.choose("mode", "plan")
        await r.prompt()
        await r.session.choose("mode", "ask")
        await r.prompt()
        assert len(client.asks) == 1
    assert [p.name for p in sorted((tmp_path / "work").iterdir())] == ["a.txt", "c.txt"]


def folded(*drafts: Draft) -> SessionMemory:
    return SessionMemory(Event(seq, 0, d.type, d.data) for seq, d in enumerate(drafts))


@pytest.mark.parametrize("before", [None, *ALL])
@pytest.mark.parametrize("mode", ALL)
def test_the_rows_of_every_switch_fold_back_to_the_mode(mode: Mode, before: Mode | None) -> None:
    first = [] if before is None else mode_rows(before, before=None)
    memory = folded(*first, *mode_rows(mode, before=before))
    assert memory.mode == mode
    assert memory.sets_up


@pytest.mark.parametrize(
    ("sandbox", "policy", "planning", "mode"),
    [
        ("read-only", "ask", False, "ask"),
        ("read-only", "never", False, "ask"),
        ("workspace-write", "ask", False, "accept-edits"),
        ("workspace-write", "never", False, "accept-edits"),
        ("danger-full-access", "never", False, "full"),
        ("danger-full-access", "ask", False, "ask"),
        ("danger-full-access", None, False, "ask"),
        ("something-new", "never", False, "ask"),
        (None, "never", False, "ask"),
        ("workspace-write", "ask", True, "plan"),
        ("danger-full-access", "never", True, "plan"),
    ],
)
def test_what_the_other_harness_logged_is_never_taken_for_more_than_it_is(
    sandbox: str | None, policy: str | None, planning: bool, mode: Mode
) -> None:
    assert mode_from_log(sandbox, policy, planning=planning) == mode


def test_a_log_that_says_nothing_of_a_mode_has_none() -> None:
    assert folded().mode is None
    assert folded(Draft("permission/preset", {"preset": "read-only"})).mode is None


@pytest.mark.parametrize(
    ("case", "session_id", "mode"),
    [
        ("approval", "ap", "accept-edits"),
        ("misc", "ms", "accept-edits"),
        ("jobs", "jb", "full"),
        ("plan", "pl", "plan"),
    ],
)
def test_logs_of_the_real_runtime_fold_to_their_mode(
    case: str, session_id: str, mode: Mode, real_log: Callable[[str, str], list[Event]]
) -> None:
    memory = SessionMemory(real_log(case, session_id))
    assert memory.mode == mode
    assert memory.selection is not None
    assert memory.selection["model"] == "deepseek-chat"
    assert "reasoningEffort" not in memory.selection  # the runtime filled it in, nobody chose it


def test_the_real_runtimes_plan_mode_goes_on_and_off(
    real_log: Callable[[str, str], list[Event]],
) -> None:
    memory = SessionMemory()
    modes: list[Mode | None] = []
    for event in real_log("plan", "pl"):
        memory.apply(event)
        if not modes or memory.mode != modes[-1]:
            modes.append(memory.mode)
    assert modes == [None, "accept-edits", "plan", "accept-edits", "plan"]


@pytest.mark.anyio
@pytest.mark.parametrize("before", ALL)
@pytest.mark.parametrize("mode", ALL)
async def test_a_switched_mode_is_found_again_r066(
    tmp_path: Path, mode: Mode, before: Mode
) -> None:
    catalog = FakeCatalog(FakeModel("a"))
    async with rig(tmp_path, catalog, mode=before) as r:
        await r.prompt()
        await r.session.choose("mode", mode)
    for other in ALL:  # what a new session would begin with does not matter
        async with rig(tmp_path, catalog, mode=other) as r:
            assert r.session.options().mode == mode
            assert len(r.data("permission/preset")) == (1 if mode == before else 2)
    log = store(tmp_path).read("s")
    assert SessionMemory(log.events).mode == mode
