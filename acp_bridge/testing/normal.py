"""An outcome as files that are equal on every run: the wire, the logs, what the model saw.

Session ids become ``session-1`` in the order of creation, a child's ``session-1/1``; one that was
stored before, or that an SDK client chose, stays. Other random ids become ``{{id 1}}`` by first
appearance in the file; times become 0 or ``{{time}}``; the working folder, the home and our version
become ``{{cwd}}``, ``{{home}}`` and ``{{version}}``. Each file has one JSON object a line with
sorted keys. A value that is pinned under `_shared/` is shown as ``{"$shared": name}``.
"""

import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from acp_bridge.testing.runner import Outcome
from acp_bridge.testing.transcript import Line, arr, child_of, obj, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

Files = dict[str, "str | Files"]
"""A folder's files by name; folders are dicts again."""

TIMES = {
    "childCreatedAt",
    "createdAt",
    "createdAtMs",
    "time",
    "time0",
    "dt",
    "updatedAt",
    "delayMs",
    "durationMs",
}
"""Members that hold times or durations."""

RANDOM_ID = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})\b"
)
"""A UUID with or without dashes."""

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
"""An RFC 3339 time; anything else under a time's name is shown as it is."""


_NAMING = {"session/prompt", "session/resume", "session/working-directory/get"}
"""Requests by which a client of the SDK's wire names a session."""

TEXT_CHARS_MAX = 2000
"""Longer texts show both ends, length and hash: as exact, and readable in a review."""

TEXT_CHARS_SHOWN = 300


@attrs.frozen(slots=True)
class Shared:
    """Values that several scenarios pin once, by name: ``_shared/<name>.json``."""

    values: dict[str, JsonValue]

    @classmethod
    def read(cls, folder: Path) -> "Shared":
        """Every file of ``_shared/``; none if there is no such folder."""
        return cls(
            {
                path.stem: json.loads(path.read_text("utf-8"))
                for path in sorted(folder.glob("*.json"))
            }
        )

    def name_of(self, value: JsonValue) -> str | None:
        """The name under which this very value is pinned."""
        if not value or not isinstance(value, str | list | dict):
            return None
        return next((name for name, known in self.values.items() if known == value), None)


class Normaliser:
    """Makes the values of one outcome comparable; `file` for one file at a time.

    ``ids`` are regular expressions of what else is an id that differs on every run.
    """

    def __init__(
        self,
        outcome: Outcome,
        logs: Iterable[list[JsonObject]],
        shared: Shared,
        ids: Sequence[str] = (),
    ) -> None:
        from acp_bridge import __version__

        place = outcome.place
        self.sessions = _session_labels(outcome, logs)
        self._texts = {
            **self.sessions,
            str(place.cwd): "{{cwd}}",
            str(place.home): "{{home}}",
            str(place.home.parent): "{{tmp}}",
        }
        self._version = __version__
        self._shared = shared
        self._random_id = re.compile("|".join([RANDOM_ID.pattern, *(f"(?:{one})" for one in ids)]))

    def file(self, values: Iterable[JsonValue]) -> str:
        """One JSON object a line; runs of equal lines are counted."""
        ids: dict[str, str] = {}
        lines: list[tuple[str, int]] = []
        for value in values:
            shown = _shortened(self._value(value, "", ids))
            text = json.dumps(shown, sort_keys=True, ensure_ascii=False)
            if lines and lines[-1][0] == text:
                lines[-1] = (text, lines[-1][1] + 1)
            else:
                lines.append((text, 1))
        return "".join(
            text + "\n" if times == 1 else f'{{"$line": {text}, "$times": {times}}}\n'
            for text, times in lines
        )

    def value(self, value: JsonValue) -> JsonValue:
        """One value without a file around it: for `_shared/`."""
        return self._value(value, "", {})

    def _value(self, value: JsonValue, key: str, ids: dict[str, str]) -> JsonValue:
        if key in TIMES:
            return _timeless(value)
        made: JsonValue = value
        if isinstance(value, str):
            made = self._text(value, ids)
            if key == "version" and value == self._version:
                made = "{{version}}"
        elif isinstance(value, list):
            made = [self._value(item, "", ids) for item in value]
        elif isinstance(value, dict):
            made = {name: self._value(item, name, ids) for name, item in _placed(value).items()}
        name = self._shared.name_of(made)
        return made if name is None else {"$shared": name}

    def _text(self, text: str, ids: dict[str, str]) -> str:
        for found in sorted(self._texts, key=len, reverse=True):
            text = text.replace(found, self._texts[found])

        def label(match: re.Match[str]) -> str:
            return ids.setdefault(match[0], f"{{{{id {len(ids) + 1}}}}}")

        return self._random_id.sub(label, text)


def _shortened(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    if not isinstance(value, str) or len(value) <= TEXT_CHARS_MAX:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return (
        f"{value[:TEXT_CHARS_SHOWN]}{{{{… {len(value)} characters in all, sha256 {digest} …}}}}"
        f"{value[-TEXT_CHARS_SHOWN:]}"
    )


def expected_files(outcome: Outcome, shared: Shared, ids: Sequence[str] = ()) -> Files:
    """Everything that `expected/` pins, as nested dicts for ``assert_match_dir``.

    Logs and model requests are there if the agent wrote any; ``ids`` as for `Normaliser`.
    """
    logs = stored_logs(outcome.place.home)
    normaliser = Normaliser(outcome, logs, shared, ids)
    files: Files = {"wire": _wire(outcome, normaliser)}
    if logs:
        files["sessions"] = {
            _file_name(normaliser.sessions.get(_id(log), "unknown")): normaliser.file(log)
            for log in logs
        }
    if requests := model_requests(outcome):
        files["model_requests.jsonl"] = normaliser.file(_told_once(requests))
    if changed := _changed_files(outcome):
        files["workspace.jsonl"] = normaliser.file(changed)
    return files


def stored_logs(home: Path) -> list[list[JsonObject]]:
    """Every session log below the home: its header and rows as they are on disk."""
    return [
        _json_lines(_unpacked(path))
        for path in sorted((home / "sessions").rglob("session.v*.jsonl*"))
    ]


def model_requests(outcome: Outcome) -> list[JsonObject]:
    """What the model was asked, by agent and, within one agent, in order."""
    path = outcome.place.model_requests
    found = _json_lines(path.read_bytes()) if path.exists() else []
    return sorted(found, key=lambda request: str(request.get("agent")))


def _wire(outcome: Outcome, normaliser: Normaliser) -> Files:
    """What the client got, one file a session; what concerns none is in `connection.jsonl`.

    What is told of a subagent's work on another session stands in the subagent's file: it comes
    beside what that session does, in no order of its own.
    """
    by_file: dict[str, list[JsonValue]] = defaultdict(list)
    run_of: dict[str, int] = {}
    asked: dict[str, dict[str, JsonValue]] = defaultdict(dict)
    for line in outcome.lines:
        if line.entry.to != "client":
            continue
        label = normaliser.sessions.get(_worker(line, normaliser.sessions) or line.session or "")
        name = "connection.jsonl" if label is None else _file_name(label)
        if run_of.setdefault(name, line.entry.run) != line.entry.run:
            by_file[name].append({"$run": line.entry.run})
            run_of[name] = line.entry.run
        by_file[name].append(_as_seen(line, asked[name]))
    return {name: normaliser.file(_joined(values)) for name, values in sorted(by_file.items())}


def _worker(line: Line, labels: dict[str, str]) -> str | None:
    """The subagent whose work a message tells of on another session."""
    update = line.update
    if update.get("sessionUpdate") == "subagent_update":
        return text_or_none(update.get("sessionId"))
    sender = text_or_none(update.get("senderSessionId"))
    if sender is not None and labels.get(sender, "").startswith(
        f"{labels.get(line.session or '')}/"
    ):
        return sender
    if line.method == "$/cancel_request":
        return child_of(obj(obj(line.withdrawn).get("params")))
    return child_of(update) or child_of(line.params)


def _as_seen(line: Line, asked: dict[str, JsonValue]) -> JsonObject:
    """The message without ``jsonrpc``; the agent's own request ids count up in each file."""
    message = {key: value for key, value in line.message.items() if key != "jsonrpc"}
    if line.kind == "request":
        message["id"] = asked.setdefault(repr(message["id"]), f"ask-{len(asked) + 1}")
    if line.method == "$/cancel_request":
        request_id = obj(message.get("params")).get("requestId")
        message["params"] = {"requestId": asked.get(repr(request_id), request_id)}
    return message


def _joined(values: list[JsonValue]) -> list[JsonValue]:
    """The values with runs of live command output joined, since a pipe cuts it anywhere."""
    made: list[JsonValue] = []
    for value in values:
        before = _output(made[-1]) if made else None
        now = _output(value)
        if before is None or now is None or before[0] != now[0]:
            made.append(value)
            continue
        joined: JsonValue = json.loads(json.dumps(made[-1]))
        obj(obj(obj(obj(obj(joined)["params"])["update"])["_meta"])["terminal_output"])["data"] = (
            before[1] + now[1]
        )
        made[-1] = joined
    return made


def _output(value: JsonValue) -> tuple[str, str] | None:
    """Terminal and text of an update that brings nothing but a display terminal's output."""
    update = obj(obj(obj(value).get("params")).get("update"))
    output = obj(obj(update.get("_meta")).get("terminal_output"))
    data = text_or_none(output.get("data"))
    if data is None or set(update) - {"sessionUpdate", "toolCallId", "status", "_meta"}:
        return None
    return str(output.get("terminal_id")), data


def _told_once(requests: list[JsonObject]) -> list[JsonValue]:
    """The requests with the messages that the agent's last one already had counted, not shown."""
    told: dict[JsonValue, list[JsonValue]] = {}
    made: list[JsonValue] = []
    for request in requests:
        agent = str(request.get("agent"))
        messages = arr(request.get("messages"))
        before = told.get(agent, [])
        if before and messages[: len(before)] == before:
            shown: list[JsonValue] = [{"$same": len(before)}, *messages[len(before) :]]
            made.append({**request, "messages": shown})
        else:
            made.append(request)
        told[agent] = messages
    return made


def _changed_files(outcome: Outcome) -> list[JsonValue]:
    """Files of the working folder that the scenario made, changed or removed."""
    start = _files(outcome.scenario.folder / "workspace")
    now = _files(outcome.place.cwd)
    changed: list[JsonValue] = []
    for path in sorted(set(start) | set(now)):
        if path not in now:
            changed.append({"path": path, "removed": True})
        elif start.get(path) != now[path]:
            changed.append({"path": path, "text": now[path].decode("utf-8", "backslashreplace")})
    return changed


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _session_labels(outcome: Outcome, logs: Iterable[list[JsonObject]]) -> dict[str, str]:
    """Session ids by lineage: roots as the client saw them made, children in order of creation."""
    labels: dict[str, str] = {}
    naming = _NAMING if outcome.scenario.wire == "sdk" else ()
    for line in outcome.lines:
        if line.kind == "response" and line.method in {"session/new", "session/fork"}:
            made = text_or_none(obj(line.message.get("result")).get("sessionId"))
            if made is not None:
                labels.setdefault(made, f"session-{len(labels) + 1}")
        elif line.kind == "request" and line.method in naming and line.session is not None:
            labels.setdefault(line.session, line.session)
    known = [log[0] for log in logs if log]
    roots = [header for header in known if header.get("origin") != "subagent"]
    for header in sorted(roots, key=lambda header: str(header.get("createdAt"))):
        name = str(header.get("id"))
        # One that the agent made by itself, as by a command, was seen made by nobody.
        label = f"session-{len(labels) + 1}" if RANDOM_ID.fullmatch(name) else name
        labels.setdefault(name, label)
    headers = sorted(
        (header for header in known if header.get("origin") == "subagent"),
        key=lambda header: (header.get("delegationDepth"), header.get("createdAt")),
    )
    children: dict[str, int] = defaultdict(int)
    for header in headers:
        parent = labels.get(str(header.get("parentSession")), "session-unknown")
        children[parent] += 1
        labels[str(header.get("id"))] = f"{parent}/{children[parent]}"
    return labels


def _id(log: list[JsonObject]) -> str:
    return str(log[0].get("id")) if log else ""


def _file_name(label: str) -> str:
    return label.removeprefix("session-").replace("/", "-") + ".jsonl"


def _placed(value: JsonObject) -> JsonObject:
    """A stored resource's span from 0: where it starts depends on how long our paths are."""
    start, end = value.get("start"), value.get("end")
    if "uri" in value and isinstance(start, int) and isinstance(end, int):
        return {**value, "start": 0, "end": end - start}
    return value


def _timeless(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return INSTANT.sub("{{time}}", value)
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _unpacked(path: Path) -> bytes:
    if not path.name.endswith(".zstd"):
        return path.read_bytes()
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(
        io.BytesIO(path.read_bytes()), read_across_frames=True
    )
    return reader.read()


def _json_lines(data: bytes) -> list[JsonObject]:
    return [json.loads(line) for line in data.split(b"\n") if line]
