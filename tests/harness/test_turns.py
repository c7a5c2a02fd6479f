"""Turns over a real store: rows, their order and batches, and every way in which a turn can end."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from harness_rig import SESSION, FakeClient, bash, call, rig, script, store

from acp_bridge.harness import standing
from acp_bridge.harness import turn as turn_module
from acp_bridge.harness.tools import builtin_tools
from acp_bridge.harness.tools.bash import BashTool
from acp_bridge.models.recording import RecordingModel
from acp_bridge.ports import PermissionAsk, ToolResult
from acp_bridge.vocabulary import (
    Answer,
    Draft,
    JsonObject,
    JsonValue,
    Prompt,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    TurnEnd,
)

pytestmark = pytest.mark.anyio

ADMISSION = [
    "permission/preset",
    "sandbox/mode",
    "approval/policy",
    "plugin:acp-bridge/place",
    "agent/inbox/spliced",
    "turn/start",
    "agent/inbox/spliced",
    "step/start",
    "system/message",
    "user/message",
    "request/header",
    "request/context",
    "session/title",
]
LATER_ADMISSION = [
    "agent/inbox/spliced",
    "turn/start",
    "agent/inbox/spliced",
    "step/start",
    "user/message",
]
ENDING = ["assistant/message", "step/end", "turn/end"]
OK: list[JsonValue] = [{"text": "ok"}]
RETRY_NOW: JsonObject = {"error": {"status": 503, "message": "busy", "retry_after_s": 0}}


async def test_a_text_turn_takes_two_durable_batches(tmp_path: Path) -> None:
    model = script([{"text": "Hi"}], [{"text": "again"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        assert await r.prompt("first\nline") == TurnEnd("completed")
        assert r.writer.batches == [ADMISSION, ENDING]
        assert await r.prompt() == TurnEnd("completed")
        assert r.writer.batches[2:] == [LATER_ADMISSION, ENDING]
        assert r.reason() == {"kind": "completed"}
        assert [d.text for d in r.told if isinstance(d, StreamDelta)] == ["Hi", "again"]
        assert r.data("session/title")[0]["messageSeqs"] == [9]
        assert not r.session.busy


async def test_a_tool_step_adds_one_batch_for_calls_and_one_for_results(tmp_path: Path) -> None:
    model = script([call("c", "read", file_path="a.txt")], [{"text": "ok"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        (r.cwd / "a.txt").write_text("one\n")
        await r.prompt()
        assert r.writer.batches[1:] == [
            ["assistant/message", "tool/call"],
            ["tool/result", "step/end", "step/start"],
            ENDING,
        ]
        result = next(e for e in r.rows if e.type == "tool/result")
        asked = next(e for e in r.rows if e.type == "tool/call")
        assert result.source_event_seqs == (asked.seq,)
        assert r.client.asks == []


@pytest.mark.parametrize(
    ("answer", "outcome", "runs"),
    [
        (Answer.ALLOW_ONCE, "allowed-once", True),
        (Answer.ALLOW_ALWAYS, "allowed-once", True),
        (Answer.REJECT, "rejected", False),
        (Answer.CANCELLED, "cancelled", False),
        (Answer.UNAVAILABLE, "unavailable", False),
    ],
)
async def test_a_question_and_its_answer_come_before_the_call(
    tmp_path: Path, answer: Answer, outcome: str, runs: bool
) -> None:
    model = script(
        [call("c", "write", file_path="a.txt", content="x")], [{"text": "ok"}], releases=tmp_path
    )
    async with rig(tmp_path, model, client=FakeClient(answer)) as r:
        assert await r.prompt() == TurnEnd("completed")
        grant = ["plugin:acp-bridge/grant"] if answer is Answer.ALLOW_ALWAYS else []
        assert r.writer.batches[1:] == [
            ["assistant/message", "approval/asked"],
            ["approval/decided", *grant, "tool/call"],
            ["tool/result", "step/end", "step/start"],
            ENDING,
        ]
        assert r.data("approval/decided")[0]["outcome"] == outcome
        assert (r.cwd / "a.txt").exists() == runs
        preview = next(e for e in r.told if isinstance(e, ToolPreview))
        assert preview.diffs[0].new_text == "x"
        (ask,) = r.client.asks
        assert (ask.call_id, ask.tool_name) == ("c", "write")
        error = r.data("tool/result")[0].get("error")
        assert error == (None if runs else {"name": "ToolRejectedError", "code": "REJECTED"})


async def test_parallel_calls_run_side_by_side_and_are_asked_for_in_order(tmp_path: Path) -> None:
    model = script(
        [
            bash("a", "touch a; until test -e b; do sleep 0.01; done"),
            call("r", "read", file_path="x"),
            bash("b", "touch b; until test -e a; do sleep 0.01; done"),
        ],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    client = FakeClient(Answer.ALLOW_ONCE, Answer.ALLOW_ONCE)
    async with rig(tmp_path, model, client=client) as r:
        await r.prompt()
        assert [ask.call_id for ask in client.asks] == ["a", "b"]
        first = [e.type for e in r.rows if e.type in {"approval/asked", "tool/call"}]
        assert first[:3] == ["approval/asked", "tool/call", "approval/asked"]
        assert len(r.data("tool/result")) == 3


async def test_rejecting_one_call_leaves_the_others(tmp_path: Path) -> None:
    model = script([bash("a", "echo a"), bash("b", "echo b")], [{"text": "ok"}], releases=tmp_path)
    client = FakeClient(Answer.REJECT, Answer.ALLOW_ONCE)
    async with rig(tmp_path, model, client=client) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert "rejected" in r.results()[0]
        assert "b" in r.results()[1]


async def test_always_covers_what_its_label_says_and_survives_a_reopen_r087(tmp_path: Path) -> None:
    model = script(
        [bash("a", "git version"), bash("b", "git version -v"), bash("c", "git status")],
        [bash("d", "git version")],
        [bash("e", "git version")],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    client = FakeClient(Answer.ALLOW_ALWAYS, Answer.REJECT)
    async with rig(tmp_path, model, client=client) as r:
        await r.prompt()
        assert [ask.call_id for ask in client.asks] == ["a", "c"]
    client = FakeClient()
    model = script(
        *[[{"text": "-"}]] * 4, [bash("f", "git version")], [{"text": "ok"}], releases=tmp_path
    )
    async with rig(tmp_path, model, client=client) as r:
        await r.prompt()
        assert r.data("tool/call")[-1]["callId"] == "f"
        assert client.asks == []


@pytest.mark.parametrize(
    ("item", "says", "code"),
    [
        (call("c", "teleport"), 'unknown tool "teleport"', "UNKNOWN_TOOL"),
        ({"tool_call": {"id": "c", "name": "read", "arguments_text": "{no"}}, "JSON", None),
        ({"tool_call": {"id": "c", "name": "read", "arguments_text": "[]"}}, "object", None),
        (call("c", "read"), "file_path", None),
        (call("c", "read", file_path=3), "file_path", None),
    ],
)
async def test_a_call_that_cannot_run_is_answered_and_the_turn_goes_on(
    tmp_path: Path, item: JsonObject, says: str, code: str | None
) -> None:
    async with rig(tmp_path, script([item], [{"text": "ok"}], releases=tmp_path)) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert says in r.results()[0]
        error = r.data("tool/result")[0]["error"]
        assert isinstance(error, dict)
        assert code in {None, error["code"]}
        assert r.client.asks == []


async def test_ids_used_twice_by_the_model_make_a_sound_log_r083(tmp_path: Path) -> None:
    model = script(
        [call("c", "glob", pattern="*"), call("c", "glob", pattern="*")],
        [call("c", "glob", pattern="*")],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert [d["callId"] for d in r.data("tool/call")] == ["c", "c~2", "c"]


async def test_a_retry_that_works_is_no_error_r046(tmp_path: Path) -> None:
    model = script([{"text": "Ha"}, RETRY_NOW], [RETRY_NOW], [{"text": "Hi"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert r.writer.batches[1:] == [
            ["assistant/attempt", "llm/retry"],
            ["llm/retry-started"],
            ["assistant/attempt", "llm/retry"],
            ["llm/retry-started"],
            ENDING,
        ]
        assert [d["retry"] for d in r.data("llm/retry")] == [1, 2]
        assert len({str(d["retryId"]) for d in r.data("llm/retry")}) == 1
        deltas = [(d.attempt, d.text) for d in r.told if isinstance(d, StreamDelta)]
        assert deltas == [(1, "Ha"), (3, "Hi")]


async def test_retries_end(tmp_path: Path) -> None:
    model = script(*[[RETRY_NOW]] * 6, [{"text": "next"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("error", "busy", "SERVER")
        assert len(r.data("llm/retry")) == 5
        assert len(r.data("assistant/attempt")) == 6
        assert r.reason() == {
            "kind": "error",
            "error": {"message": "busy", "code": "SERVER", "status": 503},
        }
        assert await r.prompt() == TurnEnd("completed")


@pytest.mark.parametrize(
    ("stream", "code", "tries"),
    [
        ([{"error": {"status": 401, "message": "bad key"}}], "AUTH", 1),
        ([{"text": "so far"}, {"error": {"status": 400, "message": "m"}}], "INVALID_REQUEST", 1),
        ([{"error": {"status": 429, "message": "m", "retry_after_s": 999}}], "RATE_LIMIT", 1),
        (None, "SCRIPT_EXHAUSTED", 1),
    ],
)
async def test_a_final_failure_ends_the_turn_as_an_error_and_the_next_works(
    tmp_path: Path, stream: list[JsonValue] | None, code: str, tries: int
) -> None:
    model = script(*(() if stream is None else (stream, OK)), releases=tmp_path)
    async with rig(tmp_path, model) as r:
        end = await r.prompt()
        assert (end.kind, end.code) == ("error", code)
        assert len(r.data("assistant/attempt")) == tries
        assert (await r.prompt()).kind == ("error" if stream is None else "completed")


@pytest.mark.parametrize(
    "bad", [[], [{"text": ""}], [{"usage": {"input_tokens": 1}}], [{"stop": "end_turn"}]]
)
async def test_an_empty_answer_is_tried_again(
    tmp_path: Path, bad: list[JsonValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.harness.retry.FIRST_DELAY_S", 0)
    model = script(bad, [{"text": "ok"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("completed")
        failure = r.data("llm/retry")[0]["failure"]
        assert isinstance(failure, dict)
        assert failure["code"] == "EMPTY_RESPONSE"


async def test_a_cut_stream_is_tried_again_and_its_text_stays_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.harness.retry.FIRST_DELAY_S", 0)
    model = script([{"text": "Ha"}, {"disconnect": True}], [{"text": "Hi"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert "Ha" in str(r.data("assistant/attempt")[0]["stream"])


async def test_a_refusal_is_no_failure_and_runs_no_call(tmp_path: Path) -> None:
    model = script(
        [{"text": "I will not."}, call("c", "glob", pattern="*"), {"stop": "refusal"}],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    async with rig(tmp_path, model) as r:
        assert (await r.prompt()).kind == "refusal"
        assert r.data("tool/call") == []
        assert (await r.prompt()).kind == "completed"


async def test_a_token_limit_drops_the_calls(tmp_path: Path) -> None:
    model = script(
        [{"text": "I was"}, call("c", "glob", pattern="*"), {"stop": "max_tokens"}],
        [{"stop": "max_tokens"}],
        [{"text": "ok"}],
        releases=tmp_path,
    )
    async with rig(tmp_path, model) as r:
        assert await r.prompt() == TurnEnd("max-tokens")
        assert r.reason() == {"kind": "max-tokens"}
        assert r.data("tool/call") == []
        message = r.data("assistant/message")[0]["message"]
        assert isinstance(message, dict)
        assert message["content"] == [{"type": "text", "text": "I was"}]
        assert await r.prompt() == TurnEnd("max-tokens")
        assert await r.prompt() == TurnEnd("completed")


async def test_a_turn_has_a_step_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "STEPS_MAX", 2)
    steps: list[list[JsonObject]] = [[call("c", "glob", pattern="*")]] * 2
    async with rig(tmp_path, script(*steps, [{"text": "ok"}], releases=tmp_path)) as r:
        assert (await r.prompt()).kind == "step-limit"
        assert len(r.data("tool/result")) == 2
        assert "STEP_LIMIT" in str(r.reason())
        assert (await r.prompt()).kind == "completed"


async def test_a_command_tells_its_output_as_it_comes(tmp_path: Path) -> None:
    model = script([bash("c", "echo out")], [{"text": "ok"}], releases=tmp_path)
    async with rig(tmp_path, model, client=FakeClient(Answer.ALLOW_ONCE)) as r:
        await r.prompt()
        assert "".join(e.text for e in r.told if isinstance(e, ToolOutput)) == "out\n"


async def test_a_tool_that_breaks_is_a_result(tmp_path: Path) -> None:
    class Broken(BashTool):
        async def preview(self, *_args: object) -> tuple[()]:
            raise RuntimeError("no preview")

        async def run(self, *_args: object) -> ToolResult:
            raise RuntimeError("no run")

    model = script([bash("c", "echo")], [{"text": "ok"}], releases=tmp_path)
    client = FakeClient(Answer.ALLOW_ONCE)
    async with rig(tmp_path, model, client=client, tools=[Broken()]) as r:
        assert await r.prompt() == TurnEnd("completed")
        assert "unexpected way" in r.results()[0]


async def test_messages_that_the_other_harness_left_run_first(tmp_path: Path) -> None:
    model = script(*[[{"text": "ok"}]] * 3, releases=tmp_path)
    async with rig(tmp_path, model) as r:
        left: list[JsonValue] = [
            {
                "content": [{"type": "text", "text": "left"}],
                "source": {"kind": "user"},
                "role": "user",
                "id": f"left-{n}",
            }
            for n in range(2)
        ]
        splice = Draft("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": left})
        await r.session._desk.committer.commit([splice])
    async with rig(tmp_path, model) as r:
        assert await r.prompt("new") == TurnEnd("completed")
        texts = [str(data["content"]) for data in r.data("user/message")]
        assert ["left" in text for text in texts] == [True, True, False]
        assert [d["id"] for d in r.data("user/message")][:2] == ["left-0", "left-1"]
        assert r.writer.state.inbox["next-turn"] == []


async def test_a_disk_that_fails_ends_the_turn_and_the_next_one_repairs(tmp_path: Path) -> None:
    """At whichever batch of a turn with a call the disk fails, the log stays sound."""
    for failing in range(6):
        folder = tmp_path / str(failing)
        folder.mkdir()
        stream: list[JsonValue] = [{"text": "Hm"}, call("c", "write", file_path="a", content="x")]
        model = script(*(stream, OK) * 3, releases=tmp_path)
        client = FakeClient(*[Answer.ALLOW_ONCE] * 5)
        async with rig(folder, model, client=client) as r:
            count = 0

            def fail(_drafts: Sequence[Draft]) -> bool:
                nonlocal count
                count += 1
                return count > failing  # noqa: B023

            r.writer.fail = fail
            end = await r.prompt()
            if failing < 5:
                assert end == TurnEnd("error", "The disk is full.", "STORE")
            r.writer.fail = lambda _drafts: False
            assert (await r.prompt()).kind == "completed"


async def test_a_disk_that_fails_once_loses_no_told_text(tmp_path: Path) -> None:
    model = script([{"text": "precious"}], [{"text": "ok"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        failed: list[int] = []

        def fail(drafts: Sequence[Draft]) -> bool:
            if not failed and drafts[0].type == "assistant/message":
                failed.append(1)
                return True
            return False

        r.writer.fail = fail
        assert (await r.prompt()).code == "STORE"
        assert "precious" in str(r.data("assistant/message"))
        assert (await r.prompt()).kind == "completed"


async def test_a_model_that_breaks_ends_the_turn_and_not_the_session(tmp_path: Path) -> None:
    model = script([{"text": "a"}], [{"text": "ok"}], releases=tmp_path)
    good = model.stream

    def broken(_request: object) -> object:
        raise RuntimeError("no")

    async with rig(tmp_path, model) as r:
        model.stream = broken  # type: ignore[method-assign,assignment]
        assert (await r.prompt()).code == "INTERNAL"
        model.stream = good  # type: ignore[method-assign]
        assert (await r.prompt()).kind == "completed"


async def test_what_the_model_sees(tmp_path: Path) -> None:
    model = script(
        [{"text": "a"}, call("c", "glob", pattern="*")], [{"text": "b"}], releases=tmp_path
    )
    seen = tmp_path / "seen.jsonl"
    async with rig(tmp_path, RecordingModel(model, seen)) as r:
        block: JsonObject = {"type": "text", "text": "x", "_meta": {"acp": {"uri": "secret"}}}
        turn = r.session.admit(Prompt([block], title="t"))
        await r.ended(turn)
    first, second = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [m["role"] for m in first["messages"]] == ["user"]
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert (first["position"], second["position"]) == (0, 1)
    assert "secret" not in seen.read_text()
    assert str(r.cwd) in first["system"]
    assert len(first["tools"]) == 7


async def test_a_changed_prompt_replaces_the_head_and_tools_are_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = script([{"text": "a"}], [{"text": "b"}], releases=tmp_path)
    async with rig(tmp_path, model) as r:
        await r.prompt()
    monkeypatch.setattr(standing, "system_prompt", lambda _cwd, _mode, **_: "other")
    async with rig(tmp_path, model, tools=builtin_tools()[:1]) as r:
        await r.prompt()
        assert [d["reason"] for d in r.data("request/header")] == ["initial", "resume"]
        heads = [e for e in r.session.events if e.type == "system/message"]
        assert heads[1].surface_op == (heads[0].seq, heads[0].seq)
    assert SESSION in store(tmp_path).session_ids()


async def test_an_ask_in_one_session_holds_no_other_call_of_it(tmp_path: Path) -> None:
    model = script(
        [bash("a", "echo a"), call("g", "glob", pattern="*")], [{"text": "ok"}], releases=tmp_path
    )
    client = FakeClient()
    gate = anyio.Event()

    async def reply(_ask: PermissionAsk) -> Answer:
        await gate.wait()
        return Answer.ALLOW_ONCE

    client.replier = reply
    async with rig(tmp_path, model, client=client) as r:
        turn = r.admit()
        await r.heard_row("tool/result")
        gate.set()
        assert await r.ended(turn) == TurnEnd("completed")
