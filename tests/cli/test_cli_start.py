"""How the process starts: what it loads when, and what it says when it cannot serve."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LATE = (
    "acp_bridge.bridge.questions",
    "acp_bridge.bridge.terminals",
    "acp_bridge.harness.compaction",
    "acp_bridge.harness.images",
    "acp_bridge.harness.mcp.merging",
    "acp_bridge.harness.tools.bash",
    "acp_bridge.harness.tools.ask",
    "acp_bridge.harness.tools.search",
    "acp_bridge.harness.turn",
    "acp_bridge.models.demo",
    "acp_bridge.sessions.query",
    "acp_bridge.subagents.service",
    "difflib",
    "hashlib",
    "httpx",
    "jsonschema",
    "lsprotocol",
    "mcp",
    "pygls",
    "tomllib",
    "zstandard",
)
"""What opening a session can do without."""


def test_opening_a_session_waits_for_no_tool_image_or_archive_code() -> None:
    code = (
        "import sys, acp_bridge.cli.assemble, acp_bridge.models.scripted;"
        "print(*sorted(sys.modules), sep='\\n')"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(LATE) & set(told.stdout.split())


def test_an_lsp_client_is_told_so_in_one_sentence(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "acp_bridge", "--home", str(tmp_path)],
        input=b'Content-Length: 16\r\n\r\n{"jsonrpc":"2.0"}',
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == 2
    assert told.stderr.startswith(b"acp-bridge: The client speaks LSP")
    assert told.stderr.count(b"\n") == 1
