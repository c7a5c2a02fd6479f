"""A project outside of this one, with an ini file of its own: any agent's command can be pinned."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agents import SDK_AGENT, TYPESCRIPT_AGENT

pytest_plugins = "pytester"
pytestmark = pytest.mark.process

NPM = Path(os.environ.get("ACP_BRIDGE_NPM", Path(__file__).resolve().parents[2])) / "node_modules"
SDK = NPM / "@agentclientprotocol" / "sdk" / "dist" / "v1" / "stable" / "acp.js"

TEST = """
def test_scenario(acp_scenario):
    acp_scenario()
"""

SESSION = {"$ref": "new.result.sessionId"}
NEW = {
    "call": {
        "id": "new",
        "method": "session/new",
        "params": {"cwd": "{{cwd}}", "mcpServers": []},
    }
}
PROMPT = {
    "id": "p1",
    "method": "session/prompt",
    "params": {"sessionId": SESSION, "prompt": [{"type": "text", "text": "Hello"}]},
}
ASKED = [
    NEW,
    {"request": PROMPT},
    {"await": {"as": "ask", "request": {"method": "session/request_permission"}}},
    {"answer": {"to": "ask", "choose": "allow_once"}},
    {"await": {"response": "p1"}},
]

NewProject = Callable[..., pytest.Pytester]


@pytest.fixture
def project(pytester: pytest.Pytester) -> NewProject:
    def make(*steps: object, agent: str, options: str = "") -> pytest.Pytester:
        pytester.makeini(f"[pytest]\nacp_agent = {agent}\n{options}")
        pytester.makepyfile(test_mine=TEST)
        folder = pytester.path / "snapshots" / "hello"
        folder.mkdir(parents=True)
        whole = {"description": "one", "steps": list(steps)}
        (folder / "input.json").write_text(json.dumps(whole))
        return pytester

    return make


def run(project: pytest.Pytester, *flags: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *flags)


def pinned(project: pytest.Pytester) -> str:
    """The session's updates, after the expectations were written and held."""
    assert run(project, "--snapshot-update").ret == 1
    run(project).assert_outcomes(passed=1)
    wire = project.path / "snapshots" / "hello" / "expected" / "wire"
    return (wire / "1.jsonl").read_text()


def test_our_own_command_is_held_to_everything(project: NewProject) -> None:
    one = project(
        NEW,
        {"call": PROMPT},
        agent="acp-bridge --home {home} --model scripted:{model}",
        options="acp_checks = all",
    )
    folder = one.path / "snapshots" / "hello"
    (folder / "model.jsonl").write_text('{"stream": [{"text": "Hello back."}]}\n')
    assert '"text": "Hello back."' in pinned(one)
    assert (folder / "expected" / "model_requests.jsonl").is_file()
    assert (folder / "expected" / "sessions" / "1.jsonl").is_file()


def test_an_agent_on_the_python_sdk_is_pinned_without_log_or_model(project: NewProject) -> None:
    one = project(*ASKED, agent="python agent.py", options=r"acp_ids = call_[0-9a-f]{8}")
    one.makepyfile(agent=SDK_AGENT)
    wire = pinned(one)
    assert '"text": "You: Hello"' in wire
    assert '"toolCallId": "{{id 1}}"' in wire
    assert {path.name for path in (one.path / "snapshots/hello/expected").iterdir()} == {"wire"}


@pytest.mark.peer
def test_an_agent_on_the_typescript_sdk_is_pinned(project: NewProject) -> None:
    if not SDK.is_file():
        pytest.skip(f"the SDK is missing: npm i --prefix {NPM.parent} @agentclientprotocol/sdk")
    one = project(NEW, {"call": PROMPT}, agent="node agent.mjs")
    (one.path / "agent.mjs").write_text(TYPESCRIPT_AGENT.replace("SDK", json.dumps(str(SDK))))
    assert '"text": "You: Hello"' in pinned(one)


def test_a_difference_is_told_by_file_line_and_member(project: NewProject) -> None:
    one = project(*ASKED, agent="python agent.py", options=r"acp_ids = call_[0-9a-f]{8}")
    one.makepyfile(agent=SDK_AGENT)
    run(one, "--snapshot-update")
    one.makepyfile(agent=SDK_AGENT.replace("You: ", "He: "))
    result = run(one)
    result.stdout.fnmatch_lines(
        [
            "hello differs from its expected/ (- pinned, + now):",
            "*wire/1.jsonl, line 3 (session/update agent_message_chunk): *content.text",
            '*- "You: Hello"',
            '*+ "He: Hello"',
            "If this is what you meant: pytest --snapshot-update *",
        ]
    )


QUICK_AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": 1}
    if message["method"] == "session/new":
        result = {"sessionId": "abc"}
        print("I am new", file=sys.stderr)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_wait_without_an_end_shows_what_came_and_what_the_agent_said(project: NewProject) -> None:
    never = {"await": {"update": {"sessionUpdate": "plan"}}}
    one = project(NEW, never, agent="python agent.py", options="acp_wait_s = 5")
    one.makepyfile(agent=QUICK_AGENT)
    run(one).stdout.fnmatch_lines(
        [
            "hello, step 2 (AwaitUpdate): no update {'sessionUpdate': 'plan'} within 5 s",
            '*<- {"jsonrpc"*"sessionId"*',
            "I am new",
        ]
    )


def test_an_agent_is_named_by_a_mark_as_well(project: NewProject) -> None:
    one = project(NEW, {"call": PROMPT}, agent="python nothing.py")
    one.makepyfile(agent=SDK_AGENT)
    mark = f"@pytest.mark.acp_agent([{sys.executable!r}, 'agent.py'], wait_s=60)"
    one.makepyfile(test_mine="import pytest\n" + mark + TEST.replace("\ndef", "\ndef", 1))
    folder = one.path / "snapshots" / "hello"
    whole = {"description": "one", "steps": [NEW]}
    (folder / "input.json").write_text(json.dumps(whole))
    assert '"sessionId": "session-1"' in pinned(one)


@pytest.mark.parametrize(
    ("agent", "options", "told"),
    [
        ("", "", "*no agent is named: set acp_agent*"),
        ("no-such-agent", "", "*there is no program 'no-such-agent'*"),
        (
            "python a.py",
            "acp_checks = some",
            "*acp_checks is 'some', and can be all, schema, none*",
        ),
        ("python a.py", "acp_wait_s = soon", "*acp_wait_s is 'soon'*"),
        ("python a.py", "acp_ids = (", "*acp_ids: '(' is no regular expression*"),
        ("python a.py", "acp_scenarios = none", "*there is no scenario below *none*"),
    ],
    ids=["agent", "program", "checks", "wait", "ids", "scenarios"],
)
def test_a_wrong_option_is_named(project: NewProject, agent: str, options: str, told: str) -> None:
    result = project(NEW, agent=agent, options=options).runpytest_inprocess("-p", "no:asyncio")
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    pytest.LineMatcher(text.splitlines()).fnmatch_lines([told])


def test_scenarios_without_expectations_say_how_to_make_them(project: NewProject) -> None:
    one = project(NEW, agent="python agent.py")
    one.makepyfile(agent=SDK_AGENT)
    run(one).stdout.fnmatch_lines(["*hello has no expected/: run pytest --snapshot-update*"])
