"""A bench for every test of the bridge."""

from pathlib import Path

import pytest
from acp_rig import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
