"""Shared by the index's tests: a store that other programs change, and a clock that can be trusted.

File times are coarse, so a test that changes a file right after it was read would meet what the
index calls unsettled and learn nothing. `tick` moves the file system's clock on without waiting
for a fixed time: it writes until a new file is younger than every file so far.
"""

import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from session_rows import (
    Clock,
    answer,
    call,
    closing,
    folder_of,
    header,
    opening,
    put,
    result,
    text_turn,
    user,
)

from acp_bridge.sessions import Header, SessionStore, sweep
from acp_bridge.sessions.codec import encode_batch
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.finding import header_of
from acp_bridge.sessions.header import dump_header
from acp_bridge.sessions.reading import encoding_of
from acp_bridge.vocabulary import Draft, Event, JsonObject

TITLE_BY_USER = Draft(
    "session/title", {"title": "Named", "messageSeqs": [], "source": {"kind": "user"}}
)


@pytest.fixture
def exact_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `World.tick` no margin is needed."""
    monkeypatch.setattr(sweep, "UNSETTLED_NS", 0)


class World:
    """A home whose store is changed behind the index's back."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "sessions"
        self.root.mkdir(exist_ok=True)
        self.index = home / "index.sqlite3"
        self.probe = home / "probe"
        self.probe.touch()
        self.now_ns = 0
        self.made = 0

    def tick(self) -> None:
        """Every file so far is older than what the index takes for now."""
        before = self.probe.stat().st_mtime_ns
        while self.probe.stat().st_mtime_ns == before:
            self.probe.write_bytes(b"tick")
        self.now_ns = self.probe.stat().st_mtime_ns

    def store(self, *, indexed: bool = True) -> SessionStore:
        return SessionStore(
            self.root,
            clock=Clock(),
            durable=False,
            index=self.index if indexed else None,
            wall_ns=lambda: self.now_ns,
        )

    def logs(self) -> list[Path]:
        return sorted(self.root.glob("*/*/session.v4*"))

    def add(self, session_id: str, *batches: list[Draft], head: Header | None = None) -> Path:
        """A sound log with these batches."""
        made = header(session_id) if head is None else head
        data = encode_batch(dump_header(made), "zstd")
        seq = 0
        for batch in batches:
            data += encode_batch(dump_events(rows(batch, seq)), "zstd")
            seq += len(batch)
        return put(self.root, session_id, data)

    def extend(self, path: Path, batch: list[Draft]) -> None:
        """Append a batch as another program would."""
        seq = len(self.store(indexed=False).read(header_of(path).session_id).events)
        with path.open("ab") as file:
            file.write(encode_batch(dump_events(rows(batch, seq)), encoding_of(path)))


def rows(batch: list[Draft], seq: int) -> list[Event]:
    return [
        Event(
            seq + at,
            1_700_000_000_000 + seq + at,
            one.type,
            one.data,
            one.surface_op,
            one.source_event_seqs,
            one.ignorable,
        )
        for at, one in enumerate(batch)
    ]


def tool_turn(turn: int, seq: int) -> list[Draft]:
    """A turn with a tool step; ``seq`` is that of its first row."""
    first = [*opening(turn), answer(turn, f"c{turn}"), call(turn, f"c{turn}")]
    return [*first, result(turn, f"c{turn}", seq + len(first) - 1), *closing(turn)]


def descriptor(label: str) -> Draft:
    data: JsonObject = {"version": 3, "mode": "continuable", "provider": "spawn", "label": label}
    return Draft("subagent/descriptor", data)


def catalog(child: str) -> Draft:
    data: JsonObject = {"version": 0, "childId": child, "childCreatedAt": 1, "mode": "continuable"}
    return Draft("subagent/catalog", {**data, "label": child})


MODE = Draft("plan/mode", {"active": True})
QUEUED = Draft(
    "agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [user("q1", "later")]}
)
SKIPPED = Draft("plugin:other/thing", {"n": 1}, ignorable=True)
NEWER = Draft("new/kind", {})
BOUNDARY = Draft("session/end-seed", {})


def change(world: World, chance: random.Random) -> str:
    """One thing that another program may do; its name."""
    logs = world.logs()
    doings = [_add, _add, _append, _append, _append, _tear, _remove, _replace, _spoil]
    doings += [_second_log, _copy, _move, _empty_folder, _remove_project, _overwrite, _touch]
    doing = chance.choice(doings)
    if doing is not _add and not logs:
        doing = _add
    doing(world, chance, chance.choice(logs) if logs else world.root)
    return doing.__name__


def _add(world: World, chance: random.Random, _path: Path) -> None:
    world.made += 1
    head = attrs.evolve(header(f"s{world.made}"), created_at_ms=world.made)
    kind = chance.randrange(4)
    if kind == 0:
        head = attrs.evolve(head, origin="subagent", parent_session="s1", delegation_depth=1)
    batches = [text_turn(turn) for turn in range(1, chance.randrange(4))]
    if kind == 1:
        batches.append([TITLE_BY_USER, MODE])
    if kind == 2:
        batches.append([descriptor("a"), catalog("kid")])
    world.add(head.session_id, *batches, head=head)


def _append(world: World, chance: random.Random, path: Path) -> None:
    try:
        log = world.store(indexed=False).read(header_of(path).session_id)
    except Exception:  # noqa: BLE001  # whatever is wrong with it: another program may not care
        with path.open("ab") as file:
            file.write(encode_batch(b"{}\n", "zstd"))
        return
    turn = sum(one.type == "turn/start" for one in log.events) + 1
    is_open = turn - 1 > sum(one.type == "turn/end" for one in log.events)
    seq = len(log.events)
    tails = [[TITLE_BY_USER], [MODE], [SKIPPED], [catalog(f"kid{seq}")], [BOUNDARY], [NEWER]]
    if not is_open:
        tails += [text_turn(turn), tool_turn(turn, seq), opening(turn), text_turn(turn)[:2]]
        tails += [text_turn(turn + 1), text_turn(turn)] * 2
    elif log.events[-1].type == "request/header":
        tails += [[answer(turn - 1), *closing(turn - 1)]] * 3
    world.extend(path, chance.choice(tails))


def _tear(_world: World, chance: random.Random, path: Path) -> None:
    with path.open("ab") as file:
        file.write(encode_batch(b'{"type":"x"}\n', "zstd")[: chance.randrange(1, 9)])


def _remove(_world: World, _chance: random.Random, path: Path) -> None:
    shutil.rmtree(path.parent)


def _replace(_world: World, chance: random.Random, path: Path) -> None:
    """Another log under the same id; file systems like to give it the same inode."""
    try:
        head = header_of(path)
    except Exception:  # noqa: BLE001  # as above
        head = header(path.parent.name)
    path.unlink()
    other = attrs.evolve(head, created_at_ms=chance.randrange(1000))
    batches = [text_turn(turn) for turn in range(1, chance.randrange(5))]
    data = encode_batch(dump_header(other), "zstd")
    seq = 0
    for batch in batches:
        data += encode_batch(dump_events(rows(batch, seq)), "zstd")
        seq += len(batch)
    path.write_bytes(data)


def _spoil(_world: World, chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def _overwrite(_world: World, _chance: random.Random, path: Path) -> None:
    """The same bytes, or a batch less: the size may be one that was known."""
    data = path.read_bytes()
    path.write_bytes(data[: data.rfind(b"\x28\xb5\x2f\xfd")] or data)


def _second_log(_world: World, chance: random.Random, path: Path) -> None:
    name = chance.choice(["session.v5.jsonl.zstd", "session.v3.jsonl", "session.v4.jsonl"])
    (path.parent / name).write_bytes(b"x")


def _copy(world: World, _chance: random.Random, path: Path) -> None:
    target = world.root / "--copy--" / path.parent.name
    if not target.exists():
        shutil.copytree(path.parent, target)


def _move(world: World, _chance: random.Random, path: Path) -> None:
    target = world.root / "--elsewhere--"
    target.mkdir(exist_ok=True)
    if not (target / path.parent.name).exists():
        path.parent.rename(target / path.parent.name)


def _empty_folder(world: World, chance: random.Random, _path: Path) -> None:
    folder_of(world.root, f"s{chance.randrange(20)}").mkdir(parents=True, exist_ok=True)


def _remove_project(_world: World, chance: random.Random, path: Path) -> None:
    if not chance.randrange(4):
        shutil.rmtree(path.parent.parent)


def _touch(_world: World, _chance: random.Random, path: Path) -> None:
    path.touch()


def damage(world: World, chance: random.Random) -> str:
    """One thing that may befall the index; its name."""
    doing = chance.choice([_flip, _flip, _flip, _cut, _delete, _garbage, _swap, _lose, _age])
    if world.index.is_file():
        doing(world, chance)
    return doing.__name__


def _files(world: World) -> list[Path]:
    return [path for path in sorted(world.home.glob("index.sqlite3*")) if path.stat().st_size]


def _flip(world: World, chance: random.Random) -> None:
    for path in _files(world):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with path.open("r+b") as file:
            file.write(bytes(data))


def _cut(world: World, chance: random.Random) -> None:
    path = chance.choice(_files(world))
    with path.open("r+b") as file:
        file.truncate(chance.randrange(path.stat().st_size))


def _delete(world: World, chance: random.Random) -> None:
    for path in _files(world):
        if chance.randrange(2):
            path.unlink()


def _garbage(world: World, chance: random.Random) -> None:
    world.index.write_bytes(chance.randbytes(5000))


def _swap(world: World, _chance: random.Random) -> None:
    """Records under each other's keys, and one kind under another's."""
    _execute(
        world,
        "UPDATE details SET record = (SELECT record FROM details AS other WHERE other.folder <>"
        " details.folder LIMIT 1)",
    )
    _execute(world, "UPDATE projects SET record = (SELECT record FROM entries LIMIT 1)")
    _execute(
        world,
        "UPDATE entries SET record = (SELECT record FROM entries AS other WHERE other.folder <>"
        " entries.folder LIMIT 1)",
    )


def _lose(world: World, _chance: random.Random) -> None:
    _execute(world, "DELETE FROM entries WHERE random() % 2")
    _execute(world, "DELETE FROM details WHERE random() % 2")


def _age(world: World, _chance: random.Random) -> None:
    _execute(world, "PRAGMA user_version = 99")


def _execute(world: World, statement: str) -> None:
    db = sqlite3.connect(world.index)
    try:
        db.execute(statement)
        db.commit()
    except sqlite3.Error:
        pass
    finally:
        db.close()


@attrs.define
class FakeLive:
    """A live session, as `sessions.query.LiveLog` has it."""

    header: Header
    events: Sequence[Event] = ()
