"""A place for every test of the bridge over the real runtime, with a model of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_rig import DshPlace
from dsh_rig import loopback_model


@pytest.fixture
def place(tmp_path: Path) -> Iterator[DshPlace]:
    with loopback_model() as model:
        yield DshPlace(tmp_path, model)
