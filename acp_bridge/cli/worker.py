"""``acp-bridge worker``: work on subagents that other machines delegate."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from acp_bridge.cli.events_parser import PORT
from acp_bridge.cli.serve import EXIT_FAILED, EXIT_USAGE, begin, start_log
from acp_bridge.config import resolve
from acp_bridge.errors import BridgeError, ConfigError, InvalidParamsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_bridge.config import Settings
    from acp_bridge.wire.lifetime import Ending

logger = logging.getLogger(__name__)

_OF_TERMINALS = (signal.SIGHUP, signal.SIGINT)


def run(flags: Mapping[str, str | None], options: Mapping[str, Any]) -> int:
    """Work until a signal; the exit code. ``options`` is what the parser made of its flags."""
    # What nohup or a shell's background ignores stays so: no editor is there to end a worker.
    ignored = [one for one in _OF_TERMINALS if signal.getsignal(one) is signal.SIG_IGN]
    begin()
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
    try:
        settings, sources = resolve(flags, os.environ)
        start_log(settings)
        # Each request would be a line.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        # What config.toml says is for sessions of this home: a subagent has its parent's model.
        model = sources["model"]
        named = model.value if model.source in {"--model", "ACP_BRIDGE_MODEL"} else None
        return _work(settings, named, options)
    except (ConfigError, InvalidParamsError) as error:
        return _failed(error, EXIT_USAGE)
    except BridgeError as error:
        return _failed(error, EXIT_FAILED)
    except KeyboardInterrupt:  # in the instant before the event loop takes signals
        return 128 + signal.SIGINT


def _failed(error: BridgeError, code: int) -> int:
    logger.error("%s", error.details)
    if sys.stderr is not None:  # somebody may have closed it
        sys.stderr.write(f"acp-bridge: {error.details}\n")
    return code


def _work(settings: Settings, model_id: str | None, options: Mapping[str, Any]) -> int:
    import gc

    import anyio

    from acp_bridge.cli.assemble import open_catalog, workplace
    from acp_bridge.runevents.client import EventClient
    from acp_bridge.runevents.model import checked_id
    from acp_bridge.wire.lifetime import end_of_life
    from acp_bridge.worker.folders import own_folder
    from acp_bridge.worker.pool import Pool

    url = settings.events or f"http://127.0.0.1:{PORT}"
    token = options["token"] or settings.events_token
    name = checked_id(options["name"] or _default_name(), "--name")
    limit: int = options["limit"]
    warn = _say_nothing if sys.stderr is None else _say
    say = warn if sys.stderr is not None and sys.stderr.isatty() else _say_nothing
    failure: BridgeError | None = None

    async def main() -> None:
        nonlocal failure
        stop = anyio.Event()

        def on_end(ending: Ending) -> None:
            logger.info("%s", ending.reason)
            say("Stopping; another signal ends at once.")
            stop.set()

        async def watch() -> None:
            await end_of_life(on_end, parent_pid=None, before_exit=_kill_commands)

        with own_folder(settings.home) as folder:
            async with (
                open_catalog(settings) as catalog,
                EventClient(url, token) as client,
                anyio.create_task_group() as group,
            ):
                group.start_soon(watch)
                place = workplace(
                    settings,
                    client=client,
                    name=name,
                    catalog=catalog,
                    model_id=model_id,
                    folder=folder,
                )
                gc.freeze()
                gc.enable()
                logger.info("worker %s begins, up to %s runs at once", name, limit)
                say(f"{name} waits for runs at {client.address}, up to {limit} at once.")
                try:
                    await Pool(place, limit=limit, say=say, warn=warn).serve(stop)
                except BridgeError as error:
                    failure = error  # kept, since a task group would wrap it
                group.cancel_scope.cancel()

    anyio.run(main)
    if failure is not None:
        raise failure
    return 0


def _default_name() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}"


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # whoever read it may be gone
        sys.stderr.write(f"{datetime.now(UTC).astimezone():%H:%M:%S} {line}\n")


def _say_nothing(_line: str) -> None:
    """Nobody watches."""


def _kill_commands() -> None:
    from acp_bridge.harness.tools.processes import kill_all_now

    kill_all_now()
