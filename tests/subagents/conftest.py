"""A home for every test of local children, an estate for those of remote ones."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from family_rig import Home
from remote_rig import Estate, estate


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate(tmp_path) as made:
        yield made
