"""Stores of a given size for the session benchmarks: plausible rows, the same on every run."""

import random
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import attrs

from acp_bridge.sessions.codec import encode_batch, ends_of
from acp_bridge.sessions.events import dump_events
from acp_bridge.sessions.header import Header, dump_header
from acp_bridge.sessions.paths import log_name, project_folder, session_folder
from acp_bridge.subagents.descriptor import Descriptor, descriptor_draft
from acp_bridge.vocabulary import Draft, Event, JsonObject, JsonValue

START_MS = 1_700_000_000_000
RESULT_CHARS = 4_000
ANSWER_WORDS = 120
STEPS = 3

_WORDS = [
    "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz_./(){}", k=3 + seed % 9))
    for seed in range(2_000)
]


def write_log(
    root: Path,
    session_id: str,
    cwd: str,
    *,
    decoded_bytes: int,
    seed: int = 0,
    parent: str | None = None,
) -> Path:
    """A log of whole turns, at least this many bytes when decoded, batches as we write them.

    ``parent`` makes it a continuable subagent's, which begins with its descriptor.
    """
    head = Header(session_id, START_MS + seed, cwd)
    batches = _batches(random.Random(seed))
    if parent is not None:
        head = attrs.evolve(head, parent_session=parent, origin="subagent", delegation_depth=1)
        named = Descriptor("spawn", f"task {seed}", "scripted", "s")
        batches = chain([[descriptor_draft(named)]], batches)
    line = dump_header(head)
    parts = [encode_batch(line, "zstd")]
    total, seq = len(line), 0
    for batch in batches:
        events = _placed(cited(batch, seq), seq)
        rows = dump_events(events)
        parts.append(encode_batch(rows, "zstd"))
        seq += len(events)
        total += len(rows)
        if total >= decoded_bytes and batch[-1].type == "turn/end":
            break
    folder = root / project_folder(cwd) / (session_folder(session_id) or "")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / log_name("zstd")
    path.write_bytes(b"".join(parts))
    return path


def renamed_log(root: Path, session_id: str, cwd: str, written: bytes) -> Path:
    """The log that these bytes are, under another header: quick to make in great numbers."""
    frames = ends_of(written, "zstd")
    folder = root / project_folder(cwd) / (session_folder(session_id) or "")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / log_name("zstd")
    line = dump_header(Header(session_id, START_MS, cwd))
    path.write_bytes(encode_batch(line, "zstd") + written[frames[0] :])
    return path


def drafts(batches: int) -> Iterator[list[Draft]]:
    """The first batches of a log; see `cited`."""
    return islice(_batches(random.Random(0)), batches)


def cited(batch: list[Draft], seq: int) -> list[Draft]:
    """The batch as it stands at this seq: a tool's result rests on the row before it."""
    return [
        attrs.evolve(one, source_event_seqs=(seq + at - 1,)) if one.type == "tool/result" else one
        for at, one in enumerate(batch)
    ]


def lines_of(batch: list[Draft]) -> bytes:
    """The lines that a batch makes."""
    return dump_events(_placed(batch, 0))


def _placed(batch: list[Draft], seq: int) -> list[Event]:
    return [
        Event(
            seq + at,
            START_MS + seq + at,
            one.type,
            one.data,
            one.surface_op,
            one.source_event_seqs,
        )
        for at, one in enumerate(batch)
    ]


def _batches(chance: random.Random) -> Iterator[list[Draft]]:
    turn = 0
    while True:
        turn += 1
        yield _opening(turn, chance)
        for step in range(1, STEPS + 1):
            call_id = f"call_{turn}_{step}"
            arguments = '{"path": "/home/dev/ws/src/module.py"}'
            call: JsonObject = {"type": "tool-call", "id": call_id}
            call |= {"name": "read", "arguments": arguments}
            place: JsonObject = {"turn": turn, "step": step}
            started = {**place, "callId": call_id, "name": "read", "arguments": arguments}
            yield [_answer(place, chance, call), Draft("tool/call", started)]
            yield [_result(place, chance, call_id)]
            opened: JsonObject = {"turn": turn, "step": step + 1}
            yield [Draft("step/end", place), Draft("step/start", opened)]
        done: JsonObject = {"turn": turn, "step": STEPS + 1}
        end: JsonObject = {"turn": turn, "reason": {"kind": "completed"}}
        yield [_answer(done, chance), Draft("step/end", done), Draft("turn/end", end)]


def _opening(turn: int, chance: random.Random) -> list[Draft]:
    text = " ".join(chance.choices(_WORDS, k=30))
    message: JsonObject = {"role": "user", "id": f"u{turn}", "source": {"kind": "user"}}
    message["content"] = [{"type": "text", "text": text}]
    place: JsonObject = {"turn": turn, "step": 1}
    queue: JsonObject = {"target": "next-turn", "start": 0}
    rows = [
        Draft("agent/inbox/spliced", {**queue, "inserted": [message]}),
        Draft("turn/start", {"turn": turn}),
        Draft("agent/inbox/spliced", {**queue, "removedCount": 1, "inserted": []}),
        Draft("step/start", place),
    ]
    if turn == 1:
        system: JsonObject = {"role": "system", "id": "sys", "source": {"kind": "system-prompt"}}
        system["content"] = [{"type": "text", "text": "You are an agent."}]
        rows.append(Draft("system/message", {**place, "message": system}, "append"))
    rows.append(Draft("user/message", message, "append"))
    if turn == 1:
        config: JsonObject = {"provider": "p", "model": "m"}
        rows.append(Draft("request/header", {"header": {"config": config}, "reason": "initial"}))
    return rows


def _answer(place: JsonObject, chance: random.Random, call: JsonObject | None = None) -> Draft:
    words = [word + " " for word in chance.choices(_WORDS, k=ANSWER_WORDS)]
    content: list[JsonValue] = [{"type": "text", "text": "".join(words)}]
    if call is not None:
        content.append(call)
    texts: JsonObject = {"type": "text-chunks", "time0": START_MS, "index": 0}
    texts |= {"dt": [chance.randint(5, 40) for _ in words[1:]], "texts": list(words)}
    message: JsonObject = {"role": "assistant", "content": content}
    message["source"] = {"kind": "model", "provider": "p", "model": "m"}
    message["id"] = f"a{place['turn']}.{place['step']}"
    data: JsonObject = {**place, "message": message, "stream": [texts]}
    data["usage"] = {"inputTokens": 1000, "outputTokens": ANSWER_WORDS}
    return Draft("assistant/message", data, "append")


def _result(place: JsonObject, chance: random.Random, call_id: str) -> Draft:
    text = "\n".join(
        " ".join(chance.choices(_WORDS, k=9)) for _ in range(chance.randint(5, RESULT_CHARS // 32))
    )
    message: JsonObject = {"role": "tool", "id": f"r-{call_id}", "toolCallId": call_id}
    message |= {"source": {"kind": "tool", "callId": call_id}, "isError": False}
    message["content"] = [{"type": "text", "text": text}]
    return Draft("tool/result", {**place, "message": message}, "append")
