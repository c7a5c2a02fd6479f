"""How a difference between pinned files and new ones is told."""

from pathlib import Path

import pytest

from acp_bridge.testing.difference import TOLD_MAX, differences

PINNED = """{"id": 1, "result": {"a": [1, {"b": "x"}]}}
{"method": "session/update", "params": {"update": {"sessionUpdate": "plan"}}}
{"id": 2, "result": {}}
"""


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "1.jsonl").write_text(PINNED)
    return tmp_path


def told(folder: Path, text: str) -> list[str]:
    return differences(folder, {"wire": {"1.jsonl": text}})


def test_equal_files_have_none(pinned: Path) -> None:
    assert told(pinned, PINNED) == []


def test_a_changed_value_is_told_by_its_path(pinned: Path) -> None:
    assert told(pinned, PINNED.replace('"x"', '"y"')) == [
        'wire/1.jsonl, line 1 (answer to 1): result.a.1.b\n    - "x"\n    + "y"'
    ]


def test_true_is_not_one(pinned: Path) -> None:
    (line,) = told(pinned, PINNED.replace("[1,", "[true,"))
    assert line.endswith("result.a.0\n    - 1\n    + true")


def test_a_line_that_is_gone_and_one_that_is_new_are_told_whole(pinned: Path) -> None:
    first, second, third = PINNED.splitlines(keepends=True)
    (gone,) = told(pinned, first + third)
    assert gone.startswith("wire/1.jsonl, line 2 did not come (session/update plan):\n    - {")
    (more,) = told(pinned, first + second + second + third)
    assert more.startswith("wire/1.jsonl, after line 2 came more (session/update plan):\n    + {")


def test_another_message_in_a_place_shows_both(pinned: Path) -> None:
    (line,) = told(pinned, PINNED.replace('"plan"', '"other"'))
    assert line.startswith("wire/1.jsonl, line 2 is another message:")


def test_files_that_are_missing_or_new_are_named(pinned: Path) -> None:
    assert differences(pinned, {"new.jsonl": "{}\n"}) == [
        "new.jsonl is not pinned: {}",
        "wire/1.jsonl is pinned, and nothing of it came",
    ]


def test_no_more_is_told_than_can_be_read(pinned: Path) -> None:
    many = "".join(f'{{"id": {number}}}\n' for number in range(100))
    found = told(pinned, many)
    assert len(found) == TOLD_MAX + 1
    assert found[-1] == f"and {101 - TOLD_MAX} more"  # of the first line two members
