"""One session of each kind, written by the assembled bridge: what the real runtime must take.

A case plays one session, whose scripted answers stand under its place in the process, and names
what a model must be told of it afterwards, in that order.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
from acp_rig import Bench, Editor, bash, said, selected, write
from picture_bytes import png

from acp_bridge.testing.check import problems
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue

Play: TypeAlias = Callable[[Editor, Bench, str], Awaitable[str]]


@attrs.frozen
class Case:
    """One kind of session, how it comes about, and what a later request holds of it, and not."""

    name: str
    play: Play
    holds: tuple[str, ...]
    lacks: tuple[str, ...] = ()


def ask_no_one(_request: JsonObject) -> JsonObject | None:
    return None


async def _text(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"reasoning": "hm"}, {"text": "It is a parser."}], agent=place)
    bench.answers([{"text": "Yes, “sicher”."}], agent=place)
    session_id = await editor.new(bench.cwd)
    await editor.prompt(session_id, "What is this?")
    await editor.prompt(session_id, "Are you sure, größer?")
    return session_id


async def _tools(editor: Editor, bench: Bench, place: str) -> str:
    todos: JsonValue = [{"content": "x", "status": "pending"}]
    plan: JsonObject = {
        "tool_call": {"id": "t3", "name": "todo_write", "arguments": {"todos": todos}}
    }
    bench.answers([write("t1", "new.txt"), bash("t2", "echo out-of-bash"), plan], agent=place)
    bench.answers([{"text": "All done."}], agent=place)
    session_id = await editor.new(bench.cwd)
    assert await editor.prompt(session_id, "Write it") == "end_turn"
    return session_id


async def _rejected(editor: Editor, bench: Bench, place: str) -> str:
    editor.reply = lambda _request: selected("reject-once")
    bench.answers([{"text": "May I?"}, write("r1", "no.txt")], agent=place)
    bench.answers([{"text": "Then not."}], agent=place)
    session_id = await editor.new(bench.cwd)
    await editor.prompt(session_id, "Try it")
    return session_id


async def _cancelled_text(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "Half an answer"}, {"wait": "never"}], agent=place)
    session_id = await editor.new(bench.cwd)
    prompt = await editor.start("session/prompt", said(session_id, "A long story"))
    await editor.seen_text("Half an answer")
    await editor.cancel(session_id)
    assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
    return session_id


async def _cancelled_tool(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([bash("c1", "echo started; sleep 60"), write("c2", "later.txt")], agent=place)
    session_id = await editor.new(bench.cwd)
    prompt = await editor.start("session/prompt", said(session_id, "Run it"))
    await editor.seen(lambda m: "in_progress" in str(m) and session_id in str(m))
    await editor.cancel(session_id)
    assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
    return session_id


async def _cancelled_question(editor: Editor, bench: Bench, place: str) -> str:
    editor.reply = ask_no_one
    bench.answers([write("q1", "asked.txt"), write("q2", "never.txt")], agent=place)
    session_id = await editor.new(bench.cwd)
    prompt = await editor.start("session/prompt", said(session_id, "Ask me"))
    await editor.seen(
        lambda m: m.get("method") == "session/request_permission" and session_id in str(m)
    )
    await editor.cancel(session_id)
    assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
    return session_id


async def _failed(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "a"}, {"error": {"status": 400, "message": "bad"}}], agent=place)
    bench.answers([{"error": {"status": 401, "message": "bad key"}}], agent=place)
    session_id = await editor.new(bench.cwd)
    await editor.refused("session/prompt", said(session_id, "It fails"))
    await editor.refused("session/prompt", said(session_id, "and again"))
    return session_id


async def _cut_short(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "Too long"}, write("m1"), {"stop": "max_tokens"}], agent=place)
    bench.answers([{"text": "I will not"}, {"stop": "refusal"}], agent=place)
    session_id = await editor.new(bench.cwd)
    assert await editor.prompt(session_id, "Go on") == "max_tokens"
    await editor.prompt(session_id, "Do evil")
    return session_id


async def _modes(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "In ask."}], [{"text": "In plan."}], [{"text": "Full."}], agent=place)
    session_id = await editor.new(bench.cwd)
    await editor.prompt(session_id, "one")
    for mode in ("plan", "full"):
        await editor.call("session/set_mode", {"sessionId": session_id, "modeId": mode})
        await editor.prompt(session_id, f"now {mode}")
    await editor.call("session/set_mode", {"sessionId": session_id, "modeId": "ask"})
    return session_id


async def _commands(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "Hello to you."}], agent=place)
    session_id = await editor.new(bench.cwd)
    for words in ("/title The first", "/help", "hello", "/mode plan", "/mode nope", "/title Last"):
        await editor.prompt(session_id, words)
    return session_id


async def _only_commands(editor: Editor, bench: Bench, _place: str) -> str:
    session_id = await editor.new(bench.cwd)
    await editor.prompt(session_id, "/title Nothing but a title")
    return session_id


async def _attachments(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "I read them."}], agent=place)
    session_id = await editor.new(bench.cwd)
    blocks: list[JsonValue] = [
        {"type": "text", "text": "Look at"},
        {"type": "resource_link", "uri": "file:///a%20b.py#L9:15", "name": "b"},
        {"type": "resource", "resource": {"uri": "file:///c", "text": "whole of c"}},
    ]
    await editor.call("session/prompt", {"sessionId": session_id, "prompt": blocks})
    return session_id


async def _image(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": "A dot."}], agent=place)
    session_id = await editor.new(bench.cwd)
    blocks: list[JsonValue] = [
        {"type": "text", "text": "See"},
        {"type": "image", "data": png(), "mimeType": "image/png"},
    ]
    await editor.call("session/prompt", {"sessionId": session_id, "prompt": blocks})
    return session_id


LONG = "a long story " * 5000
"""More than a tenth of a script's window: worth to be summarized."""
FULL: JsonObject = {"usage": {"input_tokens": 110_000, "output_tokens": 100}}


async def _compacted_by_hand(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": LONG}], [{"text": "After the summary."}], agent=place)
    busy: JsonObject = {"error": {"status": 503, "message": "busy", "retry_after_s": 0}}
    bench.summaries([busy], [{"text": "They spoke of größer."}], agent=place)
    session_id = await editor.new(bench.cwd)
    for words in ("Before it", "/compact keep größer", "After it"):
        assert await editor.prompt(session_id, words) == "end_turn"
    return session_id


async def _compacted_in_a_turn(editor: Editor, bench: Bench, place: str) -> str:
    plan: JsonObject = {"tool_call": {"id": "k1", "name": "todo_write", "arguments": {"todos": []}}}
    bench.answers([{"text": LONG}], [plan, FULL], [{"text": LONG}, FULL], agent=place)
    bench.answers([{"text": "After both."}], agent=place)
    bench.summaries([{"text": "First summary."}], [{"text": "Second summary."}], agent=place)
    session_id = await editor.new(bench.cwd)
    for words in ("Before it", "In the middle", "After it"):
        assert await editor.prompt(session_id, words) == "end_turn"
    return session_id


async def _compaction_cancelled(editor: Editor, bench: Bench, place: str) -> str:
    bench.answers([{"text": LONG}, FULL], agent=place)
    bench.summaries([{"text": "Half a summary"}, {"wait": "never"}], agent=place)
    session_id = await editor.new(bench.cwd)
    await editor.prompt(session_id, "Before it")
    prompt = await editor.start("session/prompt", said(session_id, "In the middle"))
    await editor.seen(lambda m: "Summarizing" in str(m) and session_id in str(m))
    await editor.cancel(session_id)
    assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
    return session_id


CASES = (
    Case("text", _text, ("What is this?", "It is a parser.", "größer?", "“sicher”")),
    Case("tools", _tools, ("Write it", '"t1"', '"t2"', '"t3"', "out-of-bash", "All done.")),
    Case("rejected", _rejected, ("Try it", "May I?", '"r1"', "Then not.")),
    Case("cancelled text", _cancelled_text, ("A long story", "Half an answer")),
    Case("cancelled tool", _cancelled_tool, ("Run it", '"c1"', '"c2"')),
    Case("cancelled question", _cancelled_question, ("Ask me", '"q1"', '"q2"')),
    Case("failed", _failed, ("It fails", "and again")),
    Case("cut short", _cut_short, ("Go on", "Too long", "Do evil")),
    Case("modes", _modes, ("one", "In ask.", "now plan", "In plan.", "now full", "Full.")),
    Case("commands", _commands, ("hello", "Hello to you.")),
    Case("only commands", _only_commands, ()),
    Case("attachments", _attachments, ("Look at", "a b.py", "whole of c", "I read them.")),
    Case("image", _image, ("See", "A dot.")),
    Case(
        "compacted by hand",
        _compacted_by_hand,
        ("<summary>", "They spoke of größer.", "After it", "After the summary."),
        ("Before it", "a long story"),
    ),
    Case(
        "compacted in a turn",
        _compacted_in_a_turn,
        ("<summary>", "Second summary.", "After it", "After both."),
        ("Before it", "a long story", "First summary.", '"k1"'),
    ),
    Case(
        "compaction cancelled",
        _compaction_cancelled,
        ("Before it", "a long story", "In the middle"),
        ("<summary>",),
    ),
)

REOPENED = ("text", "tools", "cancelled tool", "image", "compacted in a turn")
"""The cases that are loaded and continued once more by the bridge before the runtime has them."""


async def write_sessions(bench: Bench) -> dict[str, str]:
    """Play every case on one bridge, and some once more on a second; the ids by case."""
    ids = await play_cases(bench, CASES)
    await continue_sessions(bench, {name: ids[name] for name in REOPENED}, "reopened")
    return ids


async def play_cases(bench: Bench, cases: Sequence[Case]) -> dict[str, str]:
    """Play these on one bridge; the ids by case."""
    ids: dict[str, str] = {}
    async with bench.editor() as editor:
        usual = editor.reply
        for place, case in enumerate(cases, start=1):
            editor.reply = usual
            ids[case.name] = await case.play(editor, bench, str(place))
    return ids


async def continue_sessions(bench: Bench, ids: dict[str, str], words: str) -> dict[str, str]:
    """Load sessions on a fresh bridge and have a turn in each: ``words``, then "Heard" and they.

    What each load showed comes back, as one text.
    """
    bench.script = bench.folder / f"{words}.jsonl"
    shown: dict[str, str] = {}
    async with bench.editor() as editor:
        always_say(bench, f"Heard {words}.")
        for name, session_id in ids.items():
            await editor.load(session_id, bench.cwd)
            shown[name] = json.dumps(editor.updates(session_id), ensure_ascii=False)
            assert await editor.prompt(session_id, words) == "end_turn"
    return shown


def always_say(bench: Bench, words: str) -> None:
    """Script one answer for every session, whatever its place and however often it asked before."""
    for place in range(1, 21):
        bench.answers(*[[{"text": words}]] * 20, agent=str(place))


def foreign_problems(entries: list[Entry]) -> list[str]:
    """Every breach but one: a replay also shows what another program did, which was never live."""
    return [p for p in problems(entries) if not p.startswith("a_replay_shows_what_was_live")]


def bench_in(folder: Path) -> Bench:
    folder.mkdir()
    return Bench(folder)
