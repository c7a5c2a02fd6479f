"""What the converter forgives, refuses, keeps and omits."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_bridge.acp import types
from acp_bridge.acp.base import UNSET, Unknown
from acp_bridge.acp.converter import structure, unstructure, warm_up
from acp_bridge.acp.hello_types import InitializeRequest, InitializeResponse
from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import JsonObject, JsonValue


def refusal(params: JsonValue, wanted: Any) -> InvalidParamsError:
    with pytest.raises(InvalidParamsError) as caught:
        structure(params, wanted)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def prompt(*blocks: JsonValue) -> JsonObject:
    return {"sessionId": "s", "prompt": list(blocks)}


# --- what is refused, and how the sentence reads -----------------------------------------------

REFUSED: list[tuple[Any, JsonValue, str, str]] = [
    (types.NewSessionRequest, {}, "cwd", "`cwd` is missing: it must be a string."),
    (types.NewSessionRequest, {"cwd": None}, "cwd", "`cwd` must be a string, not null."),
    (types.NewSessionRequest, {"cwd": 3}, "cwd", "`cwd` must be a string, not the number 3."),
    (types.NewSessionRequest, [], "params", "`params` must be an object, not an array."),
    (types.NewSessionRequest, "x", "params", "`params` must be an object, not a string."),
    (
        types.NewSessionRequest,
        {"cwd": "/", "mcpServers": {}},
        "mcpServers",
        "`mcpServers` must be an array, not an object.",
    ),
    (
        types.NewSessionRequest,
        {"cwd": "/", "mcpServers": [{"name": "a", "command": "b", "env": []}]},
        "mcpServers[0].args",
        "`mcpServers[0].args` is missing: it must be an array.",
    ),
    (
        types.NewSessionRequest,
        {
            "cwd": "/",
            "mcpServers": [{"name": "a", "command": "b", "args": [], "env": [{"name": "A"}]}],
        },
        "mcpServers[0].env[0].value",
        "`mcpServers[0].env[0].value` is missing: it must be a string.",
    ),
    (
        types.PromptRequest,
        prompt({"type": "text", "text": "x"}, {"type": "text"}),
        "prompt[1].text",
        "`prompt[1].text` is missing: it must be a string.",
    ),
    (
        types.PromptRequest,
        prompt({"type": "text", "text": "x"}, {"text": "x"}),
        "prompt[1].type",
        "`prompt[1].type` is missing: it must be a string.",
    ),
    (
        types.PromptRequest,
        prompt({"type": 1}),
        "prompt[0].type",
        "`prompt[0].type` must be a string, not the number 1.",
    ),
    (
        types.PromptRequest,
        prompt("x"),
        "prompt[0]",
        "`prompt[0]` must be an object, not a string.",
    ),
    (
        types.PromptRequest,
        prompt({"type": "resource", "resource": {"uri": "u"}}),
        "prompt[0].resource",
        "`prompt[0].resource` must be an object with `text` or `blob`, not an object.",
    ),
    (
        types.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": "yes"},
        "value",
        "`value` must be a boolean, not a string.",
    ),
    (
        types.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "value": True},
        "value",
        "`value` must be a string, not a boolean.",
    ),
    (
        types.PlanEntry,
        {"content": "c", "priority": "urgent", "status": "pending"},
        "priority",
        '`priority` must be one of "high", "medium", "low", not a string.',
    ),
    (
        types.UsageUpdate,
        {"used": -1, "size": 1},
        "used",
        "`used` must be an integer from 0 to 18446744073709551615, not the number -1.",
    ),
    (
        types.Cost,
        {"amount": True, "currency": "USD"},
        "amount",
        "`amount` must be a number, not a boolean.",
    ),
    (
        types.Error,
        {"code": 1.0, "message": "m"},
        "code",
        "`code` must be an integer, not the number 1.0.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "params", "field", "sentence"), REFUSED)
def test_a_refusal_names_the_field_and_what_it_must_be(
    wanted: Any, params: JsonValue, field: str, sentence: str
) -> None:
    error = refusal(params, wanted)
    assert error.data() == {"field": field, "details": sentence}


def test_a_refusal_shows_no_string_that_a_client_sent() -> None:
    error = refusal({"cwd": "/", "mcpServers": "secret" * 50}, types.NewSessionRequest)
    assert "secret" not in str(error)
    number = refusal({"cwd": 10**400}, types.NewSessionRequest)
    assert len(str(number)) < 100


def test_a_map_with_a_bad_value_names_its_key() -> None:
    from acp_bridge.acp.hello_types import AuthMethodTerminal

    error = refusal({"id": "i", "name": "n", "env": {"A": 1}}, AuthMethodTerminal)
    assert error.field == "env.A"


@pytest.mark.parametrize("version", [None, "1", "2024-11-05", 1.5, 1.0, True, -1, 65536, 100000])
def test_a_protocol_version_that_is_no_uint16_is_refused(version: JsonValue) -> None:
    """R015."""
    assert refusal({"protocolVersion": version}, InitializeRequest).field == "protocolVersion"


@pytest.mark.parametrize("version", [0, 1, 2, 65535])
def test_any_uint16_is_a_protocol_version(version: int) -> None:
    assert structure({"protocolVersion": version}, InitializeRequest).protocol_version == version


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "cwd",
                    "sessionId",
                    "prompt",
                    "type",
                    "text",
                    "mcpServers",
                    "name",
                    "_meta",
                    "resource",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


CLASSES = [cls for cls in vars(types).values() if isinstance(cls, type) and attrs.has(cls)]


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(params=JSON, wanted=st.sampled_from(CLASSES))
def test_any_json_is_taken_or_refused_with_a_sentence(params: JsonValue, wanted: Any) -> None:
    refused = None
    try:
        structure(params, wanted)
    except InvalidParamsError as error:
        refused = error
    if refused is not None:
        assert refused.details.startswith(f"`{refused.field}` ")
        assert refused.details.endswith(".")
        assert wanted.__name__ not in refused.details


# --- what is forgiven --------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{"cwd": "/w"}, {"cwd": "/w", "mcpServers": None}])
def test_absent_or_null_mcp_servers_are_none(params: JsonObject) -> None:
    """R020: treated as []."""
    assert structure(params, types.NewSessionRequest).mcp_servers == []
    loaded = structure({**params, "sessionId": "s"}, types.LoadSessionRequest)
    assert loaded.mcp_servers == []


def test_unknown_fields_are_ignored() -> None:
    """R018."""
    params: JsonObject = {"sessionId": "s", "cwd": 3, "extra": {"a": [1]}}
    assert unstructure(structure(params, types.CancelNotification)) == {"sessionId": "s"}


def test_a_malformed_optional_value_counts_as_absent() -> None:
    block: JsonObject = {
        "type": "resource_link",
        "uri": "u",
        "name": "n",
        "size": "big",
        "title": 3,
        "annotations": [],
        "_meta": "x",
    }
    (link,) = structure(prompt(block), types.PromptRequest).prompt
    assert link == types.ResourceLink(uri="u", name="n")


def test_a_malformed_capability_is_no_capability() -> None:
    params: JsonObject = {
        "protocolVersion": 1,
        "clientInfo": "zed",
        "clientCapabilities": {"fs": {"readTextFile": "yes"}, "terminal": None, "auth": 3},
    }
    hello = structure(params, InitializeRequest)
    assert hello.client_info is None
    assert hello.client_capabilities.fs.read_text_file is False
    assert hello.client_capabilities.terminal is False
    assert structure({"protocolVersion": 1, "clientCapabilities": 3}, InitializeRequest) == (
        InitializeRequest(protocol_version=1)
    )


def test_defaults_are_not_shared_between_instances() -> None:
    first = structure({"cwd": "/", "mcpServers": None}, types.NewSessionRequest)
    first.mcp_servers.append(Unknown({}))
    assert structure({"cwd": "/", "mcpServers": None}, types.NewSessionRequest).mcp_servers == []


def test_bad_items_are_skipped_in_the_lists_that_allow_it() -> None:
    block: JsonObject = {
        "type": "text",
        "text": "x",
        "annotations": {"audience": ["user", "robot", 3]},
    }
    (text,) = structure(prompt(block), types.PromptRequest).prompt
    assert text == types.TextContent(text="x", annotations=types.Annotations(audience=["user"]))
    update: JsonObject = {"entries": [{"content": 1}, "x"]}
    assert structure(update, types.Plan).entries == []
    assert structure({"entries": "x"}, types.Plan).entries == []
    assert refusal({}, types.Plan).field == "entries"
    call: JsonObject = {"toolCallId": "c", "content": [3, {"type": "terminal", "terminalId": "t"}]}
    assert structure(call, types.ToolCallUpdate).content == [types.Terminal(terminal_id="t")]


# --- unions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "raw"),
    [
        (types.ContentBlock, {"type": "hologram", "data": [1, {"a": None}]}),
        (types.McpServer, {"type": "quic", "name": "q"}),
        (types.SessionUpdate, {"sessionUpdate": "_vendor", "x": {}}),
        (types.StateUpdate, {"state": "asleep"}),
        (types.SetSessionConfigOptionRequest, {"type": "range", "value": 3}),
    ],
)
def test_an_unknown_tag_is_kept_and_written_back_verbatim(wanted: Any, raw: JsonObject) -> None:
    value = structure(raw, wanted)
    assert value == Unknown(raw)
    assert unstructure(value) is raw


@pytest.mark.parametrize("tag", [{}, {"type": None}, {"type": "stdio"}])
def test_a_server_without_a_tag_is_a_stdio_server(tag: JsonObject) -> None:
    raw: JsonObject = {"name": "n", "command": "c", "args": ["a"], "env": []}
    server = structure({**raw, **tag}, types.McpServer)
    assert isinstance(server, types.McpServerStdio)
    assert unstructure(server) == raw


def test_an_auth_method_without_a_tag_is_of_type_agent() -> None:
    from acp_bridge.acp.hello_types import AuthMethodAgent

    raw: JsonObject = {"protocolVersion": 1, "authMethods": [{"id": "a", "name": "A"}]}
    hello = structure(raw, InitializeResponse)
    assert hello.auth_methods == [AuthMethodAgent(id="a", name="A")]
    assert unstructure(hello) == raw


def test_an_open_enumeration_takes_any_string_and_nothing_else() -> None:
    notice: JsonObject = {"severity": "panic", "title": "t"}
    assert structure(notice, types.Notice).severity == "panic"
    assert refusal({"severity": 3, "title": "t"}, types.Notice).field == "severity"


def test_grouped_and_plain_options_are_told_apart() -> None:
    base: JsonObject = {"type": "select", "id": "i", "name": "n", "currentValue": "v"}
    plain = structure({**base, "options": [{"value": "v", "name": "V"}]}, types.SessionConfigOption)
    group: JsonObject = {"group": "g", "name": "G", "options": []}
    grouped = structure({**base, "options": [group]}, types.SessionConfigOption)
    assert plain.options == [types.SessionConfigSelectOption(value="v", name="V")]
    assert grouped.options == [types.SessionConfigSelectGroup(group="g", name="G", options=[])]


# --- null, absent, untouched -------------------------------------------------------------------


def test_a_patch_tells_null_from_absent() -> None:
    assert unstructure(types.SessionInfoUpdate()) == {"sessionUpdate": "session_info_update"}
    cleared = unstructure(types.SessionInfoUpdate(title=None))
    assert cleared == {"sessionUpdate": "session_info_update", "title": None}
    patch = structure(cleared, types.SessionInfoUpdate)
    assert patch.title is None
    assert patch.updated_at is UNSET
    state = types.SubagentUpdate(session_id="c", state=None, capabilities=None)
    assert unstructure(state) == {
        "sessionUpdate": "subagent_update",
        "sessionId": "c",
        "state": None,
        "capabilities": None,
    }


def test_outside_patches_none_is_never_written() -> None:
    update = types.ToolCallUpdate(tool_call_id="c", status="completed", title=None, content=None)
    assert unstructure(update) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "completed",
    }
    assert unstructure(types.NewSessionResponse(session_id="s")) == {"sessionId": "s"}


def test_an_empty_list_is_written_where_it_says_something() -> None:
    update = types.ToolCallUpdate(tool_call_id="c", content=[])
    assert unstructure(update)["content"] == []
    assert unstructure(types.Plan(entries=[])) == {"sessionUpdate": "plan", "entries": []}


def test_a_diff_of_a_new_file_has_the_key_for_its_old_text() -> None:
    diff = types.Diff(path="/a", new_text="x")
    assert unstructure(diff) == {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}


def test_meta_and_raw_values_pass_as_the_same_objects() -> None:
    raw_input: JsonObject = {"a-b": None, "jsonrpc": "2.0", "x": [1, {}]}
    meta: JsonObject = {"traceparent": "t", "deep": {"a": [None]}}
    wire: JsonObject = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "t",
        "rawInput": raw_input,
        "rawOutput": ["x", None],
        "_meta": meta,
    }
    call = structure(wire, types.SessionUpdate)
    assert call.raw_input is raw_input
    assert call.meta is meta
    written = unstructure(call)
    assert written == wire
    assert written["rawInput"] is raw_input
    assert written["rawOutput"] is wire["rawOutput"]
    assert written["_meta"] is meta


def test_the_permission_request_carries_a_tool_call_without_the_tag_of_an_update() -> None:
    request = types.RequestPermissionRequest(
        session_id="s", tool_call=types.PermissionToolCall(tool_call_id="c"), options=[]
    )
    assert unstructure(request) == {
        "sessionId": "s",
        "toolCall": {"toolCallId": "c"},
        "options": [],
    }


# --- values ------------------------------------------------------------------------------------


def test_values_are_equal_by_content_and_show_it() -> None:
    one, other = types.TextContent(text="x"), types.TextContent(text="x")
    assert one == other
    assert one != types.TextContent(text="y")
    assert one != types.Terminal(terminal_id="x")
    assert one != "x"
    assert repr(one) == "TextContent(type='text', annotations=None, text='x', meta=None)"
    assert repr(types.SessionInfoUpdate(title="t")).endswith("updated_at=UNSET, meta=UNSET)")
    assert repr(Unknown({"type": "x"})) == "Unknown({'type': 'x'})"
    assert Unknown({"type": "x"}) != Unknown({"type": "y"})
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_warming_up_changes_no_answer() -> None:
    warm_up()
    chunk = types.AgentMessageChunk(content=types.TextContent(text="x"), message_id="m")
    assert json.dumps(unstructure(chunk)) == (
        '{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"},'
        ' "messageId": "m"}'
    )
