"""The generated types against the pinned schema, the examples, and the Python SDK's models."""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs
import jsonschema
import pytest
from acp import schema as sdk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.acp import base, generate, hello_types, schema_files, types
from acp_bridge.acp.agent_side import METHODS
from acp_bridge.acp.converter import structure, unstructure
from acp_bridge.vocabulary import JsonObject

EXAMPLES: dict[str, list[JsonObject]] = json.loads(
    Path(__file__).with_name("examples.json").read_text(encoding="utf-8")
)
PAIRS = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
PAIR_IDS = [
    f"{name}-{example.get('sessionUpdate', index)}" for index, (name, example) in enumerate(PAIRS)
]
UNSTABLE_TAGS = generate.UNSTABLE_TAGS["SessionUpdate"]


def module_with(name: str) -> ModuleType:
    return types if hasattr(types, name) else hello_types


def classes() -> list[type[Any]]:
    found = [*vars(types).values(), *vars(hello_types).values()]
    return [cls for cls in found if isinstance(cls, type) and attrs.has(cls)]


@cache
def definitions(which: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_files()[which].read_text(encoding="utf-8"))["$defs"]
    return loaded


@cache
def validator(name: str, which: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions(which)})


def schema_of(name: str, wire: JsonObject) -> jsonschema.Draft202012Validator:
    """The official schema, stable wherever that knows the definition and the kind of update."""
    update = wire.get("update", wire)
    assert isinstance(update, dict)
    is_stable = name in definitions("stable") and update.get("sessionUpdate") not in UNSTABLE_TAGS
    return validator(name, "stable" if is_stable else "unstable")


# --- generation --------------------------------------------------------------------------------


@pytest.mark.parametrize("module", generate.MODULES)
def test_the_generated_modules_are_up_to_date(module: str) -> None:
    path = Path(generate.__file__).with_name(f"{module}.py")
    assert path.read_text(encoding="utf-8") == generate.generate()[module], generate.COMMAND


def test_check_tells_by_its_exit_code_whether_the_modules_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"]) == 0
    fresh = generate.generate()
    monkeypatch.setattr(generate, "generate", lambda: {**fresh, "types": fresh["types"] + "\n"})
    assert generate.main(["--check"]) == 1
    assert "types.py out of date" in capsys.readouterr().err


def test_every_wire_name_is_derived_from_its_attribute_by_rule() -> None:
    from acp_bridge.acp.converter import wire_name

    for definition in definitions("unstable").values():
        for wire in definition.get("properties", {}):
            assert wire_name(generate.snake_case(wire)) == wire


def test_the_schema_folder_holds_its_licence_and_version() -> None:
    folder = schema_files()["stable"].parent
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")
    version = (folder / "VERSION").read_text(encoding="utf-8").strip()
    assert f"schema {version}" in (types.__doc__ or "")


PINNED = {
    "stable": "0d0b1ca83c4872e5473f68926a894c7a8203b59b118e2a79bfe43dd76fbcbc1a",
    "unstable": "ce7881d10c854bcac4f0e7d3a9ce4fb0f612ec0a09e64b572940beec4668c189",
}
"""SHA-256 of the files as they are in the release that VERSION names."""


@pytest.mark.parametrize("which", PINNED)
def test_the_pinned_schema_is_upstream_byte_for_byte(which: str) -> None:
    assert hashlib.sha256(schema_files()[which].read_bytes()).hexdigest() == PINNED[which]


def test_no_leniency_of_the_schema_is_without_a_fallback() -> None:
    for cls in classes():
        lenient = module_with(cls.__name__).LENIENT.get(cls.__name__, {})
        for name, flags in lenient.items():
            field = getattr(attrs.fields(cls), name)
            is_list = get_origin(field.type) is list
            assert field.default is not attrs.NOTHING or is_list, (cls, name)
            assert (
                is_list or "s" not in flags or list in [get_origin(a) for a in get_args(field.type)]
            )


# --- examples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "wire"), PAIRS, ids=PAIR_IDS)
def test_an_example_is_valid_and_written_back_as_it_was(name: str, wire: JsonObject) -> None:
    schema_of(name, wire).validate(wire)
    value = structure(wire, getattr(module_with(name), name))
    assert not isinstance(value, base.Unknown)
    assert unstructure(value) == wire


def values_in(value: Any) -> Iterator[Any]:
    yield value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from values_in(getattr(value, field.name))
    elif isinstance(value, list):
        for item in value:
            yield from values_in(item)


def test_the_examples_reach_every_union_member_and_nearly_every_class() -> None:
    reached = set()
    for name, wire in PAIRS:
        value = structure(wire, getattr(module_with(name), name))
        reached |= {type(inner) for inner in values_in(value)}
    assert base.Unknown not in reached
    missing = {cls.__name__ for cls in classes()} - {cls.__name__ for cls in reached}
    # Empty objects that say "supported" by being there; the property tests build them.
    assert all(name.endswith("Capabilities") for name in missing), missing


def test_every_method_that_is_served_or_called_has_examples_of_both_directions() -> None:
    for wire, method in METHODS.items():
        request = method.params or "InitializeRequest"
        assert EXAMPLES[request], wire
        if not method.is_notification:
            assert EXAMPLES[request.replace("Request", "Response")], wire
    roots = {root for module in generate.MODULES.values() for root in module}
    assert roots <= EXAMPLES.keys()


def test_every_method_has_the_types_that_the_schema_gives_it() -> None:
    by_method = {
        definition["x-method"]: name
        for schema in ("unstable", "stable")  # the stable one has the last word
        for name, definition in definitions(schema).items()
        if definition.get("x-side") == "agent" and not name.endswith("Response")
    }
    by_method["_session/steering"] = by_method["session/prompt"]  # the one that is not ACP's
    for wire, method in METHODS.items():
        assert by_method[wire] == (method.params or "InitializeRequest")


SDK_UNKNOWN_KINDS = {
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
    "subagent_update",
    "session_message",
    "session_message_chunk",
}
"""Kinds of updates that are younger than the SDK's schema."""


@pytest.mark.parametrize(("name", "wire"), PAIRS, ids=PAIR_IDS)
def test_the_python_sdk_reads_the_examples_as_we_do(name: str, wire: JsonObject) -> None:
    kind = wire.get("sessionUpdate")
    if name == "SessionUpdate":
        if kind in SDK_UNKNOWN_KINDS:
            return
        # The SDK's schema is older than the tool's name on a tool call, too.
        wire = {key: value for key, value in wire.items() if (kind, key) != ("tool_call", "name")}
        name, wire = "SessionNotification", {"sessionId": "s", "update": wire}
    if name == "SetSessionConfigOptionRequest":
        is_boolean = wire.get("type") == "boolean"
        name = f"SetSessionConfigOption{'Boolean' if is_boolean else 'Select'}Request"
    # As it is than a client's system prompt.
    wire = {key: value for key, value in wire.items() if key != "systemPrompt"}
    model = getattr(sdk, name)
    dumped = model.model_validate(wire).model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert dumped == wire


def test_the_python_sdk_does_not_know_more_kinds_than_we_think() -> None:
    known = json.dumps(sdk.SessionNotification.model_json_schema())
    for kind in types.UNIONS["SessionUpdate"][1]:
        assert (f'"{kind}"' in known) == (kind not in SDK_UNKNOWN_KINDS)


# --- properties --------------------------------------------------------------------------------

TEXTS = st.text(min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
SCALARS: dict[object, st.SearchStrategy[Any]] = {
    str: TEXTS,
    bool: st.booleans(),
    int: st.integers(-(2**31), 2**31 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    dict: st.dictionaries(TEXTS, JSON, max_size=2),
    Any: JSON,
    NoneType: st.none(),
    base.Unset: st.just(base.UNSET),
    base.Unknown: st.nothing(),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Every value that an annotation allows."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if attrs.has(annotation):
        return instances_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return st.integers(arguments[1].lowest, arguments[1].highest)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(arguments[1]), max_size=2)
    assert origin in (Union, UnionType)
    return st.one_of(*map(values_of, arguments))


def instances_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.deferred(
        lambda: st.builds(cls, **{f.name: values_of(f.type) for f in attrs.fields(cls)})
    )


def definition_of(cls: type[Any]) -> str:
    """The schema definition that an instance's JSON must meet: its union's, if it has a tag."""
    for union, (_, members, _) in module_with(cls.__name__).UNIONS.items():
        if cls in members.values():
            return str(union)
    return "ToolCallUpdate" if cls is types.PermissionToolCall else cls.__name__


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_instances_are_written_validly_and_survive_the_way_back(
    cls: type[Any], data: st.DataObject
) -> None:
    value = data.draw(instances_of(cls))
    written = unstructure(value)
    assert structure(json.loads(json.dumps(written)), cls) == value
    schema_of(definition_of(cls), written).validate(written)
