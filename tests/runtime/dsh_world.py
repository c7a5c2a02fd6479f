"""A home, a workspace and the scripted program in the place of dsh, without a control plugin."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from fake_dsh_program import SECRET

from acp_bridge.ports import (
    NO_EXTRAS,
    ClientCommand,
    CommandEnd,
    Extras,
    PermissionAsk,
    QuestionsAsk,
)
from acp_bridge.runtime.dsh.adapter import DshRuntime, Outside
from acp_bridge.runtime.dsh.models import DshModels
from acp_bridge.runtime.dsh.session import DshSession
from acp_bridge.sessions import SessionStore
from acp_bridge.vocabulary import Answer, Event, Prompt, RuntimeEvent, TurnEnd

PROGRAM = Path(__file__).with_name("fake_dsh_program.py")


class Nobody:
    """A client that offers nothing and is asked nothing."""

    reads_text = writes_text = runs_commands = takes_questions = False

    async def ask_permission(self, _ask: PermissionAsk) -> Answer:
        raise AssertionError

    async def ask_questions(self, ask: QuestionsAsk) -> None:
        raise AssertionError(ask)

    async def read_text(self, _path: Path) -> str:
        raise AssertionError

    async def write_text(self, _path: Path, _text: str) -> None:
        raise AssertionError

    async def run_command(self, _command: ClientCommand) -> CommandEnd:
        raise AssertionError

    async def flow(self) -> None:
        await anyio.lowlevel.checkpoint()


class World:
    """A home, a workspace, and a program in the place of dsh."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "dsh-home"
        self.cwd = folder / "work"
        self.scratch = folder / "scratch"
        self.cwd.mkdir()
        self.scratch.mkdir()
        self.command = folder / "dsh"
        self.command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{PROGRAM}" "$@"\n')
        self.command.chmod(0o755)
        self.key: str | None = SECRET
        self.ids = iter(f"s{number}" for number in range(100))
        self.told: list[RuntimeEvent] = []

    @property
    def store(self) -> SessionStore:
        return SessionStore(self.home / "sessions", clock=lambda: 5)

    @asynccontextmanager
    async def runtime(
        self, how: str = "works", *, command: str | None = None, start_wait_s: float = 60
    ) -> AsyncIterator[DshRuntime]:
        outside = Outside(
            clock=lambda: 5,
            new_id=lambda: next(self.ids),
            env={**os.environ, "FAKE_DSH": how},
            command=str(self.command) if command is None else command,
            scratch=self.scratch,
            start_wait_s=start_wait_s,
        )
        models = DshModels(
            home=self.home,
            configured=None,
            overrides={},
            find_key=lambda: self.key,
            forget=lambda: None,
        )
        with anyio.fail_after(60):
            async with DshRuntime(
                home=self.home,
                people_home=self.scratch,
                models=models,
                mode="ask",
                outside=outside,
            ) as runtime:
                yield runtime

    async def new(self, runtime: DshRuntime, extras: Extras = NO_EXTRAS) -> DshSession:
        session = await runtime.new_session(self.cwd, Nobody(), extras=extras)
        session.attach(self.told.append)
        return session

    def rows(self) -> list[Event]:
        return [event for event in self.told if isinstance(event, Event)]


def said(words: str) -> Prompt:
    return Prompt(content=[{"type": "text", "text": words}])


async def prompted(session: DshSession, words: str = "hello") -> TurnEnd:
    return await session.admit(said(words)).ended()
