"""Any schedule of prompts, delegations, messages, interrupts, cancels and a close keeps the rules.

The rules: each `ChildStarted` has one `ChildFinished`, after those of its own children; nothing is
asked of a model after a cancel until somebody asks again; each prompt is answered once; every log
is sound and can be opened again.
"""

import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import assert_never

import anyio
import anyio.lowlevel
import attrs
import pytest
from fake_models import Said
from family_rig import Cast, Family, Home, calls, check, say
from harness_rig import FakeClient
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.ports import Chunk, FailureChunk, ModelRequest, StopChunk, TextChunk
from acp_bridge.subagents.limits import Limits
from acp_bridge.vocabulary import Command, Prompt, SessionId, TurnEnd


class Chance(Cast):
    """A model that says and does anything, some of it slowly; quiet when it is told to be."""

    def __init__(self, seed: int) -> None:
        super().__init__({})
        self.chance = random.Random(seed)
        self.known: list[str] = []
        self.is_quiet = False
        """Whether nobody may ask: set by a cancel, cleared by whoever asks again."""
        self.broken: list[str] = []
        self.calls_left = 60

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        await anyio.lowlevel.checkpoint()  # as any real call: a cancelled one asks nobody
        if self.is_quiet:
            self.broken.append(f"{request.agent} asked after a cancel")
        if "/" in request.agent and self.chance.random() < 0.6:
            await anyio.sleep(self.chance.random() / 6)
        for chunk in self._answer(begins=not self.asked):
            self.asked.append(request)
            for _ in range(self.chance.randrange(4)):
                await anyio.lowlevel.checkpoint()
            assert not isinstance(chunk, anyio.Event)
            yield chunk

    def _answer(self, *, begins: bool) -> Said:
        self.calls_left -= 1
        if begins:
            task = ("subagent", {"description": "d", "prompt": "p"})
            return calls(task, self._call(), task)
        kind = self.chance.random()
        if self.calls_left < 0 or kind < 0.3:
            return say("done")
        if kind < 0.4:
            return [FailureChunk("it broke", "SERVER")]
        if kind < 0.45:
            return [TextChunk(0, "cut"), StopChunk("max_tokens")]
        return calls(*(self._call() for _ in range(self.chance.choice((1, 1, 2, 3)))))

    def _call(self) -> tuple[str, dict[str, object]]:
        anybody = self.chance.choice([*self.known, "nobody"])
        task: dict[str, object] = {"description": "d", "prompt": "p"}
        made: list[tuple[str, dict[str, object]]] = [
            ("subagent", task),
            ("subagent", {**task, "wait": True}),
            ("subagent_fork", task),
            ("list_agents", {}),
            ("send_message", {"agent_id": anybody, "message": "m"}),
            ("interrupt_agent", {"agent_id": anybody}),
        ]
        return self.chance.choice(made)


@attrs.frozen
class Admit:
    """A prompt."""


@attrs.frozen
class Type:
    """A command."""


@attrs.frozen
class Cancel:
    """The whole prompt."""


@attrs.frozen
class Withdraw:
    """One prompt, by number from the last."""

    back: int


@attrs.frozen
class CancelChild:
    """Any child that was ever started."""

    which: int


@attrs.frozen
class Wait:
    """Let the others run."""

    ms: int


@attrs.frozen
class Settle:
    """Until nothing works."""


Action = Admit | Type | Cancel | Withdraw | CancelChild | Wait | Settle


def schedule(chance: random.Random) -> list[Action]:
    """A prompt that has time to delegate, and then anything at any time."""
    made: list[Action] = [Admit(), Wait(chance.randrange(30, 120))]
    for _ in range(chance.randrange(2, 7)):
        doings: list[Action] = [
            Admit(),
            Type(),
            Cancel(),
            Cancel(),
            Withdraw(chance.randrange(1, 3)),
            CancelChild(chance.randrange(20)),
            Settle(),
        ]
        made.append(chance.choice(doings))
        made.append(Wait(chance.choice((0, 5, chance.randrange(120)))))
    return made


@attrs.define
class Run:
    """One schedule on its way."""

    family: Family
    model: Chance
    prompts: list[WaitingPrompt] = attrs.field(factory=list)

    async def do(self, action: Action) -> None:
        root, model = self.family.root, self.model
        model.known = [one.child_id for one in self.family.started()]
        match action:
            case Admit():
                model.is_quiet = False
                self.prompts.append(root.admit(Prompt([{"type": "text", "text": "go"}])))
            case Type():
                self.prompts.append(root.admit(Command("help", "")))
            case Cancel():
                root.cancel()
                model.is_quiet = True
            case Withdraw(back=back):
                if back <= len(self.prompts):
                    self.prompts[-back].withdraw()
            case CancelChild(which=which):
                if model.known:
                    root.cancel_child(SessionId(model.known[which % len(model.known)]))
            case Wait(ms=ms):
                await anyio.sleep(ms / 1000)  # disks are slower than any number of checkpoints
            case Settle():
                with anyio.fail_after(60):
                    for prompt in self.prompts:
                        await prompt.ended()
            case _:
                assert_never(action)


async def play(home: Home, seed: int, actions: Sequence[Action], *, detaches: bool) -> None:
    model, client = Chance(seed), FakeClient()
    settled: list[WaitingPrompt] = []
    real = WaitingPrompt.settle

    def settle(self: WaitingPrompt, end: TurnEnd) -> None:
        settled.append(self)
        real(self, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WaitingPrompt, "settle", settle)
        limits = Limits(depth_max=2, live_max=5)
        async with home.runtime(model, limits=limits, detaches=detaches) as runtime:
            root = await runtime.new_session(home.cwd, client)
            family = Family(runtime, root, client, model, home.store)
            root.attach(family.hear)
            run = Run(family, model)
            for action in actions:
                await run.do(action)
            with anyio.fail_after(60):
                await root.close()
                for prompt in run.prompts:
                    await prompt.ended()
    assert model.broken == []
    assert [settled.count(prompt) for prompt in run.prompts] == [1] * len(run.prompts)
    check(family)
    for session_id in home.store.session_ids():
        home.store.open(session_id).close()
    assert home.store.list().bad == []


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, print_blob=True)
def test_any_schedule_keeps_the_rules(seed: int) -> None:
    # One seed makes it all: what threads and disks do in between is chance of its own.
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home, actions = Home(Path(folder)), schedule(chance)

        async def main() -> None:
            await play(home, seed, actions, detaches=chance.random() < 0.3)

        anyio.run(main)
