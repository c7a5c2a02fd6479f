"""The plugin in somebody else's project: another agent, its own snapshots folder."""

import json
import sys

import pytest

pytest_plugins = "pytester"
pytestmark = pytest.mark.process

AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": 1}
    if message["method"] == "session/new":
        result = {"sessionId": "abc"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

TEST = f"""
import pathlib, pytest
from acp_bridge.testing.launch import command

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_scenario(check_scenario):
    folder = pathlib.Path(__file__).parent / "snapshots" / "one"
    agent = pathlib.Path(__file__).parent / "agent.py"
    await check_scenario(folder, launcher=command([{sys.executable!r}, str(agent)]))
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(agent=AGENT, test_mine=TEST)
    folder = pytester.path / "snapshots" / "one"
    folder.mkdir(parents=True)
    step = {"call": {"id": "n", "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}}
    (folder / "input.json").write_text(json.dumps({"description": "one", "steps": [step]}))
    return pytester


def run(project: pytest.Pytester, *flags: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *flags)


def test_expectations_are_written_by_a_failing_run_and_then_hold(project: pytest.Pytester) -> None:
    assert run(project, "--snapshot-update").ret != 0
    wire = project.path / "snapshots" / "one" / "expected" / "wire"
    assert (wire / "1.jsonl").read_text() == '{"id": "n", "result": {"sessionId": "session-1"}}\n'
    assert run(project).ret == 0


def test_an_answer_that_the_schema_does_not_allow_fails(project: pytest.Pytester) -> None:
    project.makepyfile(agent=AGENT.replace('{"sessionId": "abc"}', '{"session": "abc"}'))
    result = run(project, "--snapshot-update")
    result.stdout.fnmatch_lines(["*response session/new*"])
    assert not (project.path / "snapshots" / "one" / "expected").exists()
