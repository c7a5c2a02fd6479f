"""Old tool output is removed, new output and foreign folders are not."""

import os
from pathlib import Path

from acp_bridge.runtime.spill import KEPT_MS, prune_spill

NOW_MS = 2_000_000_000_000


def aged(path: Path, age_ms: int) -> Path:
    path.write_text("x", encoding="utf-8")
    seconds = (NOW_MS - age_ms) / 1000
    os.utime(path, (seconds, seconds))
    return path


def test_output_older_than_a_week_is_removed(tmp_path: Path) -> None:
    old = aged(tmp_path / "bash-1.txt", KEPT_MS + 1000)
    new = aged(tmp_path / "bash-2.txt", KEPT_MS - 1000)
    (tmp_path / "folder").mkdir()
    prune_spill(tmp_path, NOW_MS)
    assert not old.exists()
    assert new.exists()
    assert (tmp_path / "folder").exists()


def test_a_folder_that_is_not_there_or_no_folder_is_no_fault(tmp_path: Path) -> None:
    prune_spill(tmp_path / "none", NOW_MS)
    prune_spill(aged(tmp_path / "file", 0), NOW_MS)
