"""MCP servers without a server: names of tools, results as text, which servers a session has."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.config import McpSettings
from acp_bridge.harness.mcp.merging import CALL_S_MAX, Wanted, merged
from acp_bridge.harness.mcp.naming import server_parts, shown, tool_names
from acp_bridge.harness.mcp.results import NOTHING, text_of_result
from acp_bridge.vocabulary import HttpServer, JsonObject, StdioServer

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

NAMES = st.text(st.sampled_from("ab_-.A é/"), max_size=6) | st.text(max_size=80)


@given(st.dictionaries(NAMES, st.lists(NAMES, unique=True, max_size=4), max_size=4))
def test_names_of_tools_are_safe_and_differ(servers: dict[str, list[str]]) -> None:
    parts = server_parts(list(servers))
    names = [
        name
        for part, tools in zip(parts, servers.values(), strict=True)
        for name in tool_names(part, tools)
    ]
    assert len(set(names)) == len(names)
    assert all(NAME.fullmatch(name) for name in names), names


def test_a_plain_name_stays_as_it_is() -> None:
    [part] = server_parts(["git-hub"])
    assert tool_names(part, ["list_issues"]) == ["mcp__git-hub__list_issues"]


def test_a_name_does_not_depend_on_the_other_tools() -> None:
    [part] = server_parts(["a"])
    assert tool_names(part, ["x.y", "x y"]) == [
        *tool_names(part, ["x.y"]),
        *tool_names(part, ["x y"]),
    ]


def test_a_foreign_name_is_one_short_line_for_people() -> None:
    assert shown("a\n\x1b[31mb\u202e" + "c" * 100) == ("a [31mb " + "c" * 51 + "…")


RESULTS: list[tuple[JsonObject, str]] = [
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
    ({"content": [], "structuredContent": {"n": "ü"}}, '{"n": "ü"}'),
    ({"content": [{"type": "text", "text": "1"}], "structuredContent": {"n": 1}}, "1"),
    ({"content": []}, NOTHING),
    ({}, NOTHING),
    (
        {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}]},
        "inside",
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "u", "blob": "QUJD"}}]},
        "[resource u: bytes, about 3 bytes]",
    ),
    (
        {"content": [{"type": "resource_link", "name": "n", "uri": "file:///x"}]},
        "[resource n: file:///x]",
    ),
    (
        {"content": [{"type": "audio", "mimeType": "audio/wav", "data": "QUJD"}]},
        "[audio: audio/wav, about 3 bytes]",
    ),
    ({"content": [{"type": "hologram"}, 7]}, "[hologram]"),
]


@pytest.mark.parametrize(("result", "text"), RESULTS)
def test_a_result_is_text(result: JsonObject, text: str) -> None:
    assert text_of_result(result) == text


def test_the_clients_server_replaces_the_users_of_its_name_but_for_the_time_of_a_call() -> None:
    own = {
        "both": McpSettings(command="mine", timeout_s=600),
        "mine": McpSettings(command="run", args=("x",), env={"A": "1"}),
        "far": McpSettings(url="http://h", headers={"X": "1"}, type="sse", timeout_s=5),
        "only a time": McpSettings(timeout_s=9),
        "nobody's": McpSettings(timeout_s=9),
    }
    theirs = StdioServer("both", "theirs")
    timed = HttpServer("only a time", "http://t")
    assert merged(own, [theirs, timed, StdioServer("Both", "other")]) == [
        Wanted(theirs, 600),
        Wanted(StdioServer("mine", "run", ("x",), {"A": "1"}), CALL_S_MAX),
        Wanted(HttpServer("far", "http://h", {"X": "1"}, is_sse=True), 5),
        Wanted(timed, 9),
        Wanted(StdioServer("Both", "other"), CALL_S_MAX),
    ]
