"""DeepSeek Harness' own ACP, pinned by the pytest plugin in a project outside of this one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dsh_rig import dsh_command

pytest_plugins = "pytester"
pytestmark = [pytest.mark.dsh, pytest.mark.process]

PROVIDER = Path(__file__).parents[2] / "benchmarks" / "peers" / "loopback_provider.py"

STEPS = [
    {
        "call": {
            "id": "new",
            "method": "session/new",
            "params": {"cwd": "{{cwd}}", "mcpServers": []},
        }
    },
    {
        "call": {
            "id": "p1",
            "method": "session/prompt",
            "params": {
                "sessionId": {"$ref": "new.result.sessionId"},
                "prompt": [{"type": "text", "text": "updates 3"}],
            },
            "gives": {"result": {"stopReason": "end_turn"}},
        }
    },
]


def test_the_native_acp_of_dsh_is_pinned(pytester: pytest.Pytester) -> None:
    command = dsh_command()
    with subprocess.Popen(
        [sys.executable, str(PROVIDER)], stdout=subprocess.PIPE, text=True
    ) as provider:
        assert provider.stdout is not None
        url = provider.stdout.readline().strip()
        variables = f"DSH_HOME={{home}} DSH_TELEMETRY_MODE=DISABLED DEEPSEEK_BASE_URL={url}"
        agent = f"env {variables} DEEPSEEK_API_KEY=loopback {command} --profile acp"
        pytester.makeini(f"[pytest]\nacp_agent = {agent}\nacp_wait_s = 60\n")
        pytester.makepyfile(test_mine="def test_scenario(acp_scenario):\n    acp_scenario()\n")
        folder = pytester.path / "snapshots" / "hello"
        folder.mkdir(parents=True)
        (folder / "input.json").write_text(json.dumps({"description": "one", "steps": STEPS}))
        try:
            pytester.runpytest_subprocess("--snapshot-update")
            pytester.runpytest_subprocess().assert_outcomes(passed=1)
        finally:
            provider.kill()
    wire = (folder / "expected" / "wire" / "1.jsonl").read_text()
    assert '"text": "token token token "' in wire
    assert '"stopReason": "end_turn"' in wire
    assert (folder / "expected" / "sessions" / "1.jsonl").is_file()  # its log is of our form
