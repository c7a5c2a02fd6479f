"""A bare Starlette endpoint for server-sent events: a list in memory, nothing durable, no rules.

It takes and streams events at the addresses of the event service, so that one client measures
both. Prints its address.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

frames: defaultdict[str, list[bytes]] = defaultdict(list)
woken: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


async def publish(request: Request) -> Response:
    run = request.path_params["run"]
    events = (await request.json())["events"]
    for event in events:
        sequence = len(frames[run]) + 1
        data = json.dumps({"sequence": sequence, **event})
        frames[run].append(f"id: {sequence}\ndata: {data}\n\n".encode())
    woken.pop(run, asyncio.Event()).set()
    return JSONResponse({"sequences": [len(frames[run])]})


async def stream(request: Request) -> Response:
    run = request.query_params["run_ids[]"]

    async def body() -> AsyncIterator[bytes]:
        yield b": open\n\n"
        place = 0
        while True:
            while place == len(frames[run]):
                await woken[run].wait()
            some = frames[run][place : place + 256]
            place += len(some)
            yield b"".join(some)

    return StreamingResponse(body(), media_type="text/event-stream")


async def register(_request: Request) -> Response:
    return JSONResponse({})


class Server(uvicorn.Server):
    """uvicorn that says where it serves."""

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}", flush=True)


def main() -> None:
    routes = [
        Route("/v1/agent/runs", register, methods=["POST"]),
        Route("/v1/agent/events/stream", stream),
        Route("/v1/agent/events/{run}", publish, methods=["POST"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="error", http="h11")
    Server(config).run()


main()
