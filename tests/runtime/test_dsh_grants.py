"""What was allowed "always": kept in the logs of a session and of its subagents."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from acp_bridge.errors import PeerError
from acp_bridge.harness.memory import GRANT_ROW
from acp_bridge.runtime.dsh.grants import Grants
from acp_bridge.sessions import SessionStore
from acp_bridge.sessions.header import Header
from acp_bridge.vocabulary import Draft, SessionId

if TYPE_CHECKING:
    from acp_bridge.runtime.dsh.host import Host

pytestmark = pytest.mark.anyio

ROOT, CHILD = SessionId("root"), SessionId("child")


@attrs.define
class FakeHost:
    """A process that writes rows, or does not know how, or refuses."""

    knows_how: bool = True
    refuses: bool = False
    rows: list[tuple[SessionId, Draft]] = attrs.field(factory=list)

    @property
    def control(self) -> "FakeHost":
        return self

    def can(self, feature: str) -> bool:
        return feature == "record" and self.knows_how

    async def record(self, session_id: SessionId, row: Draft) -> None:
        if self.refuses:
            raise PeerError("no", code=-32603)
        self.rows.append((session_id, row))


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions", clock=lambda: 0)


async def add(grants: Grants, session_id: SessionId, grant: str, host: FakeHost | None) -> None:
    await grants.add(session_id, grant, cast("Host", host))


async def test_what_is_allowed_is_a_row_of_the_log_of_whom_it_was_allowed_to(
    store: SessionStore,
) -> None:
    grants, host = Grants(ROOT, ["edits"], store), FakeHost()
    await add(grants, ROOT, "tool:a", host)
    await add(grants, CHILD, "tool:b", host)
    assert host.rows == [
        (ROOT, Draft(GRANT_ROW, {"grant": "tool:a"})),
        (CHILD, Draft(GRANT_ROW, {"grant": "tool:b"})),
    ]
    assert await grants.of(ROOT) == {"edits", "tool:a"}
    assert await grants.of(CHILD) == {"tool:b"}


async def test_a_subagent_that_worked_before_has_what_its_log_holds(store: SessionStore) -> None:
    writer = store.create(Header(session_id=CHILD, created_at_ms=0, cwd="/work", origin="subagent"))
    writer.append([Draft(GRANT_ROW, {"grant": "edits"}, ignorable=True)])
    writer.close()
    grants = Grants(ROOT, [], store)
    assert await grants.of(CHILD) == {"edits"}
    assert await grants.of(ROOT) == set()


@pytest.mark.parametrize("host", [None, FakeHost(knows_how=False), FakeHost(refuses=True)])
async def test_what_cannot_be_written_holds_all_the_same_until_the_session_is_closed(
    store: SessionStore, host: FakeHost | None
) -> None:
    grants = Grants(ROOT, [], store)
    await add(grants, ROOT, "edits", host)
    assert await grants.of(ROOT) == {"edits"}
    assert host is None or host.rows == []
