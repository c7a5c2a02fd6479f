"""A world for every test of a tool or an MCP server."""

from pathlib import Path

import pytest
from tool_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
