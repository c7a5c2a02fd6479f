"""Files through the editor where it offers that, with the disk's bytes where they say the same."""

from pathlib import Path

import pytest
from harness_rig import FakeClient

from acp_bridge.harness.files import SessionFiles

pytestmark = pytest.mark.anyio


class Editor(FakeClient):
    """Has texts of its own; a path that is not among them raises ``missing``."""

    reads_text = True
    writes_text = True

    def __init__(self, texts: dict[Path, str], missing: Exception | None = None) -> None:
        super().__init__()
        self.texts = texts
        self.missing = missing

    async def read_text(self, path: Path) -> str:
        if path in self.texts:
            return self.texts[path]
        if self.missing is not None:
            raise self.missing
        return ""

    async def write_text(self, path: Path, text: str) -> None:
        self.texts[path] = text


async def test_unsaved_text_counts_r019(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("saved")
    assert await SessionFiles(Editor({path: "unsaved"})).read_bytes(path) == b"unsaved"


@pytest.mark.parametrize("stored", [b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\r\nb\n"])
async def test_bytes_of_the_disk_are_the_truth_where_the_text_is_equal(
    tmp_path: Path, stored: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(stored)
    assert await SessionFiles(Editor({path: "a\nb\n"})).read_bytes(path) == stored
    assert await SessionFiles(Editor({path: "a\nc\n"})).read_bytes(path) == b"a\nc\n"


@pytest.mark.parametrize(
    "missing", [None, FileNotFoundError(2, "no such file"), OSError("internal error")]
)
async def test_a_missing_file_is_missing_however_the_editor_says_it(
    tmp_path: Path, missing: Exception | None
) -> None:
    files = SessionFiles(Editor({}, missing))
    with pytest.raises(FileNotFoundError) as raised:
        await files.read_bytes(tmp_path / "none")
    assert raised.value.errno == 2
    (tmp_path / "there").write_text("x")
    # An empty text for a file that is there means that the editor emptied it.
    got = await files.read_bytes(tmp_path / "there")
    assert got == (b"" if missing is None else b"x")


async def test_a_file_that_only_the_editor_has_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert await SessionFiles(Editor({path: "draft"})).read_bytes(path) == b"draft"


async def test_binary_files_never_go_through_the_editor(tmp_path: Path) -> None:
    path = tmp_path / "b"
    for data in (b"a\0b", b"\xff\xfe"):
        editor = Editor({path: "nonsense"})
        path.write_bytes(data)
        assert await SessionFiles(editor).read_bytes(path) == data
        await SessionFiles(editor).write_bytes(path, data + data)
        assert path.read_bytes() == data + data
        assert editor.texts == {path: "nonsense"}


async def test_text_is_written_through_the_editor_only_where_it_offers_that(tmp_path: Path) -> None:
    path = tmp_path / "a"
    editor = Editor({})
    await SessionFiles(editor).write_bytes(path, "ä".encode())
    assert editor.texts == {path: "ä"}
    assert not path.exists()
    await SessionFiles(FakeClient()).write_bytes(path, "ä".encode())
    assert path.read_text() == "ä"
    assert await SessionFiles(FakeClient()).read_bytes(path) == "ä".encode()


async def test_a_text_that_no_encoder_takes_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert await SessionFiles(Editor({path: "a\ud800b"})).read_bytes(path) == b"a?b"
