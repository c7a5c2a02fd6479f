"""Image bytes by content: kept once, found by hash, and no id becomes another path."""

import hashlib
import threading
from pathlib import Path

import pytest

from acp_bridge.errors import StoreFailedError
from acp_bridge.runtime.attachments import AttachmentStore

DATA = b"picture"
DIGEST = hashlib.sha256(DATA).hexdigest()
NAME = f"sha256:{DIGEST}"


def test_bytes_are_kept_in_the_real_runtimes_layout(tmp_path: Path) -> None:
    store = AttachmentStore(tmp_path / "attachments")
    assert store.find(NAME) is None
    store.keep(NAME, DATA)
    store.keep(NAME, DATA)
    assert store.find(NAME) == DATA
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "attachments/v1/objects" / DIGEST[:2] / DIGEST]


@pytest.mark.parametrize(
    "name", ["", "sha256:", "sha256:../../x", "sha256:" + "A" * 64, "a" * 63 + "/", "x" * 64]
)
def test_what_is_no_hash_is_no_path(tmp_path: Path, name: str) -> None:
    store = AttachmentStore(tmp_path)
    store.keep(name, DATA)
    assert store.find(name) is None
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_said_and_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "v1").write_text("in the way")
    with pytest.raises(StoreFailedError, match="could not be stored"):
        AttachmentStore(tmp_path).keep(NAME, DATA)
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_two_sessions_may_keep_the_same_image_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def keep(barrier: threading.Barrier, store: AttachmentStore) -> None:
        barrier.wait()
        try:
            store.keep(NAME, DATA)
        except StoreFailedError as failure:
            failures.append(failure)

    for turn in range(20):
        store, barrier = AttachmentStore(tmp_path / str(turn)), threading.Barrier(4)
        threads = [threading.Thread(target=keep, args=(barrier, store)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.find(NAME) == DATA
    assert failures == []
