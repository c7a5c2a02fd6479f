"""Play one scenario against one agent: send, wait, answer, restart; give back what was seen.

The runner sends `initialize` by itself after every start unless the input says otherwise.
"""

import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import assert_never

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from acp_bridge.sessions import SessionStore
from acp_bridge.sessions.paths import log_name, project_folder, session_folder
from acp_bridge.testing import scenario as steps
from acp_bridge.testing.client import WAIT_S, ScenarioError, ScriptedClient
from acp_bridge.testing.demands import OURS, Demands
from acp_bridge.testing.forks import make_fork
from acp_bridge.testing.launch import Agent, Launcher, Place
from acp_bridge.testing.scenario import Scenario, holds, resolve
from acp_bridge.testing.transcript import Entry, Line, arr, obj, read
from acp_bridge.vocabulary import JsonObject, JsonValue

PROTOCOL_VERSION = 1
"""What the runner's `initialize` asks for."""

STORE_POLL_S = 0.01
"""How often the store is looked at: the agent may be another process, which tells nobody."""


FILE_WAIT_S = 30.0
"""The bound for a file that another program makes, which may have to start first."""


@attrs.frozen(slots=True)
class Outcome:
    """What a scenario left: the transcript and the place with its files."""

    scenario: Scenario
    place: Place
    entries: list[Entry]

    @property
    def lines(self) -> list[Line]:
        """The transcript with methods and sessions."""
        return read(self.entries)


async def play(
    scenario: Scenario,
    launcher: Launcher,
    folder: Path,
    *,
    demands: Demands = OURS,
    wait_s: float | None = None,
) -> Outcome:
    """Run every step, then end the agent's input and take in what it still says.

    ``folder`` is empty and the scenario's own; working copy, home and script are made in it.
    ``wait_s`` bounds every wait (default `WAIT_S`).

    Raises:
        ScenarioError: a wait had no end, a client request was left open, or the agent failed.
    """
    place = prepare(scenario, folder)
    player = _Player(scenario, launcher, place, demands=demands, wait_s=wait_s)
    await player.play()
    return Outcome(scenario, place, player.entries)


class _Player:
    """The running half of a scenario: the agent of now, what was claimed, what was answered."""

    def __init__(
        self,
        scenario: Scenario,
        launcher: Launcher,
        place: Place,
        *,
        demands: Demands,
        wait_s: float | None,
    ) -> None:
        self._demands = demands
        self._wait_s = WAIT_S if wait_s is None else wait_s
        self.entries: list[Entry] = []
        self._scenario = scenario
        self._launcher = launcher
        self._place = place
        self._run = 0
        self._results: JsonObject = {}
        self._claimed: dict[str, JsonObject] = {}
        self._claimed_at: set[int] = set()
        self._update_cursors: dict[str | None, int] = {}
        self._notification_cursor = 0
        self._variables = {
            "cwd": str(place.cwd),
            "home": str(place.home),
            "python": sys.executable,
        }

    async def play(self) -> None:
        left = list(enumerate(self._scenario.steps, start=1))
        while True:
            async with self._started() as (agent, client):
                stop = await self._until_stop(left, client)
                if stop == "kill":
                    await agent.kill()
                else:
                    await self._leave(agent)
                    await client.wait_end()
            if stop is None:
                return

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[tuple[Agent, ScriptedClient]]:
        self._run += 1
        failure: ScenarioError | None = None
        async with anyio.create_task_group() as tasks:
            agent = await self._launcher(self._place, self._scenario.flags, tasks)
            client = ScriptedClient(agent, self._run, self.entries, self._wait_s)
            tasks.start_soon(client.read)
            try:
                await self._initialize(client)
                yield agent, client
            except ScenarioError as error:
                # Raised again outside the group, so that a test shows one error and not a group.
                failure = error
                with anyio.CancelScope(shield=True):
                    await agent.kill()
                tasks.cancel_scope.cancel()
        await agent.aclose()
        if failure is not None:
            raise ScenarioError(f"{failure}\n{self._stderr()}".rstrip())

    async def _initialize(self, client: ScriptedClient) -> None:
        if self._scenario.client is None:
            return
        params: JsonObject = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": {}}
        if self._scenario.wire == "sdk":
            params = {"cwd": str(self._place.cwd), "provider": "scripted", "model": "script"}
        params |= self._scenario.client
        await self._step(
            steps.Request("initialize", "initialize", params, wait=True, gives={}), client
        )

    async def _leave(self, agent: Agent) -> None:
        await agent.end_input()
        if not self._demands.leaves_well:
            # Many agents end with a code of their own, or not before they are made to.
            with suppress(TimeoutError):
                await agent.wait_exit()
            return
        if code := await agent.wait_exit():
            raise ScenarioError(f"the agent left with code {code}: {self._stderr()}")
        if text := self._stderr():
            raise ScenarioError(f"the agent wrote to stderr in normal work: {text}")

    def _stderr(self) -> str:
        path = self._place.stderr
        return path.read_text("utf-8", "replace") if path.exists() else ""

    async def _until_stop(
        self, left: list[tuple[int, steps.Step]], client: ScriptedClient
    ) -> str | None:
        while left:
            number, step = left.pop(0)
            if isinstance(step, steps.Stop):
                return step.how
            try:
                await self._step(step, client)
            except (ScenarioError, KeyError) as error:
                where = f"{self._scenario.folder.name}, step {number} ({type(step).__name__})"
                raise ScenarioError(f"{where}: {error}") from None
        return None

    async def _step(self, step: steps.Step, client: ScriptedClient) -> None:
        match step:
            case steps.Request():
                await client.send(
                    {
                        "id": step.request_id,
                        "method": step.method,
                        "params": self._resolve(step.params),
                    }
                )
                if step.wait:
                    await self._await_response(step, client)
            case steps.Notify():
                await client.send({"method": step.method, "params": self._resolve(step.params)})
            case steps.AwaitResponse():
                await self._await_response(step, client)
            case steps.AwaitUpdate():
                await self._await_update(step, client)
            case steps.AwaitNotification():
                await self._await_notification(step, client)
            case steps.AwaitRow():
                await self._await_row(step, client)
            case steps.AwaitRequest():
                await self._await_request(step, client)
            case steps.Answer():
                await client.send(self._reply(step))
            case steps.Release():
                release(self._place, step.name)
            case steps.WriteFile() | steps.AwaitFile():
                await self._file(step, client)
            case steps.Fork():
                await anyio.to_thread.run_sync(self._fork, step)
            case steps.Stop():
                raise AssertionError("the caller takes stops")
            case _:
                assert_never(step)

    def _resolve(self, value: JsonValue) -> JsonValue:
        return resolve(value, self._results, self._variables)

    async def _await_response(
        self, step: steps.Request | steps.AwaitResponse, client: ScriptedClient
    ) -> None:
        request_id = step.request_id

        def answer() -> JsonObject | None:
            return next(
                (
                    entry.message
                    for entry in reversed(self.entries)
                    if entry.run == self._run
                    and entry.to == "client"
                    and "method" not in entry.message
                    and entry.message.get("id") == request_id
                ),
                None,
            )

        response = await client.wait_for(answer, f"response to {request_id!r}")
        self._results[request_id] = response
        if not holds(response, self._resolve(step.gives)):
            raise ScenarioError(f"not {step.gives} but {response}")

    async def _await_update(self, step: steps.AwaitUpdate, client: ScriptedClient) -> None:
        session = self._resolve(step.session)
        partial = self._resolve(step.partial)
        cursor_key = session if isinstance(session, str) else None

        def is_wanted(message: JsonObject) -> bool:
            params = obj(message.get("params"))
            return (
                message.get("method") == "session/update"
                and (session is None or params.get("sessionId") == session)
                and holds(params.get("update"), partial)
            )

        start = self._update_cursors.get(cursor_key, 0)
        index = await self._await_index(client, start, is_wanted, f"update {partial}")
        self._update_cursors[cursor_key] = index + 1

    async def _await_notification(
        self, step: steps.AwaitNotification, client: ScriptedClient
    ) -> None:
        partial = self._resolve(step.partial)

        def is_wanted(message: JsonObject) -> bool:
            return "method" in message and "id" not in message and holds(message, partial)

        start = self._notification_cursor
        index = await self._await_index(client, start, is_wanted, f"notification {partial}")
        self._notification_cursor = index + 1

    async def _await_row(self, step: steps.AwaitRow, client: ScriptedClient) -> None:
        found = 0
        with anyio.move_on_after(self._wait_s):
            while True:
                found = await anyio.to_thread.run_sync(self._stored, step.partial)
                if found >= step.times:
                    return
                await anyio.sleep(STORE_POLL_S)
        what = f"{found} rows {step.partial} and not {step.times}"
        raise ScenarioError(f"{what} within {self._wait_s:g} s\n{client.seen()}")

    async def _file(self, step: steps.WriteFile | steps.AwaitFile, client: ScriptedClient) -> None:
        path = self._place.cwd / step.path
        if isinstance(step, steps.WriteFile):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(self._resolve(step.text)), "utf-8", newline="")
            return
        with anyio.move_on_after(FILE_WAIT_S):
            while True:
                if await anyio.to_thread.run_sync(path.exists):
                    return
                await anyio.sleep(STORE_POLL_S)
        raise ScenarioError(f"no file {step.path} within {FILE_WAIT_S:g} s\n{client.seen()}")

    def _stored(self, partial: JsonObject) -> int:
        store = SessionStore(self._place.home / "sessions", clock=lambda: 0)
        return sum(
            holds({"type": event.type, "data": event.data}, partial)
            for summary in store.list().sessions
            for event in store.read(summary.session_id).events
        )

    async def _await_request(self, step: steps.AwaitRequest, client: ScriptedClient) -> None:
        partial = self._resolve(step.partial)

        def is_wanted(message: JsonObject) -> bool:
            return "method" in message and "id" in message and holds(message, partial)

        index = await self._await_index(client, 0, is_wanted, f"client request {partial}")
        self._claimed_at.add(index)
        self._claimed[step.name] = self.entries[index].message
        self._results[step.name] = self.entries[index].message

    async def _await_index(
        self, client: ScriptedClient, start: int, is_wanted: Callable[[JsonObject], bool], what: str
    ) -> int:
        def index() -> int | None:
            for place in range(start, len(self.entries)):
                entry = self.entries[place]
                if entry.to != "client" or entry.run != self._run or place in self._claimed_at:
                    continue
                if is_wanted(entry.message):
                    return place
            return None

        return await client.wait_for(index, what)

    def _reply(self, step: steps.Answer) -> JsonObject:
        asked = self._claimed.get(step.to)
        if asked is None:
            raise ScenarioError(f"no client request was awaited as {step.to!r}")
        if step.choose is None:
            return {"id": asked["id"], **obj(self._resolve(step.reply))}
        options = arr(obj(asked.get("params")).get("options"))
        for option in options:
            if obj(option).get("kind") == step.choose:
                chosen = {"outcome": "selected", "optionId": obj(option).get("optionId")}
                return {"id": asked["id"], "result": {"outcome": chosen}}
        raise ScenarioError(f"{step.to!r} offers no {step.choose!r}: {options}")

    def _fork(self, step: steps.Fork) -> None:
        make_fork(self._place.home, step.of, step.name, historical=step.historical)


def release(place: Place, name: str) -> None:
    """Let the scripted model's wait of that name go on."""
    folder = place.model.with_name(place.model.name + ".releases")
    folder.mkdir(exist_ok=True)
    (folder / name).touch()


def prepare(scenario: Scenario, folder: Path) -> Place:
    """A scenario's place in an empty folder: workspace, script and stored sessions."""
    folder = folder.resolve()
    place = Place(
        cwd=folder / "workspace",
        home=folder / "home",
        model=folder / "model.jsonl",
        model_requests=folder / "model_requests.jsonl",
        stderr=folder / "stderr.txt",
    )
    workspace = scenario.folder / "workspace"
    if workspace.is_dir():
        shutil.copytree(workspace, place.cwd, symlinks=True)
    else:
        place.cwd.mkdir()
    script = scenario.folder / "model.jsonl"
    place.model.write_text(_filled(script, place) if script.is_file() else "", "utf-8")
    for path in sorted((scenario.folder / "sessions").glob("*.jsonl")):
        _store(_filled(path, place), place.home / "sessions")
    return place


def _filled(path: Path, place: Place) -> str:
    """The JSON text of a file with our paths in it."""
    text = path.read_text("utf-8")
    for name, value in {"cwd": str(place.cwd), "home": str(place.home)}.items():
        text = text.replace("{{" + name + "}}", json.dumps(value)[1:-1])
    return text


def _store(log: str, root: Path) -> None:
    """Put a log where its header says, as a program before this one would have."""
    header: JsonObject = json.loads(log.partition("\n")[0])
    folder = root / project_folder(str(header["cwd"])) / str(session_folder(str(header["id"])))
    folder.mkdir(parents=True)
    (folder / log_name("plain")).write_text(log, "utf-8")
