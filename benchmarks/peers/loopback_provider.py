"""A provider on loopback that speaks the Messages API as fast as it can; prints its address.

A request that says "updates N" last gets N text deltas. Under ``/joined`` the HTTP chunks hold
many events, as a proxy passes them on; else each event has one of its own.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping

WRITE_EVENTS = 32
"""Events handed to the socket at once, about 4 KiB: the provider must not be what is measured."""

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
        asked = body.rpartition(b"updates ")[2]
        digits = re.match(rb"\d+", asked)
        for piece in pieces(int(digits[0]) if digits else 1, joined=b"/joined/" in head):
            writer.write(piece)
            await writer.drain()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
