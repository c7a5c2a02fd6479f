"""What a client is shown of a compaction, and how much of the window is told to be taken then."""

from pathlib import Path

import pytest

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.compactions import SUMMARY_CHARS_MAX
from acp_bridge.bridge.projector import Projector
from acp_bridge.vocabulary import Event, JsonObject

START = ("compaction/start", {"compactionId": "k", "turn": None})
RETRY = (
    "plugin:acp-bridge/summary-retry",
    {"compactionId": "k", "retry": 1, "maxRetries": 5, "failure": {"message": "busy"}},
)
END = ("compaction/end", {"compactionId": "k", "turn": None})


def failed(error: str) -> tuple[str, JsonObject]:
    return ("compaction/end", {"compactionId": "k", "turn": None, "error": error})


def summary(text: str = "They talked.", *, freed: int = 700, **more: object) -> tuple[str, object]:
    return (
        "compaction/summary",
        {"summary": [{"type": "text", "text": text}], "shadowedTokenCount": freed, **more},
    )


def window(size: int, *, used: int) -> list[tuple[str, object]]:
    usage: JsonObject = {"inputTokens": used, "outputTokens": 0}
    return [
        ("request/context", {"contextWindow": size}),
        ("assistant/message", {"usage": usage, "stream": []}),
    ]


def shown(*rows: tuple[str, object], items: bool = True, replay: bool = False) -> list[JsonObject]:
    fold = Projector(cwd=Path("/w"), view=View(compactions=items), replay=replay)
    updates = [
        unstructure(update)
        for seq, (kind, data) in enumerate(rows)
        for update in fold.project(Event(seq, 0, kind, data))  # type: ignore[arg-type]
    ]
    return [*updates, *(unstructure(update) for update in fold.finish_replay() if replay)]


def item(status: str, **more: object) -> JsonObject:
    made: JsonObject = {"sessionUpdate": "compaction_update", "compactionId": "k"}
    return {**made, "status": status, **more}  # type: ignore[dict-item]


@pytest.mark.parametrize("replay", [False, True])
def test_a_client_that_takes_compactions_gets_one_item_that_changes(replay: bool) -> None:
    done = item("completed", summary=[{"type": "text", "text": "They talked."}])
    assert shown(START, RETRY, summary(), END, replay=replay) == [item("in_progress"), done]
    assert shown(START, failed("no"), replay=replay)[1] == item("failed", error="no")
    assert shown(START, failed("cancelled"), replay=replay)[1] == item("cancelled")


@pytest.mark.parametrize("replay", [False, True])
def test_other_clients_get_one_thought(replay: bool) -> None:
    updates = shown(START, RETRY, summary(), END, items=False, replay=replay)
    assert {update["sessionUpdate"] for update in updates} == {"agent_thought_chunk"}
    assert {update["messageId"] for update in updates} == {"compaction.k"}
    texts = [update["content"]["text"] for update in updates]  # type: ignore[call-overload,index]
    assert texts == [
        "Summarizing what was said before…\n",
        "The model call failed: busy. Trying again (1 of 5).\n",
        "Done: the model goes on from a summary of it.\n",
    ]
    assert "That failed: no." in str(shown(START, failed("no"), items=False))
    assert "Cancelled." in str(shown(START, failed("cancelled"), items=False))


def test_one_that_a_kill_cut_off_is_cancelled_where_the_log_goes_on() -> None:
    seed: tuple[str, JsonObject] = ("session/end-seed", {})
    assert shown(START, seed) == [item("in_progress"), item("cancelled")]
    assert shown(START, END, seed)[-1]["status"] == "completed"
    assert shown(START, seed, seed, END) == [item("in_progress"), item("cancelled")]


def test_a_summary_never_makes_a_line_that_is_too_long() -> None:
    [_, done] = shown(START, summary("x" * (SUMMARY_CHARS_MAX + 1)), END)
    text = str(done["summary"][0]["text"])  # type: ignore[index,call-overload]
    assert len(text) == SUMMARY_CHARS_MAX
    assert text.endswith("…")


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(
    ("told", "left"),
    [
        (summary("x" * 40, freed=700), 310),
        (summary("x" * 40, freed=700, usage={"inputTokens": 5, "outputTokens": 50}), 350),
        (summary("x" * 40, freed=2000), 10),
    ],
)
def test_the_usage_drops_by_what_the_summary_stands_for(
    told: tuple[str, object], left: int, replay: bool
) -> None:
    updates = shown(*window(5000, used=1000), START, told, END, replay=replay)
    assert updates[-1] == {"sessionUpdate": "usage_update", "used": left, "size": 5000}


def test_the_usage_stays_where_the_compaction_failed_and_never_grows() -> None:
    updates = shown(*window(5000, used=1000), START, summary(), failed("no"))
    assert updates[-1]["sessionUpdate"] == "compaction_update"
    updates = shown(*window(5000, used=3), START, summary("x" * 4000), END)
    assert updates[-1]["used"] == 3
    assert shown(START, summary(), END)[-1]["sessionUpdate"] == "compaction_update"
