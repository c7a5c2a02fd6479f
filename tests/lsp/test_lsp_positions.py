import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsp_rig import applied
from lsprotocol import converters
from lsprotocol.types import Position, Range

from acp_bridge.lsp.positions import edit_between, split_lines, units

LINES = st.lists(
    st.text(st.sampled_from("ab é😀\f\u2028\x85\t"), max_size=6).flatmap(
        lambda line: st.sampled_from(["\n", "\r\n", "\r"]).map(lambda end: line + end)
    ),
    max_size=8,
)
TEXTS = st.tuples(LINES, st.text(st.sampled_from("a😀\f"), max_size=4)).map(
    lambda parts: "".join(parts[0]) + parts[1]
)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, TEXTS, ENCODINGS)
def test_an_editor_that_applies_the_edit_has_the_new_text(
    old: str, new: str, encoding: str
) -> None:
    edit = edit_between(old, new, encoding)
    if edit is None:
        assert old == new
    else:
        as_sent = converters.get_converter().unstructure(edit)
        assert applied(old, as_sent, encoding) == new


@given(TEXTS)
def test_lines_make_the_text_and_the_last_one_has_no_end(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.endswith(("\n", "\r")) for line in lines[:-1])
    assert not lines[-1].endswith(("\n", "\r"))


def test_a_form_feed_and_a_line_separator_end_no_line() -> None:
    assert split_lines("a\fb\u2028c\x85d\ne") == ["a\fb\u2028c\x85d\n", "e"]


def test_an_edit_of_one_line_leaves_the_lines_around_it() -> None:
    edit = edit_between("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n", "utf-16")
    assert edit is not None
    assert edit.range == Range(Position(1, 0), Position(2, 0))
    assert edit.new_text == "B\r\n"


@pytest.mark.parametrize(("encoding", "length"), [("utf-8", 6), ("utf-16", 4), ("utf-32", 3)])
def test_an_emoji_counts_as_the_client_counts_it(encoding: str, length: int) -> None:
    assert units("x😀y", encoding) == length
