"""Arguments from a model's raw text, and the schemas that they must fit."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.harness.tools import (
    asking_tools,
    builtin_tools,
    check_arguments,
    invalid_arguments,
    parse_arguments,
)

SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "dsh_tool_schemas.json").read_text("utf-8")
)

LEFT_OUT = {
    "bash": ["run_in_background", "sandbox_permissions", "justification"],
    "edit": ["sandbox_permissions", "justification"],
    "write": ["sandbox_permissions", "justification"],
}
"""What the real runtime's tools take and ours do not: there are no jobs and no sandbox here."""

TOOLS = {tool.name: tool for tool in (*builtin_tools(), *asking_tools())}


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {key: without_descriptions(value) for key, value in schema.items()}
    if isinstance(bare.get("description"), str):
        del bare["description"]
    return bare


def test_the_tools_are_those_of_the_real_runtime_that_we_have() -> None:
    assert set(TOOLS) == set(SCHEMAS)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_is_that_of_the_real_runtime_but_for_the_listed_properties(name: str) -> None:
    expected = deepcopy(SCHEMAS[name])
    for left_out in LEFT_OUT.get(name, []):
        del expected["properties"][left_out]
    assert without_descriptions(TOOLS[name].parameters) == expected


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_property_but_a_status_is_described(name: str) -> None:
    properties: Any = TOOLS[name].parameters["properties"]
    assert all(rule["description"] for rule in properties.values())
    assert 50 < len(TOOLS[name].description) < 700


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  \n", {}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "ü"}', {"a": "ü"}),
    ],
)
def test_good_raw_text_becomes_an_object(raw: str, value: object) -> None:
    assert parse_arguments(raw) == value


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"a": 1', "not valid JSON at character 7 of 7"),
        ("[1]", "must be a JSON object, not an array"),
        ('"x"', "must be a JSON object, not a string"),
        ("null", "must be a JSON object, not null"),
        ("true", "must be a JSON object, not a boolean"),
        ("7", "must be a JSON object, not a number"),
        ('{"a": NaN}', "not valid JSON: a number or the nesting is out of range"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON: a number or the nesting is out of range"),
        ("[" * 200_000, "not valid JSON: a number or the nesting is out of range"),
        ('{"a": "\\ud83d"}', "a string holds half of a surrogate pair"),
        ('{"\\udc00": 1}', "a string holds half of a surrogate pair"),
        ('{"a": "\ud83d"}', "a string holds half of a surrogate pair"),
    ],
)
def test_bad_raw_text_is_told_and_never_raises(raw: str, problem: str) -> None:
    told = parse_arguments(raw)
    assert isinstance(told, str)
    assert told.startswith(problem)


@given(st.text())
def test_any_raw_text_gives_an_object_or_a_sentence(raw: str) -> None:
    assert isinstance(parse_arguments(raw), dict | str)


def test_the_result_of_bad_arguments_reads_as_in_the_real_runtime() -> None:
    result = check_arguments(TOOLS["bash"].parameters, {"command": "ls"})
    assert result is not None
    assert result.text == 'Error: invalid arguments: missing required property "description"'
    assert result.is_error
    assert (result.error_name, result.error_code) == ("ToolArgsError", "INVALID_ARGS")
    assert result == invalid_arguments('missing required property "description"')


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("read", {"file_path": 1}, 'property "file_path" must be a string, not a number'),
        (
            "read",
            {"file_path": None},
            'property "file_path" must be a string, not null',
        ),
        (
            "read",
            {"file_path": "a", "offset": "3"},
            'property "offset" must be a number, not a string',
        ),
        (
            "read",
            {"file_path": "a", "offset": True},
            'property "offset" must be a number, not a boolean',
        ),
        (
            "read",
            {"file_path": "a", "offset": float("inf")},
            'property "offset" must be a number, not a number',
        ),
        (
            "edit",
            {"file_path": "a", "old_string": "a", "new_string": "b", "replace_all": 1},
            'property "replace_all" must be a boolean, not a number',
        ),
        ("todo_write", {"todos": {}}, 'property "todos" must be an array, not an object'),
        ("todo_write", {"todos": ["x"]}, 'property "todos[0]" must be an object, not a string'),
        (
            "todo_write",
            {"todos": [{"content": "a", "status": "pending"}, {"content": "a"}]},
            'missing required property "todos[1].status"',
        ),
        (
            "todo_write",
            {"todos": [{"content": "a", "status": "done"}]},
            'property "todos[0].status" must be one of "pending", "in_progress", "completed"',
        ),
    ],
)
def test_arguments_that_do_not_fit_name_the_place(name: str, arguments: Any, problem: str) -> None:
    result = check_arguments(TOOLS[name].parameters, arguments)
    assert result is not None
    assert result.text == f"Error: invalid arguments: {problem}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "a"},
        {"file_path": "a", "offset": None, "limit": 3.0},
        {"file_path": "a", "unknown": 1},
        {"file_path": "a", "offset": 10**400},
    ],
)
def test_arguments_that_fit_pass(arguments: Any) -> None:
    assert check_arguments(TOOLS["read"].parameters, arguments) is None
