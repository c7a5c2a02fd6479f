"""A tiny agent for the process tests: the wire room and nothing else.

``early`` as its argument: answers the first line before an event loop is loaded.
"""

import sys
import time

from acp_bridge.wire.framing import take_first_line
from acp_bridge.wire.messages import Notification, Request, parse, result_frame
from acp_bridge.wire.stdio import claim

stdio = claim()
initial = b""
if "early" in sys.argv:
    line, initial = take_first_line(stdio.read_first_line())
    first = parse(line)
    assert isinstance(first, Request)
    loaded = [name for name in ("asyncio", "anyio", "attr", "logging") if name in sys.modules]
    stdio.write_now(result_frame(first.id, {"loaded": loaded}))

import subprocess  # noqa: E402
from collections.abc import Awaitable, Callable  # noqa: E402
from functools import partial  # noqa: E402

import anyio  # noqa: E402

from acp_bridge.errors import MethodNotFoundError  # noqa: E402
from acp_bridge.wire.endpoint import Endpoint, Outcome, Reply  # noqa: E402
from acp_bridge.wire.lifetime import Ending, end_of_life  # noqa: E402


async def serve() -> int:
    """Run until the end of life; the exit code."""
    exit_code = 0

    def admit(call: Request | Notification) -> Reply | Awaitable[Outcome] | None:
        if call.method not in handlers:
            raise MethodNotFoundError(call.method)
        return handlers[call.method](call)

    def stray_print(_call: Request | Notification) -> Reply:
        print("a stray print")  # noqa: T201
        print("another one", file=sys.__stdout__, flush=True)
        return Reply({})

    def run_child(_call: Request | Notification) -> Reply:
        return Reply({"read": subprocess.check_output(["cat"]).decode()})

    async def wait(_call: Request | Notification) -> Outcome:
        await anyio.sleep_forever()
        return {}

    async def hold(_call: Request | Notification) -> Outcome:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()
        return {}

    async def ask(_call: Request | Notification) -> Outcome:
        return {"answer": await endpoint.request("ask", {})}

    async def flood(_call: Request | Notification) -> Outcome:
        for n in range(200_000):
            endpoint.notify("update", {"n": n, "text": "x" * 1000})
            await endpoint.flow()
        return {}

    handlers: dict[str, Callable[[Request | Notification], Reply | Awaitable[Outcome]]] = {
        "echo": lambda call: Reply(call.params),
        "print": stray_print,
        "child": run_child,
        "wait": wait,
        "hold": hold,
        "ask": ask,
        "flood": flood,
    }
    endpoint = Endpoint(stdio.stream(), admit)

    def on_end(ending: Ending) -> None:
        nonlocal exit_code
        exit_code = ending.exit_code
        endpoint.stop(ending.reason)

    def before_exit() -> None:
        print("exiting at once", file=sys.stderr)  # noqa: T201

    async with anyio.create_task_group() as tasks:
        watch = partial(end_of_life, on_end, parent_pid=stdio.parent_pid, before_exit=before_exit)
        tasks.start_soon(watch)
        await endpoint.run(initial)
        tasks.cancel_scope.cancel()
    gone = endpoint.gone
    assert gone is not None
    print(f"ended: {gone.details} cpu_s={time.process_time():.2f}", file=sys.stderr)  # noqa: T201
    return exit_code


sys.exit(anyio.run(serve))
