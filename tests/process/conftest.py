"""A place for every test of processes."""

from pathlib import Path

import pytest
from process_rig import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
