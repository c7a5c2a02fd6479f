"""Compaction in a live session: when, what the log holds of it, and what the model gets then."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fake_models import FakeCatalog, FakeModel, Said
from harness_rig import WAIT_S, FakeClient, Rig, bash, call, rig, script

from acp_bridge.harness.waiting import WaitingPrompt
from acp_bridge.models.script import script_from_text
from acp_bridge.models.scripted import ScriptedModel
from acp_bridge.ports import ModelRequest, StopChunk, TextChunk, UsageChunk
from acp_bridge.vocabulary import Answer, Command, Event, JsonObject, JsonValue, TurnEnd

pytestmark = pytest.mark.anyio

LONG = "a long story " * 600
"""About 1950 tokens, a fifth of the window."""

FULL: JsonObject = {"usage": {"input_tokens": 9000, "output_tokens": 100}}
LOW: JsonObject = {"usage": {"input_tokens": 100, "output_tokens": 10}}
TOO_LONG: JsonObject = {"error": {"status": 400, "message": "prompt is too long"}}
PLAN = call("p", "todo_write", todos=[{"content": "x", "status": "pending"}])


class Recorded(ScriptedModel):
    """A script that keeps what it was asked."""

    asked: list[ModelRequest]

    def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.asked.append(request)
        return super().stream(request)


def model(
    folder: Path, *answers: Sequence[object], summaries: Sequence[Sequence[object]] = ()
) -> Recorded:
    lines: list[object] = [{"context_window": 10_000}]
    lines += [{"stream": stream} for stream in answers]
    lines += [{"for": "compact", "stream": stream} for stream in summaries]
    text = "\n".join(map(json.dumps, lines))
    made = Recorded(script_from_text(text, name="s"), name="s", releases=folder)
    made.asked = []
    return made


def compact(r: Rig, instructions: str = "") -> WaitingPrompt:
    return r.session.admit(Command("compact", instructions))


def told(request: ModelRequest) -> list[str]:
    """Each message's role, and the beginning of its text."""
    return [f"{one['role']}: {_text(one)[:16]}" for one in request.messages]


def _text(message: JsonObject) -> str:
    content = message["content"]
    assert isinstance(content, list)
    blocks = [one for one in content if isinstance(one, dict)]
    return "".join(str(one.get("text", one.get("name"))) for one in blocks)


def kinds(r: Rig) -> list[str]:
    """The rows of turns, steps and compactions, and what stands on the surface."""
    return [
        event.type
        for event in r.session.events
        if event.type.startswith(("turn/", "step/", "compaction/")) or event.surface_op is not None
    ]


def checkpoint(r: Rig) -> Event:
    [found] = [
        event
        for event in r.session.events
        if event.type == "user/message" and isinstance(event.surface_op, tuple)
    ]
    return found


async def test_a_prompt_that_finds_no_room_is_answered_over_a_summary(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [{"text": "two"}],
        summaries=[[{"reasoning": "hm"}, {"text": "They talked."}, LOW]],
    )
    async with rig(tmp_path, m) as r:
        assert await r.prompt("first") == TurnEnd("completed")
        assert await r.prompt("second") == TurnEnd("completed")
        assert kinds(r)[7:] == [
            "turn/start",
            "user/message",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "step/start",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert r.writer.batches[3:5] == [
            ["compaction/start"],
            ["compaction/summary", "user/message", "compaction/end"],
        ]
        [start] = r.data("compaction/start")
        [summary] = r.data("compaction/summary")
        [end] = r.data("compaction/end")
        assert start == end == {"compactionId": start["compactionId"], "turn": 2}
        seqs = [event.seq for event in r.session.events if event.surface_op == "append"][1:3]
        assert summary["shadowedSeqs"] == seqs
        assert summary["shadowedRange"] == {"start": seqs[0], "end": seqs[1]}
        assert summary["summary"] == [{"type": "text", "text": "They talked."}]
        assert (summary["provider"], summary["model"]) == ("scripted", "s")
        assert isinstance(summary["usage"], dict)
        placed = checkpoint(r)
        assert placed.surface_op == (seqs[0], seqs[1])
        assert placed.source_event_seqs == (placed.seq - 2, placed.seq - 1, *seqs)
        assert r.data("request/header")[-1]["reason"] == "series"
    first, summing, second = m.asked
    assert told(first) == ["user: first"]
    assert told(summing)[:2] == ["user: first", "assistant: a long story a l"]
    assert len(summing.messages) == 3
    assert (summing.purpose, summing.tools, summing.system) == (
        "compact",
        first.tools,
        first.system,
    )
    assert told(second) == ["user: [The earlier par", "user: second"]
    assert "They talked." in _text(second.messages[0])


async def test_a_long_turn_is_compacted_between_two_steps(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, LOW],
        [{"text": "Planning."}, PLAN, FULL],
        [{"text": "done"}],
        summaries=[[{"text": "They plan."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.prompt("second") == TurnEnd("completed")
        assert kinds(r)[11:] == [
            "tool/result",
            "step/end",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "step/start",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
    assert told(m.asked[-1]) == [
        "user: [The earlier par",
        "user: second",
        "assistant: Planning.todo_wr",
        "tool: " + r.results()[0][:16],
    ]


async def test_what_comes_after_it_is_counted_anew(tmp_path: Path) -> None:
    """A provider's count from before is void, so nothing is compacted twice."""
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [{"text": "two"}],
        [{"text": "three"}],
        summaries=[[{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        for text in ("first", "second", "third"):
            assert await r.prompt(text) == TurnEnd("completed")
        assert len(r.data("compaction/start")) == 1
    assert told(m.asked[-1]) == [
        "user: [The earlier par",
        "user: second",
        "assistant: two",
        "user: third",
    ]


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ([TOO_LONG, "again"], None),
        ([{"error": {"status": 401, "message": "bad key"}}], "bad key"),
        ([{"tool_call": {"id": "t", "name": "read"}}], "the model wrote no summary"),
        ([{"text": "half"}, {"stop": "max_tokens"}], "cut off at its longest answer"),
        ([{"stop": "refusal"}], "the model refused"),
        ([{"text": LONG * 2}], "no shorter than what it stands for"),
    ],
)
async def test_a_compaction_that_fails_leaves_all_as_it_was_and_the_turn_goes_on(
    tmp_path: Path, summary: list[object], why: str | None
) -> None:
    summaries = [[TOO_LONG]] * 4 if why is None else [summary]
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [PLAN, FULL],
        [{"text": "two"}],
        summaries=summaries,
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.prompt("second") == TurnEnd("completed")
        [end] = r.data("compaction/end")
        assert (why or "prompt is too long") in str(end["error"])
        assert not r.data("compaction/summary")
        assert {event.surface_op for event in r.session.events} == {"append", None}
    # Not tried again in the same turn, although the window is as full as before.
    assert [request.purpose for request in m.asked].count("compact") == len(summaries)
    assert told(m.asked[-1])[:2] == ["user: first", "assistant: a long story a l"]


async def test_a_request_for_a_summary_that_is_too_long_is_cut_and_tried_again(
    tmp_path: Path,
) -> None:
    m = model(
        tmp_path,
        [{"text": LONG * 3}, FULL],
        [{"text": "two"}],
        summaries=[[TOO_LONG], [TOO_LONG], [{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.prompt("second") == TurnEnd("completed")
        assert len(r.data("compaction/summary")) == 1
    summing = [request for request in m.asked if request.purpose == "compact"]
    sizes = [len(str(request.messages)) for request in summing]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 2 * sizes[-1]
    assert [request.position for request in summing] == [0, 1, 2]


async def test_a_summary_is_retried_as_an_answer_is(tmp_path: Path) -> None:
    busy: JsonObject = {"error": {"status": 503, "message": "busy", "retry_after_s": 0}}
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [{"text": "two"}],
        summaries=[[busy], [{"text": "half"}, busy], [{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.prompt("second") == TurnEnd("completed")
        retries = r.data("plugin:acp-bridge/summary-retry")
        assert [one["retry"] for one in retries] == [1, 2]
        assert "half" not in str(checkpoint(r).data)


async def test_a_refused_request_is_compacted_once_and_asked_again(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, LOW],
        [TOO_LONG],
        [{"text": "two"}],
        summaries=[[{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.prompt("second") == TurnEnd("completed")
        assert [one for one in kinds(r)[7:] if one != "user/message"] == [
            "turn/start",
            "step/start",
            "step/end",
            "compaction/start",
            "compaction/summary",
            "compaction/end",
            "step/start",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
    assert told(m.asked[-1]) == ["user: [The earlier par", "user: second"]


async def test_a_request_that_stays_too_long_is_no_loop_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, LOW],
        [{"text": "short, so that it stays. " * 40}],
        [TOO_LONG],
        [TOO_LONG],
        [{"text": "three"}],
        summaries=[[{"text": "They talked."}]] * 2,
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        await r.prompt("short")
        end = await r.prompt("second")
        assert (end.kind, end.code) == ("error", "CONTEXT_WINDOW")
        assert end.details == (
            "prompt is too long. Send a shorter message, choose a model with a larger window, "
            "or go on in a new session."
        )
        assert len(r.data("compaction/start")) == 1
        assert await r.prompt("third") == TurnEnd("completed")
    assert "short, so that it stays" in str(m.asked[-1].messages)


async def test_a_first_prompt_that_is_too_long_is_summarized_for_the_next_one(
    tmp_path: Path,
) -> None:
    m = model(tmp_path, [TOO_LONG], [{"text": "fine"}], summaries=[[{"text": "A story."}]])
    async with rig(tmp_path, m) as r:
        end = await r.prompt(LONG * 5)
        assert (end.kind, end.code) == ("error", "CONTEXT_WINDOW")
        assert not r.data("compaction/start")
        assert await r.prompt("short") == TurnEnd("completed")
    assert "characters left out" in str(m.asked[1].messages), "as it is it would not fit"
    assert told(m.asked[2]) == ["user: [The earlier par", "user: short"]


async def test_it_can_be_switched_off_and_done_by_hand_then(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [TOO_LONG],
        [{"text": "three"}],
        summaries=[[{"text": "They talked."}]],
    )
    async with rig(tmp_path, m, compacts=False) as r:
        await r.prompt("first")
        end = await r.prompt("second")
        assert (end.kind, end.code) == ("error", "CONTEXT_WINDOW")
        assert "Make room with /compact" in str(end.details)
        assert not r.data("compaction/start")
        assert await r.ended(compact(r)) == TurnEnd("completed")
        assert await r.prompt("third") == TurnEnd("completed")
    assert told(m.asked[-1])[0] == "user: [The earlier par"


async def test_by_hand_it_is_a_command_with_the_user_s_wishes(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, LOW],
        [{"text": "two"}],
        summaries=[[{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        assert await r.ended(compact(r, "keep the names")) == TurnEnd("completed")
        assert [event.type for event in r.session.events][-6:] == [
            "command/run",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "command/done",
        ]
        [ran] = r.data("command/run")
        [start] = r.data("compaction/start")
        assert (start["turn"], start["sourceCommandId"]) == (None, ran["commandId"])
        source = checkpoint(r).data["source"]  # type: ignore[index,call-overload]
        assert source == {
            "kind": "compact-checkpoint",
            "compactionId": start["compactionId"],
            "sourceCommandId": ran["commandId"],
        }
        [done] = r.data("command/done")
        assert done["sourceEventSeq"] == checkpoint(r).seq - 1
        assert str(done["text"]).startswith("Compacted 2 messages into a summary: about 1,")
        assert await r.prompt("second") == TurnEnd("completed")
    assert "keep the names" in _text(m.asked[1].messages[-1])
    assert told(m.asked[2]) == ["user: [The earlier par", "user: second"]


async def test_nothing_to_compact_is_said_and_costs_no_call(tmp_path: Path) -> None:
    m = model(tmp_path, [{"text": "short"}], summaries=[[{"text": "They talked."}]])
    async with rig(tmp_path, m) as r:
        for _ in range(2):
            assert await r.ended(compact(r)) == TurnEnd("completed")
            done = r.data("command/done")[-1]
            assert (done["kind"], done["text"]) == ("error", "There is nothing to compact yet.")
            await r.prompt()
    assert [request.purpose for request in m.asked] == ["turn", "turn"]


async def test_a_failure_by_hand_is_said(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}],
        summaries=[[{"error": {"status": 400, "message": "bad"}}], [{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        await r.ended(compact(r))
        [done] = r.data("command/done")
        assert done["text"] == "The conversation stays as it is: bad."
        assert "sourceEventSeq" not in done
        await r.ended(compact(r))
        assert r.data("command/done")[-1]["kind"] == "success"
    assert [request.position for request in m.asked[1:]] == [0, 1]


async def test_a_cancel_ends_it_and_its_turn_and_the_next_prompt_works(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [{"text": "three"}],
        summaries=[[{"text": "half"}, {"wait": "never"}], [{"text": "They talked."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        turn = r.admit("second")
        await r.heard_row("compaction/start")
        r.session.cancel()
        assert await r.ended(turn) == TurnEnd("aborted")
        assert [event.type for event in r.session.events][-3:] == [
            "compaction/start",
            "compaction/end",
            "turn/end",
        ]
        assert r.data("compaction/end")[0]["error"] == "cancelled"
        assert await r.prompt("third") == TurnEnd("completed")
    # What was said stays, although its turn came to nothing.
    assert told(m.asked[-1]) == ["user: [The earlier par", "user: second", "user: third"]


async def test_a_cancel_ends_it_by_hand_too(tmp_path: Path) -> None:
    m = model(tmp_path, [{"text": LONG}], [{"text": "two"}], summaries=[[{"wait": "never"}]])
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        command = compact(r)
        await r.heard_row("compaction/start")
        r.session.cancel()
        assert await r.ended(command) == TurnEnd("aborted")
        assert [event.type for event in r.session.events][-2:] == [
            "compaction/end",
            "command/done",
        ]
        [done] = r.data("command/done")
        assert (done["kind"], done["text"]) == ("error", "Cancelled.")
        assert await r.prompt("second") == TurnEnd("completed")
    assert told(m.asked[-1])[0] == "user: first"


async def test_a_cancel_at_any_moment_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    fake = FakeModel("plain")
    summary: Said = [TextChunk(0, "They talked."), StopChunk("end_turn")]
    async with rig(tmp_path, FakeCatalog(fake)) as r:
        for n in range(30):
            fake.answers = [[TextChunk(0, LONG), UsageChunk(10, 10), StopChunk("end_turn")]]
            await r.prompt()
            fake.answers = [summary]
            command = compact(r)
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            r.session.cancel()
            with anyio.fail_after(WAIT_S):
                await command.ended()
            assert r.writer.state.compaction is None
            assert len(r.data("command/run")) == len(r.data("command/done"))


async def test_a_disk_that_fails_in_the_middle_is_an_error_and_closed_later(
    tmp_path: Path,
) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, FULL],
        [{"text": "three"}],
        summaries=[[{"text": "They talked."}]] * 3,
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        r.writer.fail = lambda drafts: drafts[0].type.startswith("compaction/s")
        end = await r.prompt("second")
        assert end.code == "STORE"
        r.writer.fail = lambda drafts: drafts[-1].type in {"compaction/end", "turn/end"}
        end = await r.prompt("third")
        assert end.code == "STORE"
        assert (await r.ended(compact(r))).code == "STORE"
        r.writer.fail = lambda _drafts: False
        assert await r.prompt("fourth") == TurnEnd("completed")
        assert r.writer.state.compaction is None


async def test_what_was_allowed_always_is_not_asked_again_after_it(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, bash("b1", "true")],
        [{"text": "one"}],
        [bash("b2", "true")],
        [{"text": "two"}],
        summaries=[[{"text": "They ran it."}]],
    )
    client = FakeClient(Answer.ALLOW_ALWAYS)
    async with rig(tmp_path, m, client=client) as r:
        await r.prompt("first")
        await r.ended(compact(r))
        assert r.data("command/done")[0]["kind"] == "success"
        await r.prompt("second")
        assert len(client.asks) == 1
        assert len(r.results()) == 2


async def test_mode_title_and_place_in_the_script_survive(tmp_path: Path) -> None:
    m = model(
        tmp_path,
        [{"text": LONG}, LOW],
        [{"text": "two"}],
        [{"text": "three"}],
        summaries=[[{"text": "They talked."}], [{"text": "Again."}]],
    )
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        await r.session.choose("mode", "plan")
        await r.ended(compact(r))
        assert await r.prompt(LONG) == TurnEnd("completed")
        memory: JsonValue = [r.session.options().mode, r.data("session/title")[-1]["title"]]
        assert memory == ["plan", "first"]
    async with rig(tmp_path, m) as r:
        assert r.session.options().mode == "plan"
        await r.ended(compact(r))
        assert "Again." in str(r.session.events[-3].data)
        await r.prompt("last")
        assert r.data("request/header")[-1]["reason"] == "resume"
        assert r.data("request/header")[-1]["startsSeries"] is True
    assert told(m.asked[-1]) == ["user: [The earlier par", "assistant: two", "user: last"]
    assert _text(m.asked[-1].messages[0]).count("<summary>") == 1


async def test_a_summary_of_scripts_takes_a_line_of_its_own(tmp_path: Path) -> None:
    m = script([{"text": LONG}], [{"text": "two"}], releases=tmp_path)
    async with rig(tmp_path, m) as r:
        await r.prompt("first")
        await r.ended(compact(r))
        assert "has no answer for agent 1" in str(r.data("command/done")[0]["text"])
        await r.prompt("second")
        assert "two" in str(r.session.events[-3].data)
