"""``acp-bridge events``: serve run events, print them as they come, say what is open."""

import contextlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from acp_bridge.cli.events_parser import PORT
from acp_bridge.cli.stored import Stored
from acp_bridge.config import resolve
from acp_bridge.errors import (
    BridgeError,
    ConfigError,
    EventLogResetError,
    EventServiceError,
    SessionNotFoundError,
)
from acp_bridge.runevents.backoff import Backoff
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.model import RunEvent, RunId, checked_id
from acp_bridge.vocabulary import JsonValue

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

NOT_FOUND = 404

MISSING = "The event service needs Starlette and uvicorn: pip install 'harness-acp-bridge[events]'."


def run(flags: Mapping[str, str | None], options: Mapping[str, Any]) -> int:
    """Run one of the actions; the exit code. ``options`` is what the parser made of its flags."""
    try:
        settings = resolve(flags, os.environ)[0]
        if options["action"] == "serve":
            return _serve(settings.home, options)
        options = {
            **options,
            "events": settings.events or f"http://127.0.0.1:{PORT}",
            "token": options["token"] or settings.events_token,
        }
        with contextlib.suppress(BrokenPipeError):  # whoever read us has seen enough
            if options["action"] == "status":
                return _run(_status, options)
            store = Stored(settings.home)
            return _run(_tail, {**options, "runs": [_meant(store, run) for run in options["runs"]]})
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ConfigError as error:
        return _failed(error, EXIT_USAGE)
    except BridgeError as error:
        return _failed(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _failed(error: BridgeError, code: int) -> int:
    sys.stderr.write(f"acp-bridge: {error.details}\n")
    return code


def _run(
    action: Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]], options: Mapping[str, Any]
) -> int:
    anyio.run(action, options)
    return 0


# --- serve -------------------------------------------------------------------------------------


def _serve(home: Path, options: Mapping[str, Any]) -> int:
    try:
        from acp_bridge.runevents.service import serving
    except ImportError as fault:
        raise ConfigError(MISSING) from fault
    from acp_bridge.runevents.log import open_log
    from acp_bridge.runevents.service.agents import Clock

    # A server's log is its stderr; ids and failures only.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("uvicorn", "uvicorn.error", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    _take_all_files()
    token = options["token"] or os.environ.get("ACP_BRIDGE_EVENTS_TOKEN") or None
    url = options["log"] or f"sqlite:{home / 'events.sqlite'}"
    clock = Clock(
        now_ms=lambda: time.time_ns() // 1_000_000,
        iso=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"),
    )

    async def serve() -> None:
        listener = serving.bind(options["host"], options["port"], token=token)
        with listener:
            async with open_log(url) as log, serving.stopped_by_signals() as stop:
                service = serving.Service(log, clock, token=token)
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                async with anyio.create_task_group() as tasks:
                    await tasks.start(_serve_on, service, listener, stop)
                    sys.stdout.write(f"Serving run events on http://{shown}:{port}\n")
                    sys.stdout.flush()

    async def _serve_on(
        service: serving.Service,
        listener: Any,  # noqa: ANN401
        stop: anyio.Event,
        *,
        task_status: Any,  # noqa: ANN401
    ) -> None:
        await serving.serve(service, listener, stop=stop, task_status=task_status)

    anyio.run(serve)
    return 0


def _take_all_files() -> None:
    """Each stream is an open file: take as many as the system lets us."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- tail and status ---------------------------------------------------------------------------


def _meant(store: Stored, typed: str) -> str:
    """The run of a subagent whose session is here; what is of another home stays as it is."""
    with contextlib.suppress(SessionNotFoundError):
        return store.id_of(typed)
    return typed


def _client(options: Mapping[str, Any]) -> EventClient:
    return EventClient(options["events"], options["token"])


async def _tail(options: Mapping[str, Any]) -> None:
    cursors = {RunId(checked_id(run, "RUN")): options["since"] for run in options["runs"]}
    backoff = Backoff(random.random)
    epoch: str | None = None
    async with _client(options) as client:
        await _say_unknown(client, cursors)
        while True:
            status: int | None = None
            details = "The stream ended."
            try:
                async with client.open(cursors, epoch=epoch) as stream:
                    epoch = stream.epoch
                    async with contextlib.aclosing(stream.batches()) as batches:
                        async for batch in batches:
                            backoff.lived()
                            for event in batch:
                                cursors[event.run_id] = max(cursors[event.run_id], event.sequence)
                                _say(_line(event, as_json=options["json"]))
            except EventLogResetError as error:
                sys.stderr.write(f"acp-bridge: {error.details}\n")
                cursors, epoch = dict.fromkeys(cursors, 0), None
                continue
            except EventServiceError as error:
                status, details = error.status, error.details
            wait_s = backoff.failed(status)
            if epoch is None or wait_s is None:
                raise EventServiceError(details, status=status)
            sys.stderr.write(f"acp-bridge: {details} Trying again.\n")
            await anyio.sleep(wait_s)


async def _say_unknown(client: EventClient, runs: Iterable[RunId]) -> None:
    """A run may be watched before it is registered; one that was mistyped never will be."""
    for run_id in runs:
        try:
            await client.run(run_id)
        except EventServiceError as error:  # whatever else it is, the stream says as well
            if error.status == NOT_FOUND:
                sys.stderr.write(
                    f"acp-bridge: Nobody has registered the run {run_id} yet: waiting for it.\n"
                )


def _line(event: RunEvent, *, as_json: bool) -> str:
    if as_json:
        import attrs

        return json.dumps(attrs.asdict(event, recurse=False))
    about = "" if event.ref_id is None else f"  {event.ref_id}"
    return f"{event.sequence:>8}  {event.occurred_at}  {event.run_id}  {event.event_type}{about}"


async def _status(options: Mapping[str, Any]) -> None:
    async with _client(options) as client:
        status = await client.status()
    if options["json"]:
        _say(json.dumps(status))
        return
    homes = status.pop("homes", None)
    width = max(map(len, status), default=0)
    for name, value in status.items():
        _say(f"{name:<{width}}  {value}")
    for home in homes if isinstance(homes, list) else ():
        _say("\n".join(_home_lines(home)))


def _home_lines(home: JsonValue) -> Iterator[str]:
    """A home's snapshot: counts, then a line for each of its sessions."""
    told = home if isinstance(home, dict) else {}
    counts = ("open_connections", "watching_entries", "watched_ids", "consumers")
    shown = ", ".join(f"{name} {told.get(name)}" for name in counts)
    yield f"home {told.get('home')}: {shown}"
    sessions = told.get("sessions")
    for one in sessions if isinstance(sessions, list) else ():
        if isinstance(one, dict):
            yield (
                f"  session {one.get('session_id')}  {one.get('role')}"
                f"  consumers {one.get('consumers')}  watched {one.get('watched_ids')}"
                f"  {'connected' if one.get('is_connected') else 'not connected'}"
            )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
