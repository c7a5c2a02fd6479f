"""Many sessions, many messages, much text, slow readers: what one does never holds up another.

Field reports R004, R032, R033, R041, R047, R049, R089 and the back-pressure of the one writer.
"""

import json
import random
import threading
import time
from typing import Any

import pytest
from pace import patient
from process_rig import Bridge, Place, bash_call, prompt_params

pytestmark = pytest.mark.process

HELLO = b'{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":1}}\n'

QUICK_S = 2.0
"""How fast other sessions answer while one is parked (R089)."""


def grown_unread(bridge: Bridge, session: str, *, settle_s: float, watch_s: float) -> int:
    """The bytes that it grows by while nobody reads what a turn says; then the turn is cancelled.

    Its first ``settle_s`` fill what may be filled.
    """
    bridge.stop_reading()
    time.sleep(settle_s)
    before = bridge.rss_bytes
    time.sleep(watch_s)
    grown = bridge.rss_bytes - before
    bridge.cancel(session)
    time.sleep(0.2)  # so that the cancel, too, comes while nobody reads
    bridge.read_on()
    return grown


def test_a_reader_that_stalls_costs_no_memory_and_can_still_cancel(place: Place) -> None:
    place.script([{"text": "word " * 4, "repeat": 300_000}], [{"text": "Next."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        grown = grown_unread(bridge, session, settle_s=0.5, watch_s=3)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert grown < 4 * 1024 * 1024, grown
        assert len(bridge.updates(session)) < 200_000  # the model was held back
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


@pytest.mark.parametrize("capabilities", [{}, {"_meta": {"terminal_output": True}}])
def test_a_command_that_never_stops_printing_costs_no_memory(
    place: Place, capabilities: dict[str, Any]
) -> None:
    place.script([bash_call("yes a line of text, again and again")], [{"text": "Next."}])
    with place.bridge() as bridge:
        bridge.hello(**capabilities)
        session = bridge.new(place.work)
        prompt = bridge.prompt(session)
        bridge.allow(bridge.asked())
        bridge.update("tool_call_update", status="in_progress")
        grown = grown_unread(bridge, session, settle_s=1, watch_s=4)
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "cancelled"
        assert grown < 2 * 1024 * 1024, grown
        assert set(place.processes()) == {bridge.process.pid}
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_a_long_answer_to_a_reader_that_keeps_up_is_whole(place: Place) -> None:
    place.script([{"text": "0123456789", "repeat": 30_000}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        answer = bridge.call("session/prompt", wait_s=60, **prompt_params(session))
        assert answer["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == "0123456789" * 30_000
        last = bridge.heard[-1]
        assert last == answer, "an update of the turn came behind its answer (R041)"


def test_one_session_that_waits_for_permission_delays_none_of_seven_as_r089_needs(
    place: Place,
) -> None:
    places = [place.work / f"w{number}" for number in range(8)]
    for number, folder in enumerate(places, start=1):
        folder.mkdir()
        place.script([bash_call("pwd")], [{"text": f"I am {number}."}], agent=str(number))
    place.script([{"text": "Again 2."}], agent="2")
    with place.bridge() as bridge:
        bridge.hello()
        parked = bridge.new(places[0])
        waiting = bridge.prompt(parked)
        question = bridge.asked(sessionId=parked)
        sessions = [bridge.new(folder) for folder in places[1:]]
        started = time.monotonic()
        prompts = [bridge.prompt(session) for session in sessions]
        for session in sessions:
            bridge.allow(bridge.asked(sessionId=session))
        for prompt in prompts:
            assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        assert time.monotonic() - started < patient(QUICK_S * 2)
        for number, (session, folder) in enumerate(zip(sessions, places[1:], strict=True), start=2):
            assert bridge.text(session) == f"I am {number}."
            (done,) = [u for u in bridge.updates(session) if u.get("status") == "completed"]
            assert str(folder) in json.dumps(done)
        for method, params in (
            ("session/list", {}),
            ("session/close", {"sessionId": sessions[-1]}),
            ("session/load", {"sessionId": sessions[-1], "cwd": str(places[-1]), "mcpServers": []}),
            ("session/prompt", prompt_params(sessions[0])),
        ):
            assert "result" in bridge.call(method, wait_s=patient(QUICK_S), **params), method
        bridge.allow(question)
        assert bridge.answer_to(waiting)["result"]["stopReason"] == "end_turn"
        assert bridge.text(parked) == "I am 1."


def test_a_prompt_and_its_cancel_in_one_write_are_answered_once_as_r032_needs(
    place: Place,
) -> None:
    rounds = 200
    for number in range(rounds):
        place.script([{"text": f"answer {number} ", "repeat": 3}, {"delay_ms": 5}, {"text": "end"}])
    rng = random.Random(5)
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        bridge.send(cancel, cancel)
        outcomes = []
        for number in range(rounds):
            prompt = bridge.request("session/prompt", **prompt_params(session, f"p{number}"))
            if number % 3 == 0:
                bridge.send(prompt, cancel)
            elif number % 3 == 1:
                bridge.send(cancel, prompt)
                time.sleep(rng.random() * 0.02)
                bridge.send(cancel, cancel)
            else:
                bridge.send(prompt)
                time.sleep(rng.random() * 0.02)
                bridge.send(cancel)
            outcomes.append(bridge.answer_to(prompt["id"])["result"]["stopReason"])
            if number % 3 == 0:
                assert outcomes[-1] == "cancelled"
        assert set(outcomes) == {"cancelled", "end_turn"}
        place.script(*[[{"text": "Clean."}]] * rounds)
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_prompts_behind_a_cancelled_one_are_cancelled_too_and_the_next_runs_as_r037_needs(
    place: Place,
) -> None:
    place.script([{"text": "A"}, {"wait": "never"}], [{"text": "D"}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        first = bridge.prompt(session, "a")
        bridge.update("agent_message_chunk")
        more = [bridge.request("session/prompt", **prompt_params(session, text)) for text in "bc"]
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        last = bridge.request("session/prompt", **prompt_params(session, "d"))
        bridge.send(*more, cancel, last)
        for message_id in (first, *(one["id"] for one in more)):
            assert bridge.answer_to(message_id)["result"]["stopReason"] == "cancelled"
        assert bridge.answer_to(last["id"])["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == "AD"


def test_many_lines_of_output_are_a_small_multiple_on_the_wire_as_r049_needs(
    place: Place,
) -> None:
    place.script([bash_call("seq -f 'line number %.0f of the output' 35000")], [{"text": "Done."}])
    output = sum(len(f"line number {n} of the output\n") for n in range(1, 35_001))
    for terminal in ({}, {"_meta": {"terminal_output": True}}):
        with place.bridge() as bridge:
            bridge.hello(**terminal)
            session = bridge.new(place.work)
            prompt = bridge.prompt(session)
            bridge.allow(bridge.asked())
            assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
            assert bridge.bytes_read < 3 * output
            assert len(bridge.updates(session)) < 1000


def prompt_line(session: str, text: str, *, message_id: int, ensure_ascii: bool = True) -> bytes:
    message = {"jsonrpc": "2.0", "id": message_id, "method": "session/prompt"}
    params = prompt_params(session, text)
    return json.dumps({**message, "params": params}, ensure_ascii=ensure_ascii).encode() + b"\n"


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 11 * 1024 * 1024])
def test_a_prompt_of_any_length_up_to_the_cap_is_taken_as_r004_needs(
    place: Place, size: int
) -> None:
    place.script([{"text": "Got it."}], [{"text": "And this."}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        frame = prompt_line(session, "", message_id=77)
        bridge.raw(prompt_line(session, "x" * (size - len(frame)), message_id=77))
        assert bridge.answer_to(77, wait_s=60)["result"]["stopReason"] == "end_turn"
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_a_line_above_the_cap_fails_alone_while_another_turn_runs_as_r005_needs(
    place: Place,
) -> None:
    place.script([{"text": "A"}, {"wait": "go"}, {"text": "Z"}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        running = bridge.prompt(session)
        bridge.update("agent_message_chunk")
        before = bridge.rss_bytes
        bridge.raw(b'{"jsonrpc":"2.0","id":88,"method":"session/prompt","params":{"x":"')
        for _ in range(70):
            bridge.raw(b"x" * 1024 * 1024)
        bridge.raw(b'"}}\n')
        error = bridge.answer_to(88, wait_s=60)["error"]
        assert error["code"] == -32600
        assert "result" in bridge.call("session/list")
        place.release("go")
        assert bridge.answer_to(running)["result"]["stopReason"] == "end_turn"
        assert bridge.rss_bytes - before < 80 * 1024 * 1024


def test_a_flood_of_requests_by_a_client_that_does_not_read_costs_no_memory(place: Place) -> None:
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        before = bridge.rss_bytes
        bridge.stop_reading()
        line = b'{"jsonrpc":"2.0","id":5,"method":"no/such"}\n'
        is_enough = threading.Event()

        def flood() -> None:
            while not is_enough.is_set():
                bridge.raw(line * 10_000)

        writer = threading.Thread(target=flood, daemon=True)
        writer.start()
        time.sleep(2)
        grown = bridge.rss_bytes - before
        is_enough.set()
        bridge.read_on()
        writer.join(60)
        assert not writer.is_alive()
        assert grown < 100 * 1024 * 1024, grown
        assert bridge.call("session/list")["result"] == {"sessions": []}


PARSE, SHAPE = -32700, -32600

GARBAGE: list[tuple[bytes, object, int | None]] = [
    (b"not json", None, PARSE),
    (b"{", None, PARSE),
    (b"", None, None),
    (b"   ", None, None),
    (b"[]", None, SHAPE),
    (b"42", None, SHAPE),
    (b"null", None, SHAPE),
    (b'"text"', None, SHAPE),
    (b'{"jsonrpc":"2.0","id":7}', 7, SHAPE),
    (b'{"jsonrpc":"1.0","id":8,"method":"session/list"}', 8, SHAPE),
    (b'{"id":9,"method":"session/list"}', 9, SHAPE),
    (b'{"jsonrpc":"2.0","id":10,"method":5}', 10, SHAPE),
    (b'{"jsonrpc":"2.0","id":11,"method":"session/list","params":3}', 11, SHAPE),
    (b'{"jsonrpc":"2.0","id":[1],"method":"session/list"}', None, SHAPE),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}', None, SHAPE),
    (b'{"jsonrpc":"2.0","id":true,"method":"session/list"}', None, SHAPE),
    (b'[{"jsonrpc":"2.0","id":12,"method":"session/list"}]', None, SHAPE),
    (b"\xff\xfe\x00", None, PARSE),
    (
        b'{"jsonrpc":"2.0","id":13,"method":"session/list","params":{"cursor":"\xff"}}',
        None,
        PARSE,
    ),
    (b"[" * 100_000, None, PARSE),
    (b'{"a":' * 100_000, None, PARSE),
    (b'{"jsonrpc":"2.0","id":14,"method":"x","params":{"n":1e999}}', 14, None),
    (b'{"jsonrpc":"2.0","id":15,"method":"x","params":{"n":NaN}}', None, None),
    (
        b'{"jsonrpc":"2.0","id":16,"method":"x","params":{"n":' + b"9" * 5000 + b"}}",
        None,
        None,
    ),
    (b'{"jsonrpc":"2.0","id":17,"method":"\\ud800"}', None, None),
    (b'{"jsonrpc":"2.0","id":"\\ud800","method":"x"}', None, None),
    (b'{"jsonrpc":"2.0","method":"no/such/notification"}', None, None),
    (b'{"jsonrpc":"2.0","method":"session/cancel"}', None, None),
    (
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":null}}',
        None,
        None,
    ),
    (
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}',
        None,
        None,
    ),
    (b'{"jsonrpc":"2.0","method":"$/cancel_request","params":[]}', None, None),
    (b'{"jsonrpc":"2.0","id":null,"result":{}}', None, None),
    (b'{"jsonrpc":"2.0","id":4242,"result":{}}', None, None),
    (b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}', None, None),
    (b'{"jsonrpc":"2.0","error":null}', None, None),
]
"""A line, and the id and code of the error that answers it; no code: it is not looked at."""


def test_a_burst_of_garbage_is_answered_frame_by_frame_as_r007_needs(place: Place) -> None:
    with place.bridge(checked=False) as bridge:
        bridge.raw(b"\xef\xbb\xbf")
        bridge.raw(HELLO.replace(b"\n", b"\r\n"))
        bridge.answer_to("hello")
        for number, (line, message_id, code) in enumerate(GARBAGE):
            start = len(bridge.heard)
            bridge.raw(line + b"\n")
            assert bridge.call("session/list")["result"] == {"sessions": []}, line[:80]
            said = [message for message in bridge.heard[start:] if "error" in message]
            if code is not None:
                assert [(one["id"], one["error"]["code"]) for one in said] == [
                    (message_id, code)
                ], (
                    number,
                    line[:80],
                )
        assert bridge.call("initialize", protocolVersion=1)["result"]["protocolVersion"] == 1


def test_random_bytes_never_end_it(place: Place) -> None:
    rng = random.Random(11)
    seeds = [
        b'{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}',
        b'{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"x","prompt":[]}}',
        b'{"jsonrpc":"2.0","id":5,"method":"session/load","params":{"sessionId":"x","cwd":"/"}}',
        b'{"jsonrpc":"2.0","id":6,"result":{"outcome":{"outcome":"selected","optionId":"a"}}}',
    ]
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        for _ in range(400):
            line = bytearray(rng.choice(seeds))
            for _ in range(rng.randint(1, 6)):
                spot = rng.randrange(len(line))
                if rng.random() < 0.5:
                    line[spot] = rng.randrange(256)
                else:
                    del line[spot : spot + rng.randint(1, 8)]
            bridge.raw(bytes(line) + b"\n")
        bridge.raw(rng.randbytes(200_000) + b"\n")
        assert "result" in bridge.call("session/list")


def test_one_byte_at_a_time_is_as_good_as_all_at_once(place: Place) -> None:
    place.script([{"text": "Said."}])
    with place.bridge(checked=False) as bridge:
        for byte in HELLO.replace(b",", b",\r "):  # white space that JSON allows
            bridge.raw(bytes([byte]))
        assert bridge.answer_to("hello")["result"]["protocolVersion"] == 1
        session = bridge.new(place.work)
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_line_ends_of_other_alphabets_are_text_as_r003_needs(place: Place) -> None:
    odd = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e\x00e\u200f\ufeff\U0001f600"
    place.script([{"text": odd}])
    with place.bridge(checked=False) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.raw(prompt_line(session, odd, message_id=50, ensure_ascii=False))
        assert bridge.answer_to(50)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == odd
        bridge.result("session/close", sessionId=session)
        bridge.result("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])
        assert bridge.text(session) == odd + odd
        (user,) = [u for u in bridge.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert user["content"]["text"] == odd
