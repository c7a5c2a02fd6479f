"""What the runtime told on its wire, led the adapter's way, against a load of the stored log.

The way is the client's routing, a session, and the face's fold; the oracle is the one of every
bridge test (`testing.replay`).
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import anyio
from fake_dsh import connected

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.subagent_family import Shown
from acp_bridge.bridge.subagent_history import history
from acp_bridge.bridge.subagent_view import SubagentView
from acp_bridge.runtime.dsh.control_types import ModelChoice
from acp_bridge.runtime.dsh.residence import Shop
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.replay import replay_differences
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import RuntimeEvent, SessionId

if TYPE_CHECKING:
    from acp_bridge.ports import Client


def rows_of(messages: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    """The seqs that were told of each session."""
    found: dict[str, list[int]] = {}
    for message in messages:
        if message["method"] == "session.event":
            params = message["params"]
            found.setdefault(params["sessionId"], []).append(params["event"]["seq"])
    return found


def entries(run: int, shown: Iterable[Shown]) -> list[Entry]:
    return [
        Entry(
            run,
            "client",
            {
                "method": "session/update",
                "params": {"sessionId": str(session_id), "update": unstructure(update)},
            },
        )
        for session_id, update in shown
    ]


def replayed(root: SessionId, cwd: Path, past: Iterable[RuntimeEvent], view: View) -> list[Shown]:
    shown = SubagentView(root, cwd, view, replay=True)
    return [one for event in past for one in shown.project(event)] + shown.finish_replay()


def load(run: int, root: str, shown: Iterable[Shown]) -> list[Entry]:
    """A load with its replay."""
    request = {"id": run, "method": "session/load", "params": {"sessionId": root}}
    return [
        Entry(run, "agent", request),  # type: ignore[arg-type]
        *entries(run, shown),
        Entry(run, "client", {"id": run, "result": {}}),
    ]


async def capture_differences(
    messages: list[dict[str, Any]], store: SessionStore, *, native: bool
) -> list[str]:
    """Where the notifications show a client something else than the logs in the store do."""
    seqs = rows_of(messages)
    headers = {entry.session_id: entry.header for entry in store.entries()}
    stored = {name: headers[name] for name in seqs if headers.get(name) is not None}
    children = {name for name, header in stored.items() if header and header.origin == "subagent"}
    roots = [SessionId(name) for name in stored if name not in children]
    assert roots
    view = View(native_subagents=native)
    async with connected(forks=frozenset(seqs) - children) as (client, runtime):
        heard = ExitStack()
        lives: dict[SessionId, tuple[DshSession, list[Entry]]] = {}
        for root in roots:
            log = store.read(root)
            before = log.events[: seqs[root][0]]
            shop = Shop(store, *cast("Any", [None] * 8))
            model = ModelChoice("deepseek-official", "deepseek-chat")
            session = DshSession(
                shop,
                log.header,
                cast("Client", SimpleNamespace(takes_questions=False)),
                mode="ask",
                model=model,
                events=before,
            )
            shown = SubagentView(root, session.cwd, view)
            past = list(history(root, before, ()))
            shown.prime(past)
            seen = entries(1, replayed(root, session.cwd, past, view))

            def consume(
                event: RuntimeEvent, shown: SubagentView = shown, seen: list[Entry] = seen
            ) -> None:
                seen += entries(1, shown.project(event))

            session.attach(consume)
            heard.enter_context(client.subscribe(root, session._hear))
            lives[root] = session, seen
        with anyio.fail_after(60):
            for message in messages:
                await runtime.send(message)
            await client.request("ping", {})
        heard.close()
    found: list[str] = []
    for root, (session, seen) in lives.items():
        log = store.read(root)
        until = log.events[: seqs[root][-1] + 1]
        assert len(session.events) >= len(until) > len(log.events[: seqs[root][0]])
        descendants = await session.descendants()
        past = list(history(root, until, descendants))
        again = load(2, root, replayed(root, session.cwd, past, view))
        transcript = [*load(0, root, ()), *seen, *again]
        found += replay_differences(transcript)
    return found
