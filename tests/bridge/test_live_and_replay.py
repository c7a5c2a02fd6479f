"""Whatever happens in a session, a load after a restart shows what a live client saw.

`Bench.editor` holds the transcript to it: ids, kinds, order, titles, final content and status, the
plan (architecture, idea 2, with its closed list of what only lives); here the title and the
context's fill are added.
"""

import shutil
from pathlib import Path
from tempfile import mkdtemp

import anyio
import attrs
from acp_rig import Bench, Editor, Reply, said, selected
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_bridge.testing.replay import replay_differences
from acp_bridge.testing.rules import broken_rules
from acp_bridge.testing.transcript import Entry
from acp_bridge.vocabulary import JsonObject, JsonValue

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def call(name: str, /, **arguments: JsonValue) -> JsonObject:
    return {"name": name, "arguments": arguments}


ENTRIES: JsonValue = [{"content": "x", "status": "in_progress"}]
CALLS: list[JsonObject] = [
    call("glob", pattern="*"),
    call("read", file_path="a.txt"),
    call("read", file_path="/etc/hostname"),
    call("write", file_path="a.txt", content="one\ntwo\n"),
    call("edit", file_path="a.txt", old_string="one", new_string="1"),
    call("bash", command="echo hi; exit 3", description="test"),
    call("bash", command="echo started; sleep 0.05", description="test"),
    call("todo_write", todos=ENTRIES),
    call("todo_write", todos=[]),
    call("nonsense"),
    call("read"),
    {"name": "bash", "arguments_text": "{bad"},
]

SPEECH = st.one_of(
    st.builds(lambda text, n: {"text": text, "repeat": n}, TEXTS, st.integers(1, 40)),
    st.builds(lambda text: {"reasoning": text}, TEXTS),
    st.just({"delay_ms": 1}),
    st.builds(lambda n: {"usage": {"input_tokens": n, "output_tokens": 1}}, st.integers(0, 99999)),
)
CALL = st.builds(
    lambda call_id, made: {"tool_call": {"id": call_id, **made}},
    st.sampled_from(["c", "d", ""]),
    st.sampled_from(CALLS),
)
SUMMARIES = st.lists(
    st.sampled_from(
        [
            [{"text": "So far."}, {"usage": {"input_tokens": 9, "output_tokens": 3}}],
            [{"text": "So "}, {"delay_ms": 1}, {"text": "far."}],
            [{"error": {"status": 503, "message": "busy", "retry_after_s": 0}}],
            [{"error": {"status": 400, "message": "prompt is too long"}}],
        ]
    ),
    max_size=6,
)
"""With the window below and the usage above, some are asked for without a command."""

FAILURE = st.sampled_from(
    [
        {"error": {"status": 503, "message": "busy", "retry_after_s": 0}},
        {"error": {"status": 400, "message": "no"}},
        {"stop": "max_tokens"},
        {"stop": "refusal"},
    ]
)
ANSWER = st.builds(
    # Never empty: an empty answer is tried again after a delay that a test should not wait for.
    lambda speech, calls, end: [*speech, {"text": "."}, *calls, *end],
    st.lists(SPEECH, max_size=4),
    st.lists(CALL, max_size=3),
    st.lists(FAILURE, max_size=1),
)


@attrs.frozen
class Turn:
    """A prompt, and after how many messages of it (if at all) it is cancelled."""

    text: str
    cancel_after: int | None


TURNS = st.lists(
    st.builds(
        Turn, st.sampled_from(["Fix it", "Go on", "/compact"]), st.none() | st.integers(0, 40)
    ),
    min_size=1,
    max_size=4,
)
OPTIONS = st.lists(
    st.sampled_from(["allow-once", "allow-once", "allow-always", "reject-once"]),
    min_size=1,
    max_size=5,
)


async def played(editor: Editor, session_id: str, turn: Turn) -> None:
    seen = 0

    async def watch(_message: JsonObject) -> None:
        nonlocal seen
        if seen == turn.cancel_after:
            await editor.cancel(session_id)
        seen += 1

    request = editor.request("session/prompt", said(session_id, turn.text))
    await editor.send(request)
    editor.watch = watch
    await editor.answer(request["id"])
    editor.watch = None


def last(editor: Editor, kind: str) -> JsonObject | None:
    found = [update for update in editor.updates() if update["sessionUpdate"] == kind]
    return found[-1] if found else None


async def live_then_load(
    bench: Bench, turns: list[Turn], options: list[str], capabilities: JsonObject
) -> None:
    answers = list(options)

    def reply(_request: JsonObject) -> Reply:
        answers.append(answers.pop(0))
        return selected(answers[-1])

    async with bench.editor(capabilities) as editor:
        editor.reply = reply
        session_id = await editor.new(bench.cwd)
        for turn in turns:
            await played(editor, session_id, turn)
        title, usage = last(editor, "session_info_update"), last(editor, "usage_update")
    if not any((bench.home / "sessions").rglob("session.v4*")):
        return  # cancelled before anything began
    async with bench.editor(capabilities) as editor:
        await editor.load(session_id, bench.cwd)
        assert last(editor, "session_info_update") == title
        assert last(editor, "usage_update") == usage


def judge(entries: list[Entry]) -> list[str]:
    """Rules and replay; the schema has its say in the other tests, and takes its time.

    A cancel may cross the error of a turn that had failed before, so that rule does not hold here.
    """
    found = [*broken_rules(entries), *replay_differences(entries)]
    return [breach for breach in found if not breach.startswith("a_cancelled_prompt_is_no_error")]


@settings(max_examples=60)
@given(
    st.lists(ANSWER, min_size=1, max_size=8),
    SUMMARIES,
    TURNS,
    OPTIONS,
    st.booleans(),
    st.booleans(),
)
def test_a_load_after_a_restart_shows_what_was_live(
    streams: list[list[JsonObject]],
    summaries: list[list[JsonObject]],
    turns: list[Turn],
    options: list[str],
    terminals: bool,
    compactions: bool,
) -> None:
    folder = Path(mkdtemp(prefix="acp-bridge-"))
    try:
        bench = Bench(folder)
        bench.judge = judge
        bench.script.write_text('{"context_window": 50000}\n')
        bench.answers(*streams)
        bench.summaries(*summaries)
        capabilities: JsonObject = {"_meta": {"terminal_output": terminals}}
        if compactions:
            capabilities["session"] = {"compaction": {}}
        anyio.run(live_then_load, bench, turns, options, capabilities)
    finally:
        shutil.rmtree(folder)
