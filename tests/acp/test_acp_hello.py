"""``initialize`` from plain dicts: its answer, its refusals, and what it does not import."""

import json
import subprocess
import sys

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.acp import schema_files
from acp_bridge.acp.agent_side import METHODS
from acp_bridge.acp.converter import structure, unstructure
from acp_bridge.acp.hello import (
    CONFIGURED_MODEL,
    SETUP,
    ClientTraits,
    answer_initialize,
    client_traits,
)
from acp_bridge.acp.hello_types import AuthMethodAgent, AuthMethodTerminal, InitializeResponse
from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import JsonObject, JsonValue

COMMAND = ["python", "-m", "acp_bridge", "setup"]
ANSWER = answer_initialize({"protocolVersion": 1}, version="1.2.3", setup_command=COMMAND)


def test_the_answer_meets_the_official_schema() -> None:
    definitions = json.loads(schema_files()["stable"].read_text(encoding="utf-8"))["$defs"]
    jsonschema.Draft202012Validator(
        {"$ref": "#/$defs/InitializeResponse", "$defs": definitions}
    ).validate(ANSWER)


def test_the_answer_agrees_with_the_types() -> None:
    typed = structure(ANSWER, InitializeResponse)
    assert typed.protocol_version == 1
    assert typed.agent_info is not None
    assert (typed.agent_info.name, typed.agent_info.version) == ("acp-bridge", "1.2.3")
    assert isinstance(typed.auth_methods[0], AuthMethodAgent)
    # Nothing was misspelt: what the types keep is all there is, but for "no", which is implied.
    assert unstructure(typed) == without_no(ANSWER)


def without_no(value: JsonValue) -> JsonValue:
    """A value without its false flags."""
    if not isinstance(value, dict):
        return [without_no(item) for item in value] if isinstance(value, list) else value
    return {key: without_no(item) for key, item in value.items() if item is not False}


def test_what_is_advertised_is_served() -> None:
    typed = structure(ANSWER, InitializeResponse).agent_capabilities
    sessions = typed.session_capabilities
    offered = {
        "session/load": typed.load_session,
        "session/list": sessions.list is not None,
        "session/close": sessions.close is not None,
        "session/resume": sessions.resume is not None,
        "session/delete": sessions.delete is not None,
        "session/fork": sessions.fork is not None,
        "logout": typed.auth.logout is not None,
    }
    assert {method: method in METHODS for method in offered} == offered


@pytest.mark.parametrize("version", [0, 1, 2, 65535])
def test_any_version_is_answered_with_version_one(version: int) -> None:
    """R015."""
    answer = answer_initialize({"protocolVersion": version}, version="0", setup_command=COMMAND)
    assert answer["protocolVersion"] == 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        None,
        {"protocolVersion": None},
        {"protocolVersion": "1"},
        {"protocolVersion": "2024-11-05"},
        {"protocolVersion": 1.5},
        {"protocolVersion": True},
        {"protocolVersion": -1},
        {"protocolVersion": 100000},
    ],
)
def test_anything_else_is_refused_naming_the_field(params: JsonValue) -> None:
    """R015."""
    with pytest.raises(InvalidParamsError, match="`protocolVersion`") as caught:
        answer_initialize(params, version="0", setup_command=COMMAND)
    assert caught.value.code == -32602
    assert caught.value.field == "protocolVersion"


def test_params_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidParamsError) as caught:
        answer_initialize([1], version="0", setup_command=COMMAND)
    assert caught.value.field == "params"


def test_an_auth_method_is_always_there() -> None:
    assert ANSWER["authMethods"] == [CONFIGURED_MODEL]


@pytest.mark.parametrize(
    "offer", [{"auth": {"terminal": True}}, {"_meta": {"terminal-auth": True}}], ids=["now", "then"]
)
def test_a_client_with_a_terminal_is_offered_to_set_up_there(offer: JsonObject) -> None:
    params: JsonObject = {"protocolVersion": 1, "clientCapabilities": offer}
    answer = answer_initialize(params, version="0", setup_command=COMMAND)
    typed = structure(answer, InitializeResponse)
    own, setup = typed.auth_methods
    assert isinstance(own, AuthMethodAgent)
    assert isinstance(setup, AuthMethodTerminal)
    assert (setup.id, setup.args) == (SETUP, ["setup"])
    assert setup.meta is not None
    whole = setup.meta["terminal-auth"]
    assert isinstance(whole, dict)
    assert [whole["command"], *as_list(whole["args"])] == COMMAND


def as_list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_traits_are_what_the_client_offered() -> None:
    params: JsonObject = {
        "protocolVersion": 1,
        "clientInfo": {"name": "zed", "version": "1.2", "_meta": {"platform": "x"}},
        "clientCapabilities": {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": True,
            "auth": {"terminal": True},
            "elicitation": {"form": {}},
            "subagents": {},
            "plan": {},
            "session": {
                "configOptions": {"boolean": {}},
                "notices": {},
                "compaction": {"more": 1},
            },
            "_meta": {"terminal_output": True},
        },
    }
    traits = client_traits(params)
    assert traits[:3] == ("zed", "1.2", True)
    assert set(traits[2:-1]) == {True}
    assert traits.platform == traits[-1] == "x"


def test_the_older_sign_of_terminal_auth_counts() -> None:
    params: JsonObject = {"clientCapabilities": {"_meta": {"terminal-auth": True}}}
    assert client_traits(params) == ClientTraits(auth_terminal=True)


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        {},
        {"clientCapabilities": None, "clientInfo": None},
        {"clientCapabilities": [], "clientInfo": "x"},
        {"clientInfo": {"name": 3, "version": None}},
        {"clientCapabilities": {"fs": True, "terminal": "yes", "session": [], "_meta": 3}},
        {"clientCapabilities": {"fs": {"readTextFile": 1, "writeTextFile": None}}},
        {"clientCapabilities": {"subagents": None, "plan": True, "session": {"notices": None}}},
    ],
)
def test_what_is_missing_null_or_misspelt_counts_as_no(params: JsonValue) -> None:
    assert client_traits(params) == ClientTraits()


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["clientCapabilities", "clientInfo", "fs", "session", "_meta"]),
                inner,
            )
        ),
        max_leaves=8,
    )
)
def test_traits_never_fail(params: JsonValue) -> None:
    assert isinstance(client_traits(params), ClientTraits)


@pytest.mark.process
def test_initialize_is_answered_before_attrs_and_cattrs_are_imported() -> None:
    program = (
        "import sys\n"
        "import acp_bridge.acp.agent_side, acp_bridge.acp.hello as hello\n"
        "hello.answer_initialize({'protocolVersion': 1}, version='0', setup_command=['x'])\n"
        "hello.client_traits({})\n"
        "heavy = {'attr', 'attrs', 'cattr', 'cattrs', 'acp_bridge.acp.types'} & set(sys.modules)\n"
        "light = 'acp_bridge.acp.hello' in sys.modules\n"
        "sys.exit(0 if light and not heavy else f'imported {heavy}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_hello_alone_does_not_even_import_anyio() -> None:
    program = "import sys, acp_bridge.acp.hello\nsys.exit('anyio' in sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0
