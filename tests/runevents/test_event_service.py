"""The service on a real socket: who may call, what it answers, how streams begin and end."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest
from pace import patient
from service_rig import NOW, Served, client_of, draft, served

from acp_bridge.errors import ConfigError, EventLogResetError, EventServiceError
from acp_bridge.runevents.client import EventClient
from acp_bridge.runevents.log import EventLog, open_log
from acp_bridge.runevents.model import RunEvent, RunId
from acp_bridge.runevents.service.guard import BODY_BYTES_MAX
from acp_bridge.runevents.service.serving import STOP_S, Limits, bind

pytestmark = pytest.mark.anyio

P, C = RunId("parent"), RunId("child")


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    async with open_log(f"sqlite:{tmp_path / 'events.sqlite'}") as opened:
        yield opened


@pytest.fixture
async def service(log: EventLog) -> AsyncIterator[Served]:
    async with served(log, limits=Limits(ask_hold_s=0.05, sweep_s=0.01)) as running:
        yield running


@pytest.fixture
async def client(service: Served) -> AsyncIterator[EventClient]:
    async with client_of(service.url) as opened:
        await opened.register(P)
        await opened.register(C, parent_id=P, task={"do": "it"}, task_id="t1")
        yield opened


async def first_events(client: EventClient, run_id: RunId, count: int) -> list[RunEvent]:
    events: list[RunEvent] = []
    with anyio.fail_after(60):
        async with client.open({run_id: 0}, epoch=None) as stream:
            batches = stream.batches()
            while len(events) < count:
                events += await anext(batches)
            await batches.aclose()
    return events


async def until_none_is_open(running: Served) -> None:
    with anyio.fail_after(60):
        while running.service.streams.counts()[0]:
            await anyio.lowlevel.checkpoint()


async def refused(client: EventClient, method: str, path: str, **request: object) -> httpx.Response:
    return await client._http.request(method, f"{client._url}{path}", **request)  # type: ignore[arg-type]


# --- who may call ------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "wrong", "rightly"])
async def test_without_the_right_token_nothing_is_answered_but_health(
    log: EventLog, token: str | None
) -> None:
    async with served(log, token="right") as running, client_of(running.url, token) as client:
        with pytest.raises(EventServiceError) as refusal:
            await client.status()
        assert refusal.value.status == 401
        assert (await refused(client, "GET", "/healthz")).status_code == 200
        with pytest.raises(EventServiceError) as refusal:
            async with client.open({P: 0}, epoch=None):
                pass
        assert refusal.value.status == 401


async def test_with_the_right_token_it_answers(log: EventLog) -> None:
    async with served(log, token="right") as running, client_of(running.url, "right") as client:
        assert (await client.status())["epoch"] == log.epoch


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_other_machines_are_not_served_without_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        bind(host, 0, token=None)


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with (
        bind("127.0.0.1", 0, token=None) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_taken_port_is_one_sentence() -> None:
    with bind("127.0.0.1", 0, token=None) as taken, pytest.raises(ConfigError, match="--port"):
        bind("127.0.0.1", taken.getsockname()[1], token=None)


@pytest.mark.parametrize("headers", [{"origin": "http://evil"}, {"host": "evil.example"}])
async def test_web_pages_may_not_call_a_service_without_a_token(
    client: EventClient, headers: dict[str, str]
) -> None:
    answer = await refused(client, "POST", "/v1/agent/runs", json={"run_id": "x"}, headers=headers)
    assert answer.status_code == 403


# --- what it refuses ---------------------------------------------------------------------------


BAD = [
    ("/v1/agent/events/child", b"{", "(body)"),
    ("/v1/agent/events/child", b"[]", "(body)"),
    ("/v1/agent/events/child", b'{"events": []}', "events"),
    ("/v1/agent/events/child", b'{"event_type": "rows"}', "event_id"),
    ("/v1/agent/events/a%20b", b'{"event_type": "rows", "event_id": "e"}', "run"),
    ("/v1/agent/messages", b'{"event_id": "e"}', "run_id"),
    ("/v1/agent/runs", b'{"run_id": ""}', "run_id"),
    ("/v1/agent/runs", b'{"run_id": "r", "task": {}}', "task"),
    ("/v1/agent/runs", b'{"run_id": "r", "task": 1, "task_id": "t"}', "task"),
    ("/v1/agent/runs/child/claim", b'{"worker": "w"}', "execution_id"),
    ("/v1/agent/runs/child/rows", b'{"execution_id": "x", "rows": []}', "rows"),
    ("/v1/agent/runs/child/ask", b'{"execution_id": "x"}', "payload"),
    ("/v1/agent/events/stream", b'{"run_ids": []}', "run_ids"),
    ("/v1/agent/events/stream", b'{"run_ids": ["a", "a"]}', "run_ids"),
    ("/v1/agent/events/stream", b'{"run_ids": ["a"], "since": [1, 2]}', "since"),
    ("/v1/agent/events/stream", b'{"run_ids": ["a"], "since": [-1]}', "since"),
    ("/v1/agent/events/stream", b'{"run_ids": ["a"], "types": "rows"}', "types"),
]


async def test_bad_input_is_answered_with_its_field(client: EventClient) -> None:
    for path, body, field in BAD:
        answer = await refused(client, "POST", path, content=body)
        assert (answer.status_code, answer.json().get("field")) == (400, field), (path, body)
        assert answer.json()["details"].endswith(".")


async def test_a_body_beyond_its_bound_is_refused(client: EventClient) -> None:
    answer = await refused(client, "POST", "/v1/agent/runs", content=b" " * (BODY_BYTES_MAX + 1))
    assert answer.status_code == 413


async def test_a_query_names_at_most_a_hundred_runs(client: EventClient) -> None:
    query = "&".join(f"run_ids[]=r{number}" for number in range(101))
    answer = await refused(client, "GET", f"/v1/agent/events/stream?{query}")
    assert (answer.status_code, answer.json()["field"]) == (400, "run_ids")


async def test_an_unregistered_run_is_not_found(client: EventClient) -> None:
    nobody = RunId("nobody")
    for call in (
        client.publish(nobody, [draft(nobody, "e1")]),
        client.run(nobody),
        client.claim(nobody, worker="w", execution_id="x"),
        client.register(RunId("r"), parent_id=nobody),
        client.message(nobody, "e2", {}),
    ):
        with pytest.raises(EventServiceError, match="nobody") as refusal:
            await call
        assert refusal.value.status == 404


async def test_what_is_no_service_is_told_in_a_sentence() -> None:
    with bind("127.0.0.1", 0, token=None) as silent:
        port = silent.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(EventServiceError, match="does it run") as failed:
            await client.status()
        assert failed.value.status is None
    for url, token in (("localhost:1", None), ("http://localhost:1", "no\nline")):
        with pytest.raises(ConfigError, match="event service"):
            EventClient(url, token)


# --- events and streams ------------------------------------------------------------------------


async def test_a_published_event_reaches_a_stream_with_id_epoch_and_data(
    client: EventClient, log: EventLog
) -> None:
    (sequence,) = await client.publish(C, [draft(C, "e1")])
    assert await client.publish(C, [draft(C, "e1")]) == [sequence]
    url = (
        f"{client._url}/v1/agent/events/stream?run_ids[]=child&run_ids[]=parent&since[]=0&since[]=0"
    )
    with anyio.fail_after(60):
        async with client._http.stream("GET", url) as response:
            assert response.headers["acp-bridge-epoch"] == log.epoch
            lines = response.aiter_lines()
            found = [await anext(lines) for _ in range(8)]
            await lines.aclose()  # type: ignore[attr-defined]
    assert found[0].startswith(":")
    assert found[5] == f"id: {sequence}"
    assert json.loads(found[6].removeprefix("data: ")) == {
        "event_type": "run_succeeded",
        "run_id": "child",
        "event_id": "e1",
        "ref_id": None,
        "execution_id": None,
        "occurred_at": NOW,
        "sequence": sequence,
        "payload": {},
    }


async def test_the_parent_hears_of_its_child_once_however_often_it_is_registered(
    client: EventClient,
) -> None:
    await client.register(C, parent_id=P, task={"do": "it"}, task_id="t1")
    await client.message(P, "m1", {"text": "hi"}, sender=C)
    started, message = await first_events(client, P, 2)
    assert (started.event_type, started.ref_id) == ("child_agent_started", C)
    assert (message.event_type, message.ref_id) == ("new_message", C)
    assert await client.children(P) == [C]


async def test_27_another_epoch_or_a_cursor_ahead_is_a_reset(
    client: EventClient, log: EventLog
) -> None:
    for cursors, epoch in (({P: 0}, "another"), ({P: 10**9}, log.epoch)):
        with pytest.raises(EventLogResetError) as reset:
            async with client.open(cursors, epoch=epoch):
                pass
        assert reset.value.epoch == log.epoch


async def test_26_a_stalled_reader_is_cut_and_resumes_with_its_cursor(log: EventLog) -> None:
    limits = Limits(stall_s=0.1)
    async with served(log, limits=limits) as running, client_of(running.url) as client:
        await client.register(P)
        with socket.create_connection(("127.0.0.1", running.port)) as reader:
            reader.sendall(b"GET /v1/agent/events/stream?run_ids[]=parent HTTP/1.1\r\n"
                           b"host: 127.0.0.1\r\n\r\n")  # fmt: skip
            for number in range(20):
                await client.message(P, f"m{number}", {"text": "x" * 500_000})
            await until_none_is_open(running)
    # With the usual limit: a busy machine lets any reader stall for a moment.
    async with served(log) as running, client_of(running.url) as client:
        assert [event.event_id for event in await first_events(client, P, 20)] == [
            f"m{number}" for number in range(20)
        ]


async def test_it_ends_in_time_with_streams_open(log: EventLog) -> None:
    async with (
        served(log) as running,
        client_of(running.url) as client,
        client.open({P: 0}, epoch=None) as stream,
    ):
        running.stop.set()
        with anyio.fail_after(patient(STOP_S)):
            assert [batch async for batch in stream.batches()] == []


async def test_a_reader_that_leaves_is_not_counted_any_more(
    client: EventClient, service: Served
) -> None:
    async with client.open({P: 0, C: 0}, epoch=None):
        assert service.service.streams.counts() == (1, 2)
    await until_none_is_open(service)
    status = await client.status()
    assert (status["open_streams"], status["waiting_runs"]) == (0, 1)


# --- workers -----------------------------------------------------------------------------------


async def test_a_worker_finds_claims_and_settles_a_run(client: EventClient) -> None:
    assert [(run.run_id, run.task) for run in await client.waiting()] == [(C, None)]
    await client.claim(C, worker="w1", execution_id="x1")
    run = await client.claim(C, worker="w1", execution_id="x1")  # the answer was lost
    assert (run.state, run.worker, run.task) == ("claimed", "w1", {"do": "it"})
    with pytest.raises(EventServiceError) as refusal:
        await client.claim(C, worker="w2", execution_id="x2")
    assert refusal.value.status == 409
    await client.rows(C, execution_id="x1", event_id="r1", rows=[{"seq": 0}])
    end = RunEvent("run_succeeded", C, "end", NOW, execution_id="x1", sequence=1)
    first = await client.publish(C, [end])
    assert await client.publish(C, [end]) == first
    assert (await client.run(C)).state == "settled"
    kinds = [event.event_type for event in await first_events(client, C, 2)]
    assert kinds == ["rows", "run_succeeded"]


async def test_a_request_for_runs_waits_for_the_first_one(client: EventClient) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    assert await client.waiting() == []
    found: list[RunId] = []

    async def wait() -> None:
        found.extend(run.run_id for run in await client.waiting(limit=1, hold_s=25))

    with anyio.fail_after(20):  # less than it would wait by itself
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for number in range(2):
                name = f"later-{number}"
                await client.register(RunId(name), parent_id=P, task={}, task_id=name)
    assert found == ["later-0"]
    assert [run.run_id for run in await client.waiting()] == ["later-0", "later-1"]


async def test_a_service_that_stops_answers_what_waits(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[str, object] = {}
    async with served(log) as running, client_of(running.url) as client:
        await client.register(P)
        await client.register(C, parent_id=P, task={}, task_id="t1")
        await client.claim(C, worker="w1", execution_id="x1")

        async def ask() -> None:
            question = {"execution_id": "x1", "event_id": "q1", "payload": {}}
            answers["ask"] = await client.ask(C, **question)  # type: ignore[arg-type]

        async def wait() -> None:
            answers["runs"] = await client.waiting(hold_s=25)

        with anyio.fail_after(20):  # less than either would wait by itself
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                tasks.start_soon(wait)
                while running.service.agents.holds() < 2:
                    await anyio.lowlevel.checkpoint()
                running.stop.set()
    assert answers == {"ask": None, "runs": []}
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_stream_may_be_of_some_types_alone(client: EventClient) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    for number in range(3):
        await client.rows(C, execution_id="x1", event_id=f"r{number}", rows=[number])
    await client.cancel(C, event_id="stop")
    async with client.open({C: 0}, epoch=None, types=["cancel", "new_message"]) as stream:
        batches = stream.batches()
        (event,) = await anext(batches)
        assert event.event_id == "stop"
        await client.rows(C, execution_id="x1", event_id="r3", rows=[3])
        await client.message(C, "hello", {})
        assert [event.event_id for event in await anext(batches)] == ["hello"]
        await batches.aclose()


async def test_a_lapsed_lease_settles_the_child_once_and_fences_its_worker(
    client: EventClient, service: Served
) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    service.clock.now_ms += 10_000
    await client.lease(C, execution_id="x1")
    service.clock.now_ms += 10_000
    assert (await client.run(C)).state == "claimed"  # renewed in time
    service.clock.now_ms += 10_000
    (event,) = await first_events(client, C, 1)
    assert (event.event_type, event.execution_id) == ("run_errored", "x1")
    with anyio.fail_after(60):
        while (await client.run(C)).state != "settled":
            pass
    for call in (
        client.lease(C, execution_id="x1"),
        client.rows(C, execution_id="x1", event_id="r1", rows=[1]),
    ):
        with pytest.raises(EventServiceError, match="Stop it") as refusal:
            await call
        assert refusal.value.status == 409
    late = RunEvent("run_succeeded", C, "late", NOW, execution_id="x1", sequence=1)
    assert await client.publish(C, [late]) == [event.sequence]  # there is one settlement
    run = await client.register(C, parent_id=P, task={"do": "more"}, task_id="t2")
    assert run.state == "waiting"  # it is continued


async def test_an_ask_waits_for_its_answer_and_can_be_asked_again(client: EventClient) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    question = {"execution_id": "x1", "event_id": "q1", "payload": {"may": "I"}}
    assert await client.ask(C, **question) is None  # type: ignore[arg-type]
    await client.answer(C, ask_id="q1", payload={"choice": "yes"})
    await client.answer(C, ask_id="q1", payload={"choice": "no"})  # too late
    assert await client.ask(C, **question) == {"choice": "yes"}  # type: ignore[arg-type]
    kinds = [event.event_type for event in await first_events(client, C, 2)]
    assert kinds == ["ask", "answer"]


async def test_a_cancel_reaches_the_runs_own_stream(client: EventClient) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    await client.cancel(C, event_id="stop-1", payload={"what": "turn"})
    (event,) = await first_events(client, C, 1)
    assert (event.event_type, event.event_id) == ("cancel", "stop-1")
    assert event.payload == {"what": "turn"}
    assert (await client.run(C)).state == "claimed"  # its worker says how it ended


async def test_a_cancel_settles_a_run_that_waits_and_no_other(client: EventClient) -> None:
    await client.cancel(C, event_id="stop-0", task_id="t0")  # of an earlier task
    assert (await client.run(C)).state == "waiting"
    for _ in range(2):  # tried again, since an answer was lost
        await client.cancel(C, event_id="stop-1", task_id="t1")
    assert (await client.run(C)).state == "settled"
    with pytest.raises(EventServiceError, match="cannot be claimed"):
        await client.claim(C, worker="w1", execution_id="x1")
    events = [event.event_type for event in await first_events(client, C, 3)]
    assert events == ["cancel", "cancel", "run_cancelled"]
    run = await client.register(C, parent_id=P, task={"do": "more"}, task_id="t2")
    assert run.state == "waiting"  # it is continued


async def test_homes_are_shown_until_they_are_silent(service: Served, client: EventClient) -> None:
    await client.tell_home("h1", {"open_connections": 1, "sessions": []})
    await client.tell_home("h2", {"open_connections": 2})
    await client.tell_home("h1", {"open_connections": 3})
    homes = (await client.status())["homes"]
    assert homes == [
        {"home": "h2", "open_connections": 2},
        {"home": "h1", "open_connections": 3},
    ]
    service.clock.now_ms += 46_000
    assert (await client.status())["homes"] == []
    with pytest.raises(EventServiceError, match="too long"):
        await client.tell_home("h1", {"sessions": "x" * 300_000})


async def test_items_that_are_no_events_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    good = RunEvent("rows", P, "e1", NOW, sequence=3)
    frames = [b"data: no json\n\n", b'data: {"sequence": 1}\n\n', b"data: []\n\n"]
    text = json.dumps({name: getattr(good, name) for name in (
        "event_type", "run_id", "event_id", "occurred_at", "sequence", "payload")})  # fmt: skip
    frames.append(f"id: 3\ndata: {text}\n\n".encode())
    from acp_bridge.runevents.client import HttpStream

    response = httpx.Response(200, content=_pieces(frames))
    assert [batch async for batch in HttpStream("e", response).batches()] == [[good]]
    assert caplog.text.count("is skipped") == 3


async def _pieces(frames: list[bytes]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield frame


async def test_a_home_lets_its_delivered_events_be_forgotten(client: EventClient) -> None:
    await client.claim(C, worker="w1", execution_id="x1")
    await client.rows(C, execution_id="x1", event_id="r1", rows=[1])
    end = RunEvent("run_succeeded", C, "s", NOW, execution_id="x1", sequence=1)
    (sequence,) = await client.publish(C, [end])
    await client.delivered(C, through=sequence)
    (event,) = await first_events(client, C, 1)
    assert event.sequence == sequence
    with pytest.raises(EventServiceError, match="whole number"):
        await client.delivered(C, through=-1)
    with pytest.raises(EventServiceError) as refusal:
        await client.delivered(RunId("nobody"), through=1)
    assert refusal.value.status == 404
