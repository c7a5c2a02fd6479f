"""A store for every test of the index and its queries."""

from pathlib import Path

import pytest
from index_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
