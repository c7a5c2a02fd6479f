"""A scenario's `input.json` as typed steps, and how values in it refer to what came before.

A step is an object with one key. `call` sends a request and waits for its answer; `request` only
sends it; `notify` sends a notification; `await` waits for a response, an update, a client request,
any notification, rows in the store, or a file in the workspace; ``gives`` says what a response must
hold whatever `expected/` says; `answer` answers an awaited client request; `release` lets a
scripted model's wait go on; `write` changes a file as the user would; `fork` forks a session in the
store; `restart` closes stdin, waits for the exit and starts again on the same home; `kill` does so
without a warning. ``"wire": "sdk"`` beside the steps plays them over the SDK's wire instead of ACP.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from acp_bridge.testing.launch import Wire
from acp_bridge.testing.transcript import arr, at, obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue


@attrs.frozen(slots=True)
class Request:
    """Send a request; with ``wait`` also await its response, which must hold ``gives``."""

    request_id: str
    method: str
    params: JsonValue
    wait: bool
    gives: JsonObject


@attrs.frozen(slots=True)
class Notify:
    """Send a notification."""

    method: str
    params: JsonValue


@attrs.frozen(slots=True)
class AwaitResponse:
    """Wait for the answer to a request, which must hold ``gives``."""

    request_id: str
    gives: JsonObject


@attrs.frozen(slots=True)
class AwaitUpdate:
    """Wait for the next update that holds ``partial``, after the last one awaited there."""

    partial: JsonObject
    session: JsonValue


@attrs.frozen(slots=True)
class AwaitNotification:
    """Wait for the next notification that holds ``partial``, after the last one awaited so."""

    partial: JsonObject


@attrs.frozen(slots=True)
class AwaitRow:
    """Wait until the logs of the store hold so many rows like ``partial``, all sessions together.

    What a session does while subagents work for it, such as to end a turn, shows on no wire.
    """

    partial: JsonObject
    times: int


@attrs.frozen(slots=True)
class AwaitFile:
    """Wait until a file is there below the working folder: what other programs do shows so."""

    path: str


@attrs.frozen(slots=True)
class AwaitRequest:
    """Wait for an unclaimed client request that holds ``partial``; later steps know it by name."""

    name: str
    partial: JsonObject


@attrs.frozen(slots=True)
class Answer:
    """Answer a claimed client request: a whole ``reply`` or the option of the kind ``choose``."""

    to: str
    reply: JsonObject
    choose: str | None


@attrs.frozen(slots=True)
class Release:
    """Let the scripted model's ``{"wait": name}`` go on."""

    name: str


@attrs.frozen(slots=True)
class WriteFile:
    """Write a file below the working folder, as a user with an editor would."""

    path: str
    text: str


@attrs.frozen(slots=True)
class Fork:
    """Fork a stored session; ``historical`` as programs once did, naming the source as parent."""

    of: str
    name: str
    historical: bool


@attrs.frozen(slots=True)
class Stop:
    """End the agent, start it again: after EOF, or by SIGKILL."""

    how: Literal["restart", "kill"]


Step: TypeAlias = (
    Request
    | Notify
    | AwaitResponse
    | AwaitUpdate
    | AwaitNotification
    | AwaitRow
    | AwaitFile
    | AwaitRequest
    | Answer
    | Release
    | WriteFile
    | Fork
    | Stop
)


@attrs.frozen(slots=True)
class Scenario:
    """One folder's input. ``client`` is what `initialize` gets; None: the steps send their own."""

    folder: Path
    description: str
    client: JsonObject | None
    process: bool
    flags: tuple[str, ...]
    steps: tuple[Step, ...]
    wire: Wire = "acp"


_MEMBERS = {"description", "client", "initialize", "process", "flags", "steps", "wire"}


def load(folder: Path) -> Scenario:
    """Read ``folder/input.json``.

    Raises:
        ValueError: it is no scenario; the text names the folder and the step.
    """
    try:
        value: JsonValue = json.loads((folder / "input.json").read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{folder.name}/input.json cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder.name}/input.json is no JSON: {error}") from error
    whole = obj(value)
    if extra := set(whole) - _MEMBERS:
        raise ValueError(f"{folder.name}/input.json has unknown members: {sorted(extra)}")
    description = text_or_none(whole.get("description"))
    if not description:
        raise ValueError(f"{folder.name}/input.json needs a description")
    wire = whole.get("wire", "acp")
    if wire not in {"acp", "sdk"}:
        raise ValueError(f"{folder.name}/input.json has an unknown wire: {wire!r}")
    client = obj(whole.get("client")) if whole.get("initialize", True) else None
    return Scenario(
        folder=folder,
        description=description,
        client=client,
        process=whole.get("process") is True,
        flags=tuple(str(flag) for flag in arr(whole.get("flags"))),
        steps=tuple(
            _step(folder.name, number, obj(step))
            for number, step in enumerate(arr(whole.get("steps")), start=1)
        ),
        wire="sdk" if wire == "sdk" else "acp",
    )


def folders(root: Path) -> list[Path]:
    """The scenario folders below ``root``, by name; `_shared` is none."""
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "_.")


def orphans(root: Path) -> list[str]:
    """Whatever lies below ``root`` that no scenario reads or pins, as paths relative to it."""
    known = {"input.json", "model.jsonl", "sessions", "workspace", "expected"}
    found = [path.name for path in root.iterdir() if path.is_file() and path.name[0] != "."]
    for folder in folders(root):
        if not (folder / "input.json").is_file():
            found.append(folder.name)
        found += [
            f"{folder.name}/{path.name}" for path in folder.iterdir() if path.name not in known
        ]
    return sorted(found)


def resolve(value: JsonValue, results: JsonObject, variables: dict[str, str]) -> JsonValue:
    """The value with each ``{"$ref": "p1.result.x"}`` and ``{{name}}`` replaced.

    Raises:
        KeyError: a reference names nothing that came before.
    """
    if isinstance(value, str):
        for name, text in variables.items():
            value = value.replace("{{" + name + "}}", text)
        return value
    if isinstance(value, list):
        return [resolve(item, results, variables) for item in value]
    if isinstance(value, dict):
        if set(value) == {"$ref"}:
            return at(results, str(value["$ref"]))
        return {key: resolve(item, results, variables) for key, item in value.items()}
    return value


def holds(value: JsonValue, partial: JsonValue) -> bool:
    """Whether ``value`` has all that ``partial`` has; of a list, its first items."""
    if isinstance(partial, dict):
        return isinstance(value, dict) and all(
            key in value and holds(value[key], wanted) for key, wanted in partial.items()
        )
    if isinstance(partial, list):
        return (
            isinstance(value, list)
            and len(value) >= len(partial)
            and all(map(holds, value, partial))
        )
    return value == partial


def _step(folder: str, number: int, step: JsonObject) -> Step:
    where = f"{folder}/input.json, step {number}"
    if len(step) != 1:
        raise ValueError(f"{where}: a step has exactly one key, not {sorted(step)}")
    (word, value), *_ = step.items()
    make = _STEPS.get(word)
    if make is None:
        raise ValueError(f"{where}: unknown step {word!r}; known are {', '.join(_STEPS)}")
    try:
        return make(value)
    except KeyError as missing:
        raise ValueError(f"{where}: {word!r} needs the member {missing}") from None


def _call(value: JsonValue) -> Request:
    return attrs.evolve(_request(value), wait=True)


def _request(value: JsonValue) -> Request:
    members = obj(value)
    return Request(
        request_id=str(members["id"]),
        method=str(members["method"]),
        params=members.get("params", {}),
        wait=False,
        gives=obj(members.get("gives")),
    )


def _notify(value: JsonValue) -> Notify:
    members = obj(value)
    return Notify(str(members["method"]), members.get("params", {}))


def _await(value: JsonValue) -> Step:
    members = obj(value)
    if "response" in members:
        return AwaitResponse(str(members["response"]), obj(members.get("gives")))
    if "request" in members:
        return AwaitRequest(str(members["as"]), obj(members["request"]))
    if "notification" in members:
        return AwaitNotification(obj(members["notification"]))
    if "row" in members:
        return AwaitRow(obj(members["row"]), int(str(members.get("times", 1))))
    if "file" in members:
        return AwaitFile(str(members["file"]))
    return AwaitUpdate(obj(members["update"]), members.get("session"))


def _answer(value: JsonValue) -> Answer:
    members = obj(value)
    reply: JsonObject = {key: members[key] for key in ("result", "error") if key in members}
    choose = text_or_none(members.get("choose"))
    if not reply and choose is None:
        raise KeyError("result, error or choose")
    return Answer(str(members["to"]), reply, choose)


def _write(value: JsonValue) -> WriteFile:
    members = obj(value)
    return WriteFile(str(members["path"]), str(members["text"]))


def _fork(value: JsonValue) -> Fork:
    members = obj(value)
    return Fork(str(members["of"]), str(members["as"]), members.get("historical") is True)


_STEPS: dict[str, Callable[[JsonValue], Step]] = {
    "call": _call,
    "request": _request,
    "notify": _notify,
    "await": _await,
    "answer": _answer,
    "release": lambda value: Release(str(value)),
    "write": _write,
    "fork": _fork,
    "restart": lambda _: Stop("restart"),
    "kill": lambda _: Stop("kill"),
}
