"""Sessions from outside: loads that collide, ids that attack, wrong answers, poison (R052).

Field reports R015-R021, R031, R033, R035, R046-R048, R050, R056, R075, R083, R085, R098, R109.
"""

import base64
import json
import os
import struct
import zlib
from typing import Any

import pytest
from pace import patient
from process_rig import Bridge, Message, Place, bash_call, prompt_params

pytestmark = pytest.mark.process

WITHIN_S = 3.0
"""How fast a cancelled prompt is answered, whatever it waits for."""


def turn(bridge: Bridge, session: str, text: str = "go") -> str:
    """A prompt's stop reason."""
    return str(bridge.result("session/prompt", **prompt_params(session, text))["stopReason"])


def load_params(place: Place, session: str) -> Message:
    return {"sessionId": session, "cwd": str(place.work), "mcpServers": []}


def stored(place: Place, bridge: Bridge) -> str:
    """A session with one turn, closed."""
    session = bridge.new(place.work)
    assert turn(bridge, session) == "end_turn"
    bridge.result("session/close", sessionId=session)
    return session


# --- loads ----------------------------------------------------------------------------------------


def test_loads_of_one_session_at_once_each_show_all_of_it(place: Place) -> None:
    place.script([{"text": "One."}], [{"text": "Two."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = stored(place, bridge)
        start = len(bridge.heard)
        loads = [bridge.request("session/load", **load_params(place, session)) for _ in range(5)]
        bridge.send(*loads)
        for load in loads:
            assert "result" in bridge.answer_to(load["id"])
        said = bridge.heard[start:]
        texts = [m["params"]["update"] for m in said if m.get("method") == "session/update"]
        assert [t["sessionUpdate"] for t in texts].count("agent_message_chunk") == 5
        # Each replay is whole before its answer.
        kinds = [
            m["params"]["update"]["sessionUpdate"] if "method" in m else "answer" for m in said
        ]
        for number, kind in enumerate(kinds):
            if kind == "answer":
                assert "agent_message_chunk" in kinds[:number]
        assert turn(bridge, session) == "end_turn"
        assert bridge.text(session).count("Two.") == 1


def test_a_load_while_a_turn_runs_shows_what_was_and_then_what_comes(place: Place) -> None:
    place.script([{"text": "Past. "}], [{"text": "Now "}, {"wait": "go"}, {"text": "and then."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        assert turn(bridge, session) == "end_turn"
        running = bridge.prompt(session)
        bridge.wait_for(lambda m: "Now " in json.dumps(m))
        start = len(bridge.heard)
        assert "modes" in bridge.result("session/load", **load_params(place, session))
        place.release("go")
        assert bridge.answer_to(running)["result"]["stopReason"] == "end_turn"
        again = "".join(
            message["params"]["update"]["content"]["text"]
            for message in bridge.heard[start:]
            if '"agent_message_chunk"' in json.dumps(message)
        )
        assert again == "Past. Now and then."


def test_a_close_while_a_turn_runs_cancels_it_and_a_load_shows_it(place: Place) -> None:
    place.script([{"text": "Half"}, {"wait": "never"}], [{"text": "Whole."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        running = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        close = bridge.request("session/close", sessionId=session)
        load = bridge.request("session/load", **load_params(place, session))
        bridge.send(close, load)
        assert bridge.answer_to(running)["result"]["stopReason"] == "cancelled"
        assert bridge.answer_to(close["id"])["result"] == {}
        assert "modes" in bridge.answer_to(load["id"])["result"]
        assert bridge.text(session) == "HalfHalf"
        assert turn(bridge, session) == "end_turn"


def test_a_close_that_kills_a_command_leaves_none_of_it(place: Place) -> None:
    place.script([bash_call("setsid sleep 300 & sleep 300")])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        running = bridge.prompt(session)
        bridge.allow(bridge.asked())
        bridge.update("tool_call_update", status="in_progress")
        bridge.result("session/close", sessionId=session)
        assert bridge.answer_to(running)["result"]["stopReason"] == "cancelled"
        assert set(place.processes()) == {bridge.process.pid}


def test_a_closed_session_takes_no_prompt_and_a_cancel_of_it_is_nothing(place: Place) -> None:
    place.script([{"text": "One."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = stored(place, bridge)
        bridge.cancel(session)
        assert bridge.result("session/close", sessionId=session) == {}
        error = bridge.call("session/prompt", **prompt_params(session))["error"]
        assert (error["code"], error["data"]["sessionId"]) == (-32002, session)


ODD_IDS = [
    *(
        "nope",
        "",
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "a/b",
        "x" * 10_240,
        "\x00",
        "a\nb",
    ),
    *("%2e%2e", "\ud800", "🙂" * 100, "--work--", "session.lock", "CON"),
]


@pytest.mark.parametrize("session", ODD_IDS, ids=range(len(ODD_IDS)))
def test_an_id_that_is_no_session_is_not_found_and_touches_nothing_as_r052_needs(
    place: Place, session: str
) -> None:
    place.script([{"text": "One."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        stored(place, bridge)
        before = sorted(str(path) for path in place.root.rglob("*") if "logs" not in path.parts)
        for method, params in (
            ("session/load", load_params(place, session)),
            ("session/prompt", prompt_params(session)),
        ):
            error = bridge.call(method, **params)["error"]
            assert error["code"] == -32002, error
            assert "sessionId" in error["data"]
            assert len(json.dumps(error)) < 25_000
        assert "result" in bridge.call("session/close", sessionId=session)
        bridge.cancel(session)
        after = sorted(str(path) for path in place.root.rglob("*") if "logs" not in path.parts)
        assert after == before
        assert len(bridge.result("session/list")["sessions"]) == 1


@pytest.mark.parametrize("value", [None, 5, [], {}, True])
def test_an_id_of_another_type_is_a_bad_parameter(place: Place, value: Any) -> None:
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        for method, params in (
            ("session/load", {**load_params(place, ""), "sessionId": value}),
            ("session/prompt", {**prompt_params(""), "sessionId": value}),
            ("session/close", {"sessionId": value}),
        ):
            error = bridge.call(method, **params)["error"]
            assert (error["code"], error["data"]["field"]) == (-32602, "sessionId"), error


def test_a_cwd_that_is_no_folder_is_a_bad_parameter_and_stores_nothing_as_r021_needs(
    place: Place,
) -> None:
    place.script([{"text": "One."}])
    file = place.root / "file"
    file.write_text("")
    link = place.root / "link ü"
    link.symlink_to(place.work)
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        for cwd in (
            "/no/such/dir",
            str(file),
            "relative/x",
            "~",
            "",
            "x" * 5000,
            "/\x00",
            "/" + "y" * 300,
        ):
            error = bridge.call("session/new", cwd=cwd, mcpServers=[])["error"]
            assert (error["code"], error["data"]["field"]) == (-32602, "cwd"), cwd
        session = bridge.new(link)
        assert turn(bridge, session) == "end_turn"
        bridge.result("session/close", sessionId=session)
        for folder in (place.work, link):
            params = {**load_params(place, session), "cwd": str(folder)}
            assert "result" in bridge.call("session/load", **params)
        listed = bridge.result("session/list", cwd=str(place.work) + "/")["sessions"]
        assert [one["sessionId"] for one in listed] == [session]


# --- questions ------------------------------------------------------------------------------------

ANSWERS: dict[str, Message] = {
    "not offered": {"result": {"outcome": {"outcome": "selected", "optionId": "root"}}},
    "no option": {"result": {"outcome": {"outcome": "selected"}}},
    "null": {"result": None},
    "empty": {"result": {}},
    "no object": {"result": "yes"},
    "other outcome": {"result": {"outcome": {"outcome": "granted", "optionId": "allow-once"}}},
    "error": {"error": {"code": -32601, "message": "Method not found"}},
    "malformed error": {"error": "no"},
    "cancelled": {"result": {"outcome": {"outcome": "cancelled"}}},
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_no_offered_allowance_runs_nothing_as_r085_needs(
    place: Place, answer: Message
) -> None:
    place.script([bash_call("touch ran")], [{"text": "Then not."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        question = bridge.asked()
        bridge.send({"id": question["id"], **answer})
        bridge.send(
            {
                "id": question["id"],
                "result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
            }
        )
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        bridge.update("tool_call_update", status="failed")
        assert bridge.text(session) == "Then not."
    assert not (place.work / "ran").exists()


CANCELS: dict[str, tuple[str, ...]] = {
    "cancel, then answered cancelled": ("cancel", "cancelled"),
    "answered cancelled, then cancel": ("cancelled", "cancel"),
    "never answered": ("cancel",),
    "cancel, then allowed": ("cancel", "allow"),
    "cancel, then an error": ("cancel", "error"),
    "all in the wrong order": ("error", "cancel", "allow", "cancelled", "cancel"),
}


@pytest.mark.parametrize("story", CANCELS.values(), ids=CANCELS)
def test_a_cancel_while_a_question_is_open_ends_the_turn_as_r031_needs(
    place: Place, story: tuple[str, ...]
) -> None:
    place.script([bash_call("touch ran")], [{"text": "Next."}], [{"text": "Next."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        question = bridge.asked()["id"]
        steps: dict[str, Message] = {
            "cancel": {"method": "session/cancel", "params": {"sessionId": session}},
            "cancelled": {"id": question, "result": {"outcome": {"outcome": "cancelled"}}},
            "allow": {
                "id": question,
                "result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
            },
            "error": {"id": question, "error": {"code": -32603, "message": "no"}},
        }
        bridge.send(*(steps[step] for step in story))
        answer = bridge.answer_to(prompt, wait_s=patient(WITHIN_S))
        assert answer["result"]["stopReason"] == "cancelled"
        bridge.update("tool_call_update", status="failed")
        assert turn(bridge, session) == "end_turn"
        assert "error" not in json.dumps(answer)
    assert not (place.work / "ran").exists()


def test_a_cancel_ends_a_retry_at_once_and_is_no_error_as_r035_needs(place: Place) -> None:
    failing = [{"error": {"status": 503, "message": "busy", "retry_after_s": 60}}]
    place.script(failing, [{"text": "Better."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.update("session_info_update")
        bridge.cancel(session)
        assert (
            bridge.answer_to(prompt, wait_s=patient(WITHIN_S))["result"]["stopReason"]
            == "cancelled"
        )
        assert turn(bridge, session) == "end_turn"


# --- poison ---------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    """A picture of one colour, few bytes whatever its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = zlib.compress(b"\0" * ((width // 8 + 2) * height), 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def image(data: str, mime: str = "image/png") -> Message:
    return {"type": "image", "data": data, "mimeType": mime}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


POISON: dict[str, list[Message]] = {
    "too wide": [image(b64(png(8001, 10)))],
    "too large": [image(b64(png(8, 8) + os.urandom(6 * 1024 * 1024)))],
    "25 MB": [image(b64(png(8, 8) + bytes(25 * 1024 * 1024)))],
    "no base64": [image("%%% not base64 %%%")],
    "another type": [image(b64(png(8, 8)), "image/jpeg")],
    "no picture": [image(b64(b"hello"))],
    "unknown type": [image(b64(b"<svg/>"), "image/svg+xml")],
    "empty": [image("")],
    "audio": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
    "hologram": [{"type": "text", "text": "x"}, {"type": "hologram", "data": 1}],
    "no block": ["text"],  # type: ignore[list-item]
    "nothing": [],
}


@pytest.mark.parametrize("blocks", POISON.values(), ids=POISON)
def test_what_a_model_could_not_take_never_enters_the_log_as_r075_needs(
    place: Place, blocks: list[Message]
) -> None:
    place.script([{"text": "Fine."}], [{"text": "Still."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        answer = bridge.call("session/prompt", sessionId=session, prompt=blocks)
        assert answer["error"]["code"] == -32602, answer
        assert answer["error"]["data"]["field"].startswith("prompt")
        assert not list(place.home.glob("attachments/**/*.*"))
        assert turn(bridge, session) == "end_turn"
        bridge.result("session/close", sessionId=session)
        bridge.result("session/load", **load_params(place, session))
        assert turn(bridge, session) == "end_turn"
        assert len([u for u in bridge.updates() if u["sessionUpdate"] == "user_message_chunk"]) == 1


def test_a_good_picture_and_links_are_replayed_as_they_were_sent_as_r098_needs(
    place: Place,
) -> None:
    place.script([{"text": "Seen."}])
    blocks: list[Message] = [
        {"type": "text", "text": "Look at "},
        {"type": "resource_link", "name": "a b", "uri": f"file://{place.work}/a%20b.py#L9:15"},
        {"type": "resource_link", "name": "web", "uri": "https://example.com/x"},
        {"type": "resource", "resource": {"uri": "file:///t.txt", "text": "inside"}},
        image(b64(png(64, 64))),
    ]
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        assert bridge.result("session/prompt", sessionId=session, prompt=blocks)
        assert not [u for u in bridge.updates() if u["sessionUpdate"] == "user_message_chunk"]
        bridge.result("session/close", sessionId=session)
        bridge.result("session/load", **load_params(place, session))
        shown = [
            u["content"] for u in bridge.updates() if u["sessionUpdate"] == "user_message_chunk"
        ]
        assert shown == blocks


def test_ids_that_a_provider_repeats_are_unique_to_the_client_as_r083_needs(place: Place) -> None:
    read = {"tool_call": {"id": "call_0", "name": "glob", "arguments": {"pattern": "*"}}}
    unnamed = {"tool_call": {"id": "", "name": "glob", "arguments": {"pattern": "*.x"}}}
    place.script([read, read, unnamed], [{"text": "1"}], [read], [{"text": "2"}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        assert turn(bridge, session) == "end_turn"
        assert turn(bridge, session) == "end_turn"
        calls = [u["toolCallId"] for u in bridge.updates() if u["sessionUpdate"] == "tool_call"]
        assert len(set(calls)) == len(calls) == 4
        assert all(calls)
        bridge.result("session/close", sessionId=session)
        bridge.result("session/load", **load_params(place, session))
        again = [u["toolCallId"] for u in bridge.updates() if u["sessionUpdate"] == "tool_call"]
        assert again == calls + calls


FAILURES: dict[str, tuple[list[Message], int]] = {
    "401": ([{"error": {"status": 401, "message": "bad key"}}], -32000),
    "404": ([{"error": {"status": 404, "message": "no such model"}}], -32603),
    "503 for ever": (
        [{"text": "Ha"}, {"error": {"status": 503, "message": "busy", "retry_after_s": 0}}],
        -32603,
    ),
}

CALLS_MAX = 6
"""A call and five more tries."""


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failed_model_call_is_an_error_and_the_next_prompt_works_as_r046_needs(
    place: Place, kind: str
) -> None:
    items, code = FAILURES[kind]
    with place.bridge() as bridge:
        attempts = CALLS_MAX if kind == "503 for ever" else 1
        place.script(*[items] * attempts, [{"text": "Well."}])
        bridge.hello()
        session = bridge.new(place.work)
        answer = bridge.call("session/prompt", wait_s=60, **prompt_params(session))
        assert answer["error"]["code"] == code, answer
        assert turn(bridge, session) == "end_turn"


# --- the first words ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "is_good"),
    [(0, True), (1, True), (2, True), (65535, True), (100_000, False), (-1, False), (1.5, False),
     ("1", False), ("2024-11-05", False), (True, False), (None, False), ("absent", False)],
)  # fmt: skip
def test_any_protocol_version_gets_an_answer_as_r015_needs(
    place: Place, version: Any, *, is_good: bool
) -> None:
    params = {} if version == "absent" else {"protocolVersion": version}
    with place.bridge(checked=False) as bridge:
        for _ in range(2):  # the first answer is made by other code than the later ones
            answer = bridge.call("initialize", **params)
            if is_good:
                assert answer["result"]["protocolVersion"] == 1
            else:
                error = answer["error"]
                assert (error["code"], error["data"]["field"]) == (-32602, "protocolVersion")
        assert bridge.hello()["protocolVersion"] == 1
        assert bridge.new(place.work)


def test_a_session_before_initialize_is_not_a_login_demand_as_r016_needs(place: Place) -> None:
    with place.bridge(checked=False) as bridge:
        answer = bridge.call("session/new", cwd=str(place.work), mcpServers=[])
        assert "result" in answer or answer["error"]["code"] == -32600
        assert bridge.hello()["protocolVersion"] == 1


@pytest.mark.parametrize(
    "servers", ["absent", None, {}, [], [{"name": "x"}], [7], [{"type": "warp"}]]
)
def test_any_list_of_servers_gets_an_answer_as_r020_needs(place: Place, servers: Any) -> None:
    params: Message = {"cwd": str(place.work)}
    if servers != "absent":
        params["mcpServers"] = servers
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        answer = bridge.call("session/new", **params)
        if "error" in answer:
            assert answer["error"]["code"] == -32602
            assert answer["error"]["data"]["field"].startswith("mcpServers")


def test_a_cancel_with_an_id_takes_effect_and_is_answered_as_r017_needs(place: Place) -> None:
    place.script([{"text": "Long"}, {"wait": "never"}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        running = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        cancel = bridge.ask("session/cancel", sessionId=session)
        assert bridge.answer_to(running)["result"]["stopReason"] == "cancelled"
        bridge.answer_to(cancel)
        assert bridge.call("_x.dev/foo")["error"]["code"] == -32601
        bridge.send({"method": "_x.dev/bar"})
        assert "result" in bridge.call("session/list")
