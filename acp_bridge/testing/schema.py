"""Every message of a transcript against the official ACP JSON schema, responses by their method.

The schema allows members that it does not name; we do not send any outside ``_meta``, so our own
check closes every object that the schema describes (`strict`). That of other agents does not.
"""

import json
from collections.abc import Iterable
from typing import Literal, Protocol

from acp_bridge.testing.transcript import Entry, Line, arr, obj, read, text_or_none
from acp_bridge.vocabulary import JsonObject, JsonValue

PROBLEMS_MAX = 20
"""How many problems one check reports; the first few say enough."""

_SUFFIXES = {"request": "Request", "notification": "Notification", "response": "Response"}
_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "properties")


class _Validator(Protocol):
    def iter_errors(self, instance: JsonValue) -> Iterable["_Fault"]: ...


class _Fault(Protocol):
    message: str
    json_path: str


class SchemaCheck:
    """Validators for every method of one schema document, made when first used."""

    def __init__(self, document: JsonObject, *, closed: bool = True) -> None:
        self._closed = closed
        self._defs = {
            name: strict(obj(schema)) if closed else schema
            for name, schema in obj(document["$defs"]).items()
        }
        self._names: dict[tuple[str, str], str] = {}
        for name, schema in obj(document["$defs"]).items():
            method = text_or_none(obj(schema).get("x-method"))
            for kind, suffix in _SUFFIXES.items():
                if method is not None and name.endswith(suffix):
                    self._names[kind, method] = name
        self._validators: dict[str, _Validator] = {}

    def problems(self, line: Line) -> list[str]:
        """What is wrong with one message; [] for extension methods and error responses' data."""
        message = line.message
        if message.get("jsonrpc") != "2.0":
            return ['no "jsonrpc": "2.0"']
        if line.kind == "response":
            return self._response_problems(line)
        if line.method.startswith("_"):
            return []
        return self._body_problems(line.kind, line.method, message.get("params"))

    def _response_problems(self, line: Line) -> list[str]:
        message = line.message
        if line.request is None:
            return (
                [] if line.entry.to == "agent" else [f"answers no request: {message.get('id')!r}"]
            )
        if set(message) - {"jsonrpc", "id", "result", "error"}:
            return [f"unknown members: {sorted(message)}"]
        if ("result" in message) == ("error" in message):
            return ["a response has either a result or an error"]
        if "error" in message:
            return self._faults("Error", message["error"])
        if line.method.startswith("_"):
            return []
        return self._body_problems("response", line.method, message["result"])

    def _body_problems(
        self, kind: Literal["request", "notification", "response"], method: str, body: JsonValue
    ) -> list[str]:
        name = self._names.get((kind, method))
        if name is None:
            return [f"the schema knows no {kind} {method!r}"]
        return self._faults(name, body)

    def _faults(self, name: str, body: JsonValue) -> list[str]:
        validator = self._validators.get(name)
        if validator is None:
            validator = self._validators[name] = self._make(name)
        return [
            f"{fault.json_path}: {fault.message[:300]}" for fault in validator.iter_errors(body)
        ]

    def _make(self, name: str) -> _Validator:
        try:
            from jsonschema import Draft202012Validator
        except ImportError:
            raise RuntimeError(
                "Checking ACP messages needs jsonschema: pip install 'harness-acp-bridge[testing]'"
            ) from None
        wanted: JsonObject = {"$ref": f"#/$defs/{name}"}
        made: _Validator = Draft202012Validator(
            (strict(wanted, closed=True) if self._closed else wanted) | {"$defs": self._defs}
        )
        return made


def strict(schema: JsonObject, *, closed: bool = False) -> JsonObject:
    """The schema with every described object below it closed to members it does not name.

    Closing happens where a value is used (a property, an item), never inside what `allOf` and
    `oneOf` put together, so that each part still sees only its own members. ``closed``: this
    schema itself is such a use.
    """
    made: JsonObject = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: strict(obj(part), closed=True) for name, part in obj(value).items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            made[key] = strict(value, closed=True)
        elif key in {"allOf", "anyOf", "oneOf"}:
            made[key] = [strict(obj(part)) for part in arr(value)]
        else:
            made[key] = value
    if closed and any(key in schema for key in _IN_PLACE):
        made.setdefault("unevaluatedProperties", False)
    return made


def schema_problems(
    entries: Iterable[Entry], check: SchemaCheck, *, to: Literal["client", "both"] = "client"
) -> list[str]:
    """Each message that does not fit, as a sentence with its place; at most `PROBLEMS_MAX`."""
    found = []
    for number, line in enumerate(read(entries), start=1):
        if to not in ("both", line.entry.to):
            continue
        shown = json.dumps(line.message, ensure_ascii=False)[:300]
        found += [
            f"message {number} ({line.kind} {line.method}): {problem}\n    {shown}"
            for problem in check.problems(line)
        ]
    return found[:PROBLEMS_MAX]
