"""Damaged logs, made from real ones: rows, header and container, seeded.

Each mutant is a session of its own: header and delivery rows name its id, so that nothing but the
damage can be the reason for a refusal.
"""

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import zstandard

from acp_bridge.sessions.codec import decode, encode_batch
from acp_bridge.sessions.events import KNOWN_TYPES
from acp_bridge.sessions.paths import Encoding, parse_log_name

Row = dict[str, Any]

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**53, 1.5, "", "x", "user", [], {}, [1], [{}], {"kind": "user"}),
)
TYPES = (*sorted(KNOWN_TYPES), "unknown/type", "plugin:test/row", "tool/code-dispatch")
TOOLS_KEPT = 2
"""Of the schemas in each request/header: all of them would be most of the bytes, to no use."""


@attrs.frozen
class Source:
    """A sound log to damage."""

    name: str
    header: Row
    rows: list[Row]


@attrs.frozen
class Mutant:
    """What was done to which log, and the bytes of the file that came of it."""

    session_id: str
    story: str
    data: bytes


def read_source(path: Path, name: str) -> Source:
    """The header and rows of a stored log."""
    kind = parse_log_name(path.name)
    assert kind is not None
    decoded = decode(path.read_bytes(), kind[1])
    rows = [json.loads(line) for line in decoded.lines]
    if not any(row["type"] == "developer/message" for row in rows):  # they name tools
        for row in rows:
            if row["type"] == "request/header":
                row["data"]["header"]["tools"] = row["data"]["header"]["tools"][:TOOLS_KEPT]
    return Source(name, json.loads(decoded.header_line), rows)


class Mutator:
    """Makes mutants of sources, one after the other, from one seed."""

    def __init__(self, sources: Sequence[Source], cwd: Path, encoding: Encoding, seed: int) -> None:
        self._sources = sources
        self._cwd = cwd
        self._encoding: Encoding = encoding
        self._random = random.Random(seed)
        self._made = 0

    def sound(self, source: Source) -> Mutant:
        """The source itself under another id."""
        return self._mutant(source, "as it is", *self._renamed(source))

    def mutant(self) -> Mutant:
        """One damage to one source; rarely two."""
        pick = self._random
        source = pick.choice(self._sources)
        header, rows = self._renamed(source)
        kind = pick.choices(["rows", "header", "bytes"], [70, 8, 22])[0]
        if kind == "rows":
            story = self._damage_rows(rows)
            if pick.random() < 0.1:
                story += " and " + self._damage_rows(rows)
            return self._mutant(source, story, header, rows)
        if kind == "header":
            return self._mutant(source, self._damage_header(header), header, rows)
        made = self._mutant(source, "", header, rows)
        story, data = self._damage_bytes(header, rows, made.data)
        return attrs.evolve(made, story=f"{source.name}: {story}", data=data)

    def _renamed(self, source: Source) -> tuple[Row, list[Row]]:
        self._made += 1
        header, rows = copy.deepcopy(source.header), copy.deepcopy(source.rows)
        old, header["id"], header["cwd"] = header["id"], f"m{self._made:04}", str(self._cwd)
        for row in rows:
            is_delivery = row["type"] == "session-log-deepseek/delivery-accepted"
            if (
                is_delivery
                and isinstance(row["data"], dict)
                and row["data"].get("sessionId") == old
            ):
                row["data"]["sessionId"] = header["id"]
        return header, rows

    def _mutant(self, source: Source, story: str, header: Row, rows: Sequence[Row]) -> Mutant:
        data = encode_batch(line(header), self._encoding)
        at = 0
        while at < len(rows):
            size = self._random.randint(1, 12)
            batch = b"".join(line(row) for row in rows[at : at + size])
            data += encode_batch(batch, self._encoding)
            at += size
        return Mutant(f"m{self._made:04}", f"{source.name}: {story}", data)

    # --- rows ---------------------------------------------------------------------------------

    def _damage_rows(self, rows: list[Row]) -> str:
        pick = self._random
        at = pick.randrange(len(rows))
        what = f"row {at} ({rows[at]['type']})"
        kind = pick.choices(
            ["field", "envelope", "type", "drop", "twice", "swap", "cut", "graft"],
            [50, 10, 6, 8, 5, 6, 5, 10],
        )[0]
        if kind == "field":
            return f"{what}: {self._damage_field(rows[at], ['data'])}"
        if kind == "envelope":
            return f"{what}: {self._damage_envelope(rows[at])}"
        if kind == "type":
            rows[at]["type"] = pick.choice(TYPES)
            return f"{what} becomes {rows[at]['type']}"
        if kind == "drop":
            del rows[at]
        elif kind == "twice":
            rows.insert(at, copy.deepcopy(rows[at]))
        elif kind == "swap":
            other = pick.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
            what += f" with {other}"
        elif kind == "cut":
            del rows[at + 1 :]
        else:
            row = copy.deepcopy(pick.choice(pick.choice(self._sources).rows))
            what = f"{row['type']} at {at}"
            rows.insert(at, row)
        if pick.random() < 0.9:
            for seq, row in enumerate(rows):
                row["seq"] = seq
            what += ", renumbered"
        return f"{kind} {what}"

    def _damage_field(self, row: Row, path: list[str | int]) -> str:
        """Somewhere below the path: a member removed, added or changed."""
        pick = self._random
        place: Any = row
        for step in path[:-1]:
            place = place[step]
        value = place[path[-1]]
        inner = (
            [*value]
            if isinstance(value, dict)
            else [*range(len(value))]
            if value and isinstance(value, list)
            else []
        )
        if inner and pick.random() < (1 if path == ["data"] else 0.75):
            return self._damage_field(row, [*path, pick.choice(inner)])
        where = "/".join(map(str, path))
        kind = pick.choices(["set", "remove", "near"], [50, 30, 20])[0]
        if kind == "remove" and path != ["data"]:
            del place[path[-1]]
            return f"{where} removed"
        if kind == "near" and isinstance(value, int):
            place[path[-1]] = value + pick.choice([-1, 1])
        elif kind == "near" and isinstance(value, str):
            place[path[-1]] = value + "~"
        else:
            place[path[-1]] = pick.choice(WRONG)
        return f"{where} = {json.dumps(place[path[-1]])[:40]}"

    def _damage_envelope(self, row: Row) -> str:
        pick = self._random
        key = pick.choice([*row, "surfaceOp", "sourceEventSeqs", "ignorable", "extra"])
        if key in row and pick.random() < 0.4:
            del row[key]
            return f"{key} removed"
        at = row["seq"]
        values: dict[str, Sequence[Any]] = {
            "surfaceOp": (
                "append",
                "replace",
                {"op": "replace", "startSeq": max(at - 3, 0), "endSeq": max(at - 1, 0)},
                {"op": "replace", "startSeq": at, "endSeq": at},
                {"op": "replace"},
            ),
            "sourceEventSeqs": ([], [0], [at], [max(at - 1, 0)], [[0, max(at - 1, 0)]], [1, 0]),
            "ignorable": (True, False),
        }
        row[key] = pick.choice([*values.get(key, ()), *WRONG[:: 1 if key not in values else 4]])
        return f"{key} = {json.dumps(row[key])[:60]}"

    # --- header and container -----------------------------------------------------------------

    def _damage_header(self, header: Row) -> str:
        pick = self._random
        keys = ["type", "version", "createdAt", "isSeeded", "delegationDepth", "origin", "cwd"]
        key = pick.choice([*keys, "id", "parentSession", "agentPreset", "extra", "sandboxMode"])
        if key in header and pick.random() < 0.4:
            del header[key]
            return f"header {key} removed"
        header[key] = pick.choice([*WRONG, 3, 4, 5, "session", "subagent", "/", "relative"])
        return f"header {key} = {json.dumps(header[key])}"

    def _damage_bytes(self, header: Row, rows: list[Row], data: bytes) -> tuple[str, bytes]:
        pick = self._random
        at = pick.randrange(len(data))
        kind = pick.choices(
            ["cut", "flip", "tail", "joined", "blank", "crlf", "split", "odd frame"],
            [40, 20, 10, 4, 6, 6, 6, 8],
        )[0]
        if kind == "cut":
            # A last frame that lacks a piece of its checksum alone: dsh takes it and we do not.
            # Its rows were confirmed to nobody, so either is right.
            at = min(at, len(data) - 5)
            return f"cut to {at} of {len(data)} bytes", data[:at]
        if kind == "flip":
            flipped = bytes([data[at] ^ 1 << pick.randrange(8)])
            return f"a bit of byte {at} flipped", data[:at] + flipped + data[at + 1 :]
        if kind == "tail":
            tail = pick.choice([b"\0" * 40, b"garbage", b"{", b"\n", b"(\xb5/\xfd", b"{}\n"])
            return f"tail {tail!r}", data + tail
        lines = [line(row) for row in rows]
        if kind == "joined":
            return kind, encode_batch(b"".join([line(header), *lines]), self._encoding)
        row = pick.randrange(len(lines))
        if kind == "blank":
            lines.insert(row, b"\n")
        elif kind == "crlf":
            lines[row] = lines[row][:-1] + b"\r\n"
        elif kind == "odd frame":
            lines[-1] = lines[-1][:-1]
        body = b"".join(lines)
        where = pick.randrange(len(body)) if kind == "split" else len(body)
        parts = [line(header), body[:where], b"", body[where:]]
        if self._encoding == "plain":
            return f"{kind} {row}", b"".join(parts)
        frame = zstandard.ZstdCompressor(write_checksum=pick.random() < 0.5).compress
        return f"{kind} {row}", b"".join(frame(part) for part in parts)


def line(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
