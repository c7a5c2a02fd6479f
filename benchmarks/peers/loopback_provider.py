"""A provider on loopback that speaks the Messages API as fast as it can; prints its address.

A request that says "updates N" last gets N text deltas, at a pace if it says "updates N paced".
Under ``/joined`` the HTTP chunks hold many events, as a proxy passes them on; else each event has
one of its own.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping

WRITE_EVENTS = 32
"""Events handed to the socket at once, about 4 KiB: the provider must not be what is measured."""

PACE_S = 0.02
"""The time from one delta to the next at a pace."""

NOTHING = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
"""The answer to what is no request for a model's answer."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
USAGE = {"input_tokens": 100, "output_tokens": 1}


def encoded(event: Mapping[str, object]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": USAGE}
TEXT = {"type": "text", "text": ""}
PIECE = {"type": "text_delta", "text": "token "}
START = [
    encoded({"type": "message_start", "message": MESSAGE}),
    encoded({"type": "content_block_start", "index": 0, "content_block": TEXT}),
]
DELTA = encoded({"type": "content_block_delta", "index": 0, "delta": PIECE})
END = [
    encoded({"type": "content_block_stop", "index": 0}),
    encoded({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE}),
    encoded({"type": "message_stop"}),
]


def pieces(count: int, *, joined: bool) -> Iterable[bytes]:
    """What to write, write by write."""
    if count < WRITE_EVENTS:
        whole = [*START, *[DELTA] * count, *END]
        yield HEAD + b"".join(map(chunk, whole)) + LAST
        return
    yield HEAD + b"".join(map(chunk, START))
    many = chunk(DELTA * WRITE_EVENTS) if joined else chunk(DELTA) * WRITE_EVENTS
    for _ in range(count // WRITE_EVENTS):
        yield many
    yield chunk(DELTA) * (count % WRITE_EVENTS) + b"".join(map(chunk, END)) + LAST


async def paced(writer: asyncio.StreamWriter, count: int) -> None:
    writer.write(HEAD + b"".join(map(chunk, START)))
    for _ in range(count):
        writer.write(chunk(DELTA))
        await writer.drain()
        await asyncio.sleep(PACE_S)
    writer.write(b"".join(map(chunk, END)) + LAST)
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        body = await reader.readexactly(int(length[1]))
        # Not read as JSON: that would be part of a warm turn's time.
        if b"/messages" not in head.partition(b"\r\n")[0]:
            writer.write(NOTHING)
            continue
        asked = re.findall(rb"updates (\d+)( paced)?", body)
        digits, at_a_pace = asked[-1] if asked else (b"1", b"")
        if at_a_pace:
            await paced(writer, int(digits))
            continue
        for piece in pieces(int(digits), joined=b"/joined/" in head):
            writer.write(piece)
            await writer.drain()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
