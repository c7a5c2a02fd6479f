"""Deleting a session takes its subagents' sessions along, and all or nothing of what is open."""

from pathlib import Path

import attrs
import pytest
from session_rows import Clock, tree

from acp_bridge.errors import InvalidParamsError, SessionConflictError, StoreFailedError
from acp_bridge.sessions import Header, SessionStore
from acp_bridge.vocabulary import Draft


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, clock=Clock(), durable=False)


def add(store: SessionStore, name: str, parent: str | None = None, *, fork: bool = False) -> None:
    header = Header(name, 1, f"/w{len(name)}", parent_session=parent)
    if parent is not None and not fork:
        header = attrs.evolve(header, origin="subagent", delegation_depth=1)
    writer = store.create(header)
    writer.append([Draft("permission/preset", {"preset": "read-only"})])
    writer.close()


def names(store: SessionStore) -> set[str]:
    return set(store.session_ids())


@pytest.fixture
def family(store: SessionStore) -> SessionStore:
    add(store, "p")
    add(store, "child", "p")
    add(store, "grandchild", "child")
    add(store, "fork", "p", fork=True)
    add(store, "childoffork", "fork")
    add(store, "other")
    return store


def test_only_subagents_go_with_their_parent(family: SessionStore) -> None:
    family.delete("p")
    assert names(family) == {"fork", "childoffork", "other"}
    family.delete("p")
    assert [s.session_id for s in family.list().sessions if s.origin is None] != []
    assert family.list().bad == []


@pytest.mark.parametrize("held", ["p", "child", "grandchild"])
def test_what_is_open_keeps_the_whole_family(
    family: SessionStore, held: str, tmp_path: Path
) -> None:
    writer = family.open(held)
    before = {path: data for path, data in tree(tmp_path).items() if not path.endswith("lock")}
    with pytest.raises(SessionConflictError):
        family.delete("p")
    after = {path: data for path, data in tree(tmp_path).items() if not path.endswith("lock")}
    assert after == before
    writer.close()
    family.delete("p")
    assert "p" not in names(family)


@pytest.mark.parametrize("name", ["nope", "", ".", "..", "../p", "../../etc/passwd", "x" * 10_000])
def test_an_unknown_id_is_fine_and_touches_nothing(
    family: SessionStore, name: str, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    family.delete(name)
    assert tree(tmp_path) == before


def test_a_refusal_by_the_header_touches_nothing(family: SessionStore, tmp_path: Path) -> None:
    def refuse(header: Header) -> None:
        raise InvalidParamsError(header.session_id, field="sessionId")

    before = tree(tmp_path)
    with pytest.raises(InvalidParamsError, match="child"):
        family.delete("child", refuse)
    assert tree(tmp_path) == before


def test_a_damaged_session_can_be_deleted(family: SessionStore, tmp_path: Path) -> None:
    [log] = tmp_path.glob("*/p/session.v4*")
    log.write_bytes(b"garbage")
    family.delete("p")
    assert not log.parent.exists()


def test_a_session_that_is_its_own_ancestor_ends_the_search(store: SessionStore) -> None:
    add(store, "one", "two")
    add(store, "two", "one")
    store.delete("one")
    assert names(store) == set()


def test_a_session_whose_files_are_gone_is_fine(family: SessionStore, tmp_path: Path) -> None:
    [log] = tmp_path.glob("*/other/session.v4*")
    log.unlink()
    before = tree(tmp_path)
    family.delete("other")
    assert tree(tmp_path) == before


def test_a_disk_that_refuses_is_one_error(
    family: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        del self, missing_ok
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreFailedError, match="other could not be deleted"):
        family.delete("other")
    monkeypatch.undo()
    assert "other" in names(family)
    family.delete("other")
    assert "other" not in names(family)
