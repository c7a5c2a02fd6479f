"""No id and no cwd leaves the store."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_rows import header, store

from acp_bridge.errors import LocalProtocolError, SessionNotFoundError
from acp_bridge.sessions.paths import (
    LOCK_NAME,
    PENDING_NAME,
    log_name,
    parse_log_name,
    project_folder,
    session_folder,
)

anything = st.text(max_size=300) | st.text(alphabet="./\\~:\0-_aé😀\ud800", max_size=60)


@given(anything)
def test_no_id_leaves_its_project_folder(session_id: str) -> None:
    name = session_folder(session_id)
    if name is None:
        assert not session_id or len(session_id) > 30
        return
    assert Path("/store/p", name).resolve().parent == Path("/store/p")
    assert len(name.encode()) <= 255
    assert name.isascii()


@given(anything)
def test_no_cwd_leaves_the_store(cwd: str) -> None:
    name = project_folder(cwd)
    assert Path("/store", name).resolve().parent == Path("/store")
    assert len(name.encode()) <= 255


@given(anything, anything)
def test_two_ids_never_share_a_folder(one: str, two: str) -> None:
    if one != two and session_folder(one) is not None:
        assert session_folder(one) != session_folder(two)


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("../evil", "..~002Fevil"),
        ("..", "~002E~002E"),
        (".", "~002E"),
        ("...", "..."),
        ("a~b", "a~007Eb"),
        ("😀", "~D83D~DE00"),
        ("é", "~00E9"),
        ("", None),
        ("x" * 256, None),
        ("/" * 60, None),
    ],
)
def test_ids_are_escaped_per_utf16_unit(session_id: str, name: str | None) -> None:
    assert session_folder(session_id) == name


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/dev/ws2", "--home-dev-ws2--"),
        ("C:\\Users\\me", "--C-Users-me--"),
        ("/", "----"),
        ("/a b", "--a~0020b--"),
        (None, "_no-cwd"),
        ("/" + "x" * 400, "--" + "x" * 251 + "--"),
    ],
)
def test_project_folders_are_the_runtimes(cwd: str | None, name: str) -> None:
    assert project_folder(cwd) == name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("session.v4.jsonl", (4, "plain")),
        ("session.v4.jsonl.zstd", (4, "zstd")),
        ("session.v12.jsonl.zstd", (12, "zstd")),
        ("session.jsonl", (0, "plain")),
        (LOCK_NAME, None),
        (PENDING_NAME, None),
        ("session.v4.jsonl.bak", None),
        ("session.v04.jsonl", None),
    ],
)
def test_log_names_tell_generation_and_encoding(name: str, kind: tuple[int, str] | None) -> None:
    assert parse_log_name(name) == kind
    assert log_name("zstd") == "session.v4.jsonl.zstd"


@pytest.mark.parametrize("session_id", ["", "x" * 10_000, "\0", "../../etc/passwd", "é" * 200])
def test_an_id_that_can_have_no_log_is_not_found(session_id: str, tmp_path: Path) -> None:
    for attempt in (store(tmp_path).read, store(tmp_path).open):
        with pytest.raises(SessionNotFoundError):
            attempt(session_id)


def test_a_session_whose_id_can_have_no_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError):
        store(tmp_path).create(header("x" * 256))
    assert list(tmp_path.iterdir()) == []
