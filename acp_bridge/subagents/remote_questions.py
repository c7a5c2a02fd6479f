"""The questions of a remote child, and of what works below it, to the home's user.

Each is kept until it is answered or taken back, so that one that was open at the end of a process
is asked again by the next.
"""

from collections.abc import Callable, Coroutine
from functools import partial

import anyio

from acp_bridge.harness.session import HarnessSession
from acp_bridge.ports import Client, PermissionAsk
from acp_bridge.subagents.remote_asks import Ask, answer_json, answers_json, ask_from_json
from acp_bridge.subagents.remote_calls import RunCalls
from acp_bridge.subagents.remote_kept import KeptRun
from acp_bridge.subagents.remote_outbox import Outbox
from acp_bridge.vocabulary import Answer, JsonObject, SessionId


class Questions:
    """``root`` is whose user is asked, once somebody watches it.

    ``knows`` says whether consumers were told of an asker; ``start`` runs something in a task.
    """

    def __init__(
        self,
        root: HarnessSession,
        kept: KeptRun,
        calls: RunCalls,
        outbox: Outbox,
        *,
        knows: Callable[[SessionId | None], bool],
        start: Callable[[Callable[[], Coroutine[None, None, None]]], None],
    ) -> None:
        self._root = root
        self._kept = kept
        self._calls = calls
        self._outbox = outbox
        self._knows = knows
        self._start = start
        self._asking: dict[str, anyio.CancelScope] = {}

    async def take(self, ask_id: str, payload: JsonObject) -> None:
        """Ask a new question, unless the child was told to end.

        Raises:
            InvalidParamsError: it is none.
            StoreFailedError: the disk refused.
        """
        if ask_id in self._kept.now.asks:
            return
        ask_from_json(payload)
        await self._kept.keep(asks={**self._kept.now.asks, ask_id: payload})
        if self._kept.now.cancel_id is None:
            self._ask(ask_id, payload)

    def ask_again(self) -> None:
        """Ask what is kept, after a restart."""
        if self._kept.now.cancel_id is None:
            for ask_id, payload in self._kept.now.asks.items():
                self._ask(ask_id, payload)

    async def withdraw(self, ask_id: str) -> None:
        """Nobody waits for the answer any more.

        Raises:
            StoreFailedError: the disk refused.
        """
        if (scope := self._asking.get(ask_id)) is not None:
            scope.cancel()
        await self._drop(ask_id)

    def take_back(self) -> None:
        """Ask nothing any more; what is kept stays."""
        for scope in self._asking.values():
            scope.cancel()

    def _ask(self, ask_id: str, payload: JsonObject) -> None:
        scope = self._asking[ask_id] = anyio.CancelScope()
        self._start(partial(self._ask_user, ask_id, payload, scope))

    async def _ask_user(self, ask_id: str, payload: JsonObject, scope: anyio.CancelScope) -> None:
        with scope:
            await self._root.watched.wait()
            ask = ask_from_json(payload)
            client = self._root.client if self._knows(ask.child_id) else None
            answer = await _users_answer(client, ask)
            self._outbox.put(partial(self._answer, ask_id, answer))
        if self._asking.get(ask_id) is scope:
            del self._asking[ask_id]

    async def _answer(self, ask_id: str, answer: JsonObject) -> None:
        await self._calls.answer(ask_id, answer)
        await self._drop(ask_id)

    async def _drop(self, ask_id: str) -> None:
        asks = self._kept.now.asks
        if ask_id in asks:
            await self._kept.keep(asks={name: one for name, one in asks.items() if name != ask_id})


async def _users_answer(client: Client | None, ask: Ask) -> JsonObject:
    """What the user says, as the worker gets it; None: nobody asks."""
    if isinstance(ask, PermissionAsk):
        unasked = Answer.UNAVAILABLE
        return answer_json(unasked if client is None else await client.ask_permission(ask))
    if client is None or not client.takes_questions:
        return answers_json(None)
    return answers_json(await client.ask_questions(ask))
