"""Make a scenario: out of a stored session by living through it again, or out of a trace."""

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
import attrs

from acp_bridge.errors import BridgeError, InvalidParamsError
from acp_bridge.runtime.attachments import AttachmentStore
from acp_bridge.sessions import SessionStore
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.sessions.surface import title
from acp_bridge.testing import launch
from acp_bridge.testing.check import played
from acp_bridge.testing.client import ScenarioError, ScriptedClient
from acp_bridge.testing.difference import differences
from acp_bridge.testing.launch import Place
from acp_bridge.testing.normal import Files, Shared, expected_files
from acp_bridge.testing.recording.client import Plan, ReliveClient
from acp_bridge.testing.recording.files import workspace_of
from acp_bridge.testing.recording.likeness import named, unlike, updates_of
from acp_bridge.testing.recording.log import (
    ANSWERS,
    Family,
    Turn,
    calls_of,
    family_of,
    own_range,
    results_of,
    script_of,
    turns_of,
)
from acp_bridge.testing.recording.paths import OUTSIDE, Placer
from acp_bridge.testing.recording.steps import Steps, steps_of
from acp_bridge.testing.runner import prepare, release
from acp_bridge.testing.scenario import load
from acp_bridge.testing.transcript import Entry, entries_from_trace, obj
from acp_bridge.vocabulary import JsonObject, JsonValue

HEADS_MAX = 6
"""How many differences of two runs are told: the first ones say which part is not steady."""

HEAD_CHARS_MAX = 160

LAST_MESSAGES = 3
"""How many messages before a failure are told."""


@attrs.frozen(slots=True)
class Report:
    """What came of a recording, in sentences. ``notes``: what could not be carried over.

    ``unlike``: where a load of the scenario's session shows something else than one of the
    original. ``unsteady``: where a second run differed from the first.
    """

    folder: Path
    notes: list[str]
    unlike: list[str] = attrs.field(factory=list)
    unsteady: list[str] = attrs.field(factory=list)


def record_session(store: SessionStore, home: Path, session_id: str, into: Path) -> Report:
    """Turn a stored session into a scenario in a new folder, with what it pins.

    Raises:
        BridgeError: there is no such session, it cannot be read, or nothing happened in it; the
            folder is not new, or cannot be written.
        ScenarioError: it could not be lived through again; the text says where.
    """
    _check_new(into)
    family = family_of(session_id, partial(_read, store, session_id))
    recording = _Recording(family, home)
    if not recording.has_turns:
        raise InvalidParamsError(
            f"Session {session_id} has no completed turn: there is nothing to live through.",
            field="id",
        )
    folder = into.resolve()
    with tempfile.TemporaryDirectory(prefix="acp-bridge-record-") as name:
        place_folder = Path(name)
        draft = place_folder / folder.name
        recording.write(draft)
        (place_folder / "life").mkdir()
        lived, client = anyio.run(recording.relive, draft, place_folder / "life")
        recording.write_input(draft, lived, client)
        told = recording.unlike(lived.home)
        first = _files(draft, folder, place_folder / "first")
        _write_files(draft / "expected", first)
        second = _files(draft, folder, place_folder / "second")
        unsteady = _heads(differences(draft / "expected", second))
        _publish(draft, folder)
    return Report(folder, recording.notes(), told, unsteady)


def record_trace(trace: Path, into: Path) -> Report:
    """Turn what ``--trace`` wrote into an `input.json`: for any agent, without what it answers.

    Raises:
        BridgeError: it cannot be read, it is no trace, or the folder is not new.
    """
    _check_new(into)
    try:
        entries = entries_from_trace(trace.read_text("utf-8"))
    except OSError as error:
        raise InvalidParamsError(
            f"{trace} cannot be read: {error.strerror}", field="trace"
        ) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidParamsError(
            f"{trace} is no trace of acp-bridge: {error}", field="trace"
        ) from error
    made = steps_of(entries, cwd=None)
    notes = [
        f"session {one} was there before the trace: put its log into {into}/sessions/"
        for one in made.foreign
    ]
    notes.append("a trace tells nothing of files: put what the agent finds into workspace/")
    notes.append(
        "a trace tells nothing of the model: for acp-bridge write its answers into model.jsonl, "
        "or record the session by its id"
    )
    folder = into.resolve()
    with tempfile.TemporaryDirectory(prefix="acp-bridge-record-") as name:
        draft = Path(name)
        _write_input(draft, f"Recorded from {trace.name}.", made, [])
        _publish(draft, folder)
    return Report(folder, notes)


class _Recording:
    """Everything that the logs say, and the scenario's files."""

    def __init__(self, family: Family, home: Path) -> None:
        self._family = family
        self._home = home
        self._notes: list[str] = []
        self._placer = placer = Placer(family.root.header.cwd or "/", home, os.environ)
        self._calls = calls_of(family)
        placer.learn(call.arguments for call in self._calls)
        self._workspace = workspace_of(results_of(family), placer)
        self._turns = turns_of(family.root, self._notes)
        self._turns = [
            attrs.evolve(
                turn,
                prompts=tuple(map(self._blocks, turn.prompts)),
                steered=tuple(
                    attrs.evolve(one, words=self._blocks(one.words)) for one in turn.steered
                ),
            )
            for turn in self._turns
        ]
        if not _is_ours(family.root) and any(call.decision == "rejected" for call in self._calls):
            # Its rules of what to ask for are not ours, and what was rejected must be asked for.
            self._turns = [attrs.evolve(turn, mode="ask") for turn in self._turns]
            self._notes.append(
                "the other program's calls were rejected: the mode is ask throughout"
            )
        self._gates = self._gates_of_writes()
        self._turns = [self._with_gates(turn) for turn in self._turns]
        self._child_gates = _child_gates(family)
        self._flags = ["--execution", "client"] if self._has_commands else []

    @property
    def has_turns(self) -> bool:
        """Whether a user said something that was answered."""
        return bool(self._turns)

    @property
    def _has_commands(self) -> bool:
        return any(call.name == "bash" for call in self._calls)

    def write(self, folder: Path) -> None:
        """The model's script and the workspace."""
        folder.mkdir()
        gates = self._gates | {key: name for name, key, _, _ in self._child_gates}
        lines = script_of(self._family, self._placer, gates)
        script = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / "model.jsonl").write_text(script, "utf-8")
        for name, text in self._workspace.start.items():
            file = folder / "workspace" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", newline="")
        whole = {"description": "draft", "steps": [], "process": bool(self._flags)}
        (folder / "input.json").write_text(json.dumps(whole), "utf-8")

    async def relive(self, draft: Path, folder: Path) -> tuple[Place, ReliveClient]:
        """Live through the session again, in a folder of its own."""
        place = prepare(load(draft), folder)
        start = launch.bridge_process if self._flags else launch.bridge_in_memory
        entries: list[Entry] = []
        plan = Plan(
            self._turns,
            self._calls,
            self._workspace.writes,
            self._gates,
            [(name, own, count) for name, _, own, count in self._child_gates],
        )
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            agent = await start()(place, self._flags, tasks)
            wire = ScriptedClient(agent, 1, entries)
            tasks.start_soon(wire.read)
            client = ReliveClient(wire, entries, plan, self._placer, place.cwd)
            try:
                await client.live(
                    stored=partial(_stored, place.home),
                    release=partial(release, place),
                )
                await agent.end_input()
                await agent.wait_exit()
                await wire.wait_end()
            except (ScenarioError, BridgeError, TimeoutError) as error:
                failure = error
                with anyio.CancelScope(shield=True):
                    await agent.kill()
                tasks.cancel_scope.cancel()
        await agent.aclose()
        if failure is not None:
            why = "the session could not be lived through again"
            if _has_overlap(self._family):
                why += " (a prompt was sent while subagents worked, which is not carried over)"
            raise ScenarioError(f"{why}: {_last_words(str(failure))}")
        return place, client

    def write_input(self, folder: Path, place: Place, client: ReliveClient) -> None:
        """The steps of that life, with a load at the end."""
        made = steps_of(client.entries, cwd=str(place.cwd), marks=client.marks)
        session: JsonValue = {"$ref": "new.result.sessionId"}
        params: JsonObject = {"sessionId": session, "cwd": "{{cwd}}", "mcpServers": []}
        loaded: JsonObject = {"call": {"id": "load", "method": "session/load", "params": params}}
        made.steps.extend([{"restart": {}}, loaded])
        said = title(self._family.root.events) or "a session"
        _write_input(folder, f"Recorded: {self._placer.text(said)}", made, self._flags)

    def unlike(self, home: Path) -> list[str]:
        """Where a load shows something else than one of the original."""
        store = SessionStore(home / "sessions", clock=lambda: 0)
        roots = [
            one for one in store.list().sessions if store.read_header(one.session_id).origin is None
        ]
        log = store.read(roots[0].session_id)
        again = family_of(log.header.session_id, partial(_read, store, log.header.session_id))
        places = {str(log.header.cwd): "{{cwd}}", str(home): "{{home}}"}
        old = updates_of(self._family.stored, self._home, self._placer.value)
        new = updates_of(log, home, partial(named, names=places))
        return unlike(
            (obj(named(one, _labels(self._family))) for one in old),
            (obj(named(one, _labels(again))) for one in new),
        )

    def notes(self) -> list[str]:
        """What could not be carried over, or was made otherwise."""
        notes = [*self._notes, *self._workspace.notes]
        if self._placer.redacted:
            notes.append(f"what looked like a secret is [redacted], {self._placer.redacted} times")
        if self._placer.outside:
            paths = ", ".join(sorted(self._placer.outside))
            notes.append(f"outside of the workspace, so below {OUTSIDE}/ in it: {paths}")
        if self._has_commands:
            notes.append(
                "commands do not run: the client's terminal answers with what they said; files "
                "that they changed are there only as far as a later read or edit shows them"
            )
        notes += [f"subagent {one} has no log: it says nothing" for one in self._family.missing]
        root = self._family.root
        if root.header.is_seeded:
            notes.append("the session is a fork: its source's turns are played as its own")
        if long := [call.call_id for call in self._calls if "outputFile" in call.meta]:
            ids = ", ".join(long)
            notes.append(f"of commands with too much output for the log, its start is shown: {ids}")
        return list(dict.fromkeys(notes))

    def _blocks(self, prompt: Iterable[JsonValue]) -> tuple[JsonValue, ...]:
        """A prompt's blocks as a client sends them; an image comes from the store."""
        blocks: list[JsonValue] = []
        attachments = AttachmentStore(self._home / "attachments")
        for block in map(obj, prompt):
            attachment = obj(block.get("attachment"))
            data = attachments.find(str(attachment.get("attachmentId"))) if attachment else None
            if block.get("type") == "text":
                blocks.append({"type": "text", "text": self._placer.text(str(block.get("text")))})
            elif block.get("type") == "image" and data is not None:
                mime = str(attachment.get("mediaType"))
                text = base64.b64encode(data).decode()
                blocks.append({"type": "image", "mimeType": mime, "data": text})
            else:
                self._notes.append(f"a prompt's {block.get('type')} is not in the store: left out")
        return tuple(blocks) or ({"type": "text", "text": "(nothing that was kept)"},)

    def _with_gates(self, turn: Turn) -> Turn:
        """Waits in the answers that the user spoke during; what none can hold is a prompt."""
        prompts, steered = list(turn.prompts), []
        for one in turn.steered:
            asked = ("1", one.number)
            is_shared = asked in self._workspace.writes or len(self._family.logs) > 1
            if turn.is_cancelled or is_shared:
                prompts.append(one.words)
                self._notes.append(
                    f"turn {turn.ordinal} took further input while it ran; it is sent after it"
                )
                continue
            self._gates.setdefault(asked, f"said-{one.step}")
            steered.append(one)
        return attrs.evolve(turn, prompts=tuple(prompts), steered=tuple(steered))

    def _gates_of_writes(self) -> dict[tuple[str, int], str]:
        """Waits before the answers that somebody else's change came before."""
        firsts = {turn.answers[0].number for turn in self._turns if turn.answers and turn.prompts}
        gates: dict[tuple[str, int], str] = {}
        for place, number in list(self._workspace.writes):
            if place != "1":
                paths = ", ".join(self._workspace.writes.pop((place, number)))
                self._notes.append(f"{paths} changed while a subagent worked: it does not here")
            elif number not in firsts:
                gates[place, number] = f"file-{len(gates) + 1}"
        return gates


def _child_gates(family: Family) -> list[tuple[str, tuple[str, int], int, int]]:
    """Waits before subagents' last answers that came between the session's turns.

    Each is a name, the answer, the session's turns that had ended, and all turns that had.
    """
    ends = sorted(
        (event.time_ms, place)
        for place, log in family.logs.items()
        for event in own_range(log)
        if event.type == "turn/end"
    )
    starts = [event.time_ms for event in family.root.events if event.type == "turn/start"]
    found: list[tuple[int, str, int]] = []
    for place, log in family.logs.items():
        number, last = -1, 0
        for event in own_range(log) if place != "1" else []:
            if event.type in ANSWERS:
                number, last = number + 1, event.time_ms
            elif event.type == "turn/end" and number >= 0:
                found.append((last, place, number))
    gates = []
    for time_ms, place, number in sorted(found):
        own = sum(one == "1" for end, one in ends if end <= time_ms)
        if own == sum(start <= time_ms for start in starts):
            name = f"subagent-{place.replace('/', '.')}-{number + 1}"
            others = sum(end <= time_ms for end, one in ends if one != place)
            before = sum(end < time_ms for end, one in ends if one == place)
            gates.append((name, (place, number), own, others + before))
    return gates


def _has_overlap(family: Family) -> bool:
    """Whether the user sent something while a subagent had an open turn."""
    sent = [
        event.time_ms
        for event in family.root.events
        if event.type == "user/message" and obj(obj(event.data).get("source")).get("kind") == "user"
    ]
    for place, log in family.logs.items():
        start: int | None = None
        for event in own_range(log) if place != "1" else []:
            if event.type == "turn/start":
                start = event.time_ms
            elif event.type == "turn/end" and start is not None:
                if any(start < time_ms < event.time_ms for time_ms in sent):
                    return True
                start = None
    return False


def _is_ours(log: StoredLog) -> bool:
    return any(event.type.startswith("plugin:acp-bridge/") for event in log.events)


def _labels(family: Family) -> dict[str, str]:
    return {one: f"session {place}" for one, place in family.places().items()}


def _read(store: SessionStore, wanted: str, session_id: str) -> StoredLog | None:
    try:
        return store.read(session_id)
    except BridgeError:
        if session_id == wanted:
            raise
        return None


def _stored(home: Path, row: str) -> int:
    """How many rows of a type the logs of a home hold."""
    store = SessionStore(home / "sessions", clock=lambda: 0)
    return sum(
        event.type == row
        for summary in store.list().sessions
        for event in store.read(summary.session_id).events
    )


def _files(draft: Path, folder: Path, place: Path) -> Files:
    place.mkdir()
    outcome = anyio.run(played, draft, place)
    return expected_files(outcome, Shared.read(folder.parent / "_shared"))


def _heads(found: Sequence[str]) -> list[str]:
    """Where files differ, a line each: how can be read in them."""
    heads = [one.partition("\n")[0].rstrip(":")[:HEAD_CHARS_MAX] for one in found[:HEADS_MAX]]
    left = len(found) - HEADS_MAX
    return [*heads, f"and {left} more"] if left > 0 else heads


def _last_words(failure: str) -> str:
    """What went wrong, and the last messages before it."""
    head, *messages = failure.split("\n")
    return "\n".join([head, *(one[:HEAD_CHARS_MAX] for one in messages[-LAST_MESSAGES:])])


def _write_files(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, value in files.items():
        if isinstance(value, str):
            (folder / name).write_text(value, "utf-8")
        else:
            _write_files(folder / name, value)


def _write_input(folder: Path, description: str, made: Steps, flags: Iterable[str]) -> None:
    """`input.json` with a step a line, as a person would write it."""
    head: JsonObject = {"description": description}
    if flags := list(flags):
        head |= {"process": True, "flags": [*flags]}
    if made.client and made.client != {"clientCapabilities": {}}:
        head["client"] = made.client
    head["order"] = "by call"
    lines = [f"  {json.dumps(name)}: {_json(value)}," for name, value in head.items()]
    steps = ",\n".join(f"    {_json(step)}" for step in made.steps)
    text = "\n".join(["{", *lines, '  "steps": [', steps, "  ]", "}", ""])
    (folder / "input.json").write_text(text, "utf-8")


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _check_new(folder: Path) -> None:
    try:
        is_new = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    except OSError as error:
        raise _not_made(folder, error) from error
    if not is_new:
        raise InvalidParamsError(
            f"--into {folder}: this is not a new folder; name one, or empty it", field="into"
        )


def _publish(draft: Path, folder: Path) -> None:
    """Put the scenario where it is wanted, whole or not at all.

    Raises:
        InvalidParamsError: the disk refused; what was new is gone again.
    """
    was_there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(draft, folder, dirs_exist_ok=True)
    except OSError as error:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _empty(folder)  # as it was: else the next try would be refused
        raise _not_made(folder, error) from error


def _empty(folder: Path) -> None:
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)


def _not_made(folder: Path, error: OSError) -> InvalidParamsError:
    # `copytree` gathers what failed, as texts.
    why = error.strerror or "; ".join(sorted({str(one[-1]) for one in error.args[0]}))
    return InvalidParamsError(
        f"--into {folder} cannot be written: {why}; make room, or name another folder",
        field="into",
    )
