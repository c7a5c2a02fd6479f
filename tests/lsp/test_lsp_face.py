import json
from pathlib import Path

import anyio
import pytest
from lsp_rig import FULL, WAIT_S, LspDesk, call, objects

from acp_bridge.vocabulary import JsonObject, JsonValue

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk(tmp_path: Path) -> LspDesk:
    return LspDesk(tmp_path)


EMOJI = "# 😀 é\r\nx = 1\r\n# AGENT: make it two\r\n"
EDIT: JsonObject = {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}


def without(*path: str) -> JsonObject:
    """`FULL` less one capability."""
    found: JsonObject = json.loads(json.dumps(FULL))
    inner = found
    for name in path[:-1]:
        child = inner[name]
        assert isinstance(child, dict)
        inner = child
    del inner[path[-1]]
    return found


async def test_a_prompt_is_answered_at_once_and_told_as_a_transcript(desk: LspDesk) -> None:
    desk.script([{"wait": "go"}, {"reasoning": "Hm."}, {"text": "Hello "}, {"text": "there."}])
    async with desk.editor() as editor:
        answer = await editor.command("agent.prompt", "Say hello")
        assert answer["result"] is None  # while the model still waits
        desk.release("go")
        await editor.ended()
        assert [value["kind"] for value in editor.progress()] == ["begin", "end"]
        assert editor.progress()[0]["title"] == "Agent: Say hello"
        await editor.command("agent.open")
        shown = await editor.until(lambda m: m.get("method") == "window/showDocument")
    assert isinstance(shown["params"], dict)
    assert str(shown["params"]["uri"]).startswith("file://")
    text = desk.transcript()
    assert "## You\n\nSay hello" in text
    assert "## Agent\n\nHello there." in text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_an_open_document_is_read_unsaved_and_edited_in_the_editor(
    desk: LspDesk, encoding: str
) -> None:
    file = desk.workspace / "a.py"
    file.write_bytes(b"old on disk\n")
    desk.script(
        [call("r", "read", file_path="a.py")], [call("e", "edit", **EDIT)], [{"text": "ok"}]
    )
    async with desk.editor(encodings=[encoding]) as editor:
        assert editor.encoding == encoding
        uri = await editor.open(file, EMOJI)
        (action,) = await editor.actions(uri, (2, 3), (2, 3))
        assert action["title"] == "Agent: make it two"
        await editor.run(action)
        await editor.ended()
        assert editor.documents[uri][1] == EMOJI.replace("x = 1", "x = 2")
        reports = [value["message"] for value in editor.progress() if value["kind"] == "report"]
        assert reports == ["Read `a.py`", "Edit `a.py`"]
    assert file.read_bytes() == b"old on disk\n"  # saving is the user's
    assert "+x = 2" in desk.transcript()


async def test_a_file_that_is_not_open_is_changed_on_the_disk(desk: LspDesk) -> None:
    (desk.workspace / "a.py").write_text("x = 1\n")
    desk.script(
        [call("r", "read", file_path="a.py")],
        [call("e", "edit", **EDIT), call("w", "write", file_path="new/b.py", content="b\n")],
        [{"text": "ok"}],
    )
    async with desk.editor() as editor:
        await editor.command("agent.prompt", "two")
        await editor.ended()
        assert not any(m.get("method") == "workspace/applyEdit" for m in editor.received)
    assert (desk.workspace / "a.py").read_text() == "x = 2\n"
    assert (desk.workspace / "new" / "b.py").read_text() == "b\n"


async def test_an_edit_that_the_editor_refuses_is_a_failure_the_agent_sees(desk: LspDesk) -> None:
    file = desk.workspace / "a.py"
    desk.script(
        [call("r", "read", file_path="a.py")], [call("e", "edit", **EDIT)], [{"text": "seen"}]
    )
    async with desk.editor() as editor:
        uri = await editor.open(file, "x = 1\n")
        editor.answers["workspace/applyEdit"] = lambda _params: {
            "applied": False,
            "failureReason": "somebody typed",
        }
        await editor.command("agent.prompt", "two")
        await editor.ended()
        assert editor.documents[uri][1] == "x = 1\n"
    text = desk.transcript()
    assert "Edit `a.py`**: failed" in text
    assert "somebody typed" in text
    assert "seen" in text


async def test_the_user_is_asked_and_the_answer_counts(desk: LspDesk) -> None:
    file = desk.workspace / "a.py"
    ask = call("w", "write", file_path="a.py", content="new\n")
    desk.script([ask], [{"text": "one"}], [ask], [{"text": "two"}], [ask], [{"text": "three"}])
    async with desk.editor(mode="ask") as editor:
        asked: list[JsonObject] = []

        def dismiss(params: JsonObject) -> JsonValue:
            asked.append(params)
            return None

        editor.answers["window/showMessageRequest"] = dismiss
        await editor.command("agent.prompt", "one")
        await editor.ended(1)
        assert not file.exists()
        assert "Write `a.py`" in str(asked[0]["message"])
        assert [one["title"] for one in objects(asked[0]["actions"])][0::2] == [
            "Allow once",
            "Reject",
        ]
        editor.answers["window/showMessageRequest"] = lambda _params: {"title": "Allow once"}
        await editor.command("agent.prompt", "two")
        await editor.ended(2)
        assert file.read_text() == "new\n"
        file.unlink()
        editor.answers["window/showMessageRequest"] = lambda _params: {"title": "Something else"}
        await editor.command("agent.prompt", "three")
        await editor.ended(3)
        assert not file.exists()


@pytest.mark.parametrize(("answer", "is_written"), [("allow once", True), ("reject", False)])
async def test_without_message_requests_a_code_action_answers(
    desk: LspDesk, answer: str, *, is_written: bool
) -> None:
    file = desk.workspace / "a.py"
    desk.script([call("w", "write", file_path="a.py", content="new\n")], [{"text": "ok"}])
    async with desk.editor(without("window", "showMessage"), mode="ask") as editor:
        uri = await editor.open(desk.workspace / "b.py", "")
        await editor.command("agent.prompt", "write it")
        await editor.until(lambda m: m.get("method") == "window/showMessage")
        actions = await editor.actions(uri, (0, 0), (0, 0))
        (chosen,) = [one for one in actions if str(one["title"]).startswith(f"Agent: {answer}")]
        assert not file.exists()
        await editor.run(chosen)
        await editor.ended()
        actions = await editor.actions(uri, (0, 0), (0, 0))
        assert [one["title"] for one in actions] == ["Agent: open the transcript"]
    assert file.exists() is is_written


async def test_a_client_that_can_show_no_question_is_never_asked(desk: LspDesk) -> None:
    desk.script([call("w", "write", file_path="a.py", content="new\n")], [{"text": "ok"}])
    bare: JsonObject = {"window": {"workDoneProgress": True}}
    async with desk.editor(bare, mode="ask") as editor:
        await editor.command("agent.prompt", "write it")
        await editor.ended()
    assert not (desk.workspace / "a.py").exists()
    assert "nobody could be asked" in desk.transcript()


async def test_always_by_command_holds_for_the_session(desk: LspDesk) -> None:
    one = call("w", "write", file_path="a.py", content="1\n")
    two = call("v", "write", file_path="b.py", content="2\n")
    desk.script([one], [{"text": "ok"}], [two], [{"text": "ok"}])
    async with desk.editor(without("window", "showMessage"), mode="ask") as editor:
        await editor.command("agent.prompt", "one")
        await editor.until(lambda m: m.get("method") == "window/showMessage")
        await editor.command("agent.allow", None, "always")
        await editor.ended(1)
        await editor.command("agent.prompt", "two")
        await editor.ended(2)
    assert (desk.workspace / "b.py").read_text() == "2\n"


@pytest.mark.parametrize("by", ["command", "progress", "action"])
async def test_work_is_cancelled(desk: LspDesk, by: str) -> None:
    desk.script([{"text": "Half"}, {"wait": "never"}])
    async with desk.editor() as editor:
        uri = await editor.open(desk.workspace / "a.py", "")
        await editor.command("agent.prompt", "long")
        begun = await editor.until(lambda m: m.get("method") == "$/progress")
        assert isinstance(begun["params"], dict)
        if by == "command":
            await editor.command("agent.cancel")
        elif by == "progress":
            await editor.notify(
                "window/workDoneProgress/cancel", {"token": begun["params"]["token"]}
            )
        else:
            actions = await editor.actions(uri, (0, 0), (0, 0))
            await editor.run(actions[0])
        await editor.ended()
        assert editor.progress()[-1]["message"] == "cancelled"


async def test_a_cancel_withdraws_the_question(desk: LspDesk) -> None:
    desk.script([call("w", "write", file_path="a.py", content="new\n")])
    async with desk.editor(mode="ask") as editor:
        editor.answers["window/showMessageRequest"] = lambda _params: "no answer"
        await editor.command("agent.prompt", "write it")
        asked = await editor.until(lambda m: m.get("method") == "window/showMessageRequest")
        await editor.command("agent.cancel")
        withdrawn = await editor.until(lambda m: m.get("method") == "$/cancelRequest")
        assert withdrawn["params"] == {"id": asked["id"]}
        await editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"title": "Allow once"}})
        await editor.ended()
    assert not (desk.workspace / "a.py").exists()


async def test_a_choice_of_the_model_is_put_as_buttons(desk: LspDesk) -> None:
    options: JsonValue = [{"label": "SQLite", "description": "No server."}, {"label": "PostgreSQL"}]
    choice: JsonObject = {"id": "db", "question": "Which database?", "options": options}
    several: JsonObject = {**choice, "multi_select": True}
    asking = [call(f"c{n}", "ask_user_question", questions=[choice]) for n in range(2)]
    refused = call("c3", "ask_user_question", questions=[choice | {"id": "a"}, several])
    desk.script(*[[one] for one in (*asking, refused)], [{"text": "Done."}])
    async with desk.editor() as editor:
        asked: list[JsonObject] = []

        def choose(params: JsonObject) -> JsonValue:
            asked.append(params)
            return {"title": "PostgreSQL"} if len(asked) == 1 else None

        editor.answers["window/showMessageRequest"] = choose
        await editor.command("agent.prompt", "set it up")
        await editor.ended()
    # What has more than one button can say is not put at all.
    assert len(asked) == 2
    assert asked[0]["message"] == "Which database?\n\nSQLite: No server."
    assert [one["title"] for one in objects(asked[0]["actions"])] == ["SQLite", "PostgreSQL"]
    text = desk.transcript()
    assert "db: PostgreSQL" in text
    assert text.count("The user did not answer") == 2


async def test_the_mode_is_chosen_and_told(desk: LspDesk) -> None:
    async with desk.editor() as editor:
        await editor.command("agent.mode", "plan")
        await editor.until(lambda m: m.get("method") == "window/showMessage")
        assert "mode is plan" in editor.told()[0]
        await editor.command("agent.mode", "whatever")
        await editor.until(lambda m: "There is no mode" in json.dumps(m))


async def test_a_failed_turn_is_told_as_an_error(desk: LspDesk) -> None:
    desk.script()
    async with desk.editor() as editor:
        await editor.command("agent.prompt", "anything")
        await editor.ended()
        (message,) = editor.told()
        assert editor.progress()[-1]["message"] == "failed"
    assert "script" in message


async def test_a_stored_session_is_opened_and_continued(desk: LspDesk) -> None:
    desk.script([{"text": "First answer."}], [{"text": "Second answer."}])
    async with desk.editor() as editor:
        await editor.command("agent.prompt", "first")
        await editor.ended()
    (file,) = (desk.home / "transcripts").iterdir()
    session_id = file.stem
    file.unlink()
    async with desk.editor() as editor:
        await editor.command("agent.open", session_id)
        await editor.until(lambda m: m.get("method") == "window/showDocument")
        assert "First answer." in desk.transcript()
        await editor.command("agent.prompt", "second")
        await editor.ended()
    assert "Second answer." in desk.transcript()


async def test_prompts_for_another_folder_go_to_a_session_of_its_own(desk: LspDesk) -> None:
    desk.script([{"text": "In one."}], [{"text": "In one again."}])
    async with desk.editor() as editor:
        await editor.command("agent.prompt", "one")
        await editor.command("agent.prompt", "two")
        await editor.ended(2)
    text = desk.transcript()
    assert text.index("In one.") < text.index("In one again.")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ([], "arguments[0]"),
        ([{"text": " "}], "arguments[0].text"),
        ([{"text": "x", "uri": 3}], "arguments[0].uri"),
        ([{"text": "x", "firstLine": -1}], "arguments[0].firstLine"),
        ([{"text": "x", "lastLine": "1"}], "arguments[0].lastLine"),
    ],
)
async def test_a_bad_argument_is_refused_by_its_name(
    desk: LspDesk, arguments: list[JsonValue], field: str
) -> None:
    async with desk.editor() as editor:
        error = (await editor.command("agent.prompt", *arguments))["error"]
        assert isinstance(error, dict)
        assert error["code"] == -32602
        assert error["data"] == {"field": field}


async def test_every_request_gets_an_answer(desk: LspDesk) -> None:
    async with desk.editor() as editor:
        wrong = await editor.call("textDocument/codeAction", {"range": 7})
        assert isinstance(wrong["error"], dict)
        assert wrong["error"]["code"] == -32602
        unknown = await editor.call("workspace/executeCommand", {"command": "rm"})
        assert isinstance(unknown["error"], dict)
        missing = await editor.call("textDocument/hover", {})
        assert isinstance(missing["error"], dict)
        await editor.send_raw(b"Content-Length: 4\r\n\r\n{no}")
        bad = await editor.until(lambda m: m.get("id", 0) is None)
        assert isinstance(bad["error"], dict)
        assert bad["error"]["code"] == -32700
        await editor.call("shutdown", None)
        late = await editor.call("workspace/executeCommand", {"command": "agent.cancel"})
        assert isinstance(late["error"], dict)
        assert late["error"]["code"] == -32600
        assert "Traceback" not in json.dumps(editor.received)


async def test_a_transcript_that_cannot_be_written_stops_nothing(desk: LspDesk) -> None:
    desk.home.mkdir()
    (desk.home / "transcripts").write_text("in the way")
    desk.script([{"text": "Hello."}])
    async with desk.editor() as editor:
        await editor.command("agent.prompt", "hi")
        await editor.ended()
        assert editor.progress()[-1]["message"] == "done"


async def test_the_end_of_the_input_in_a_turn_closes_it(desk: LspDesk) -> None:
    desk.script([{"text": "Half"}, {"wait": "never"}])
    with anyio.fail_after(WAIT_S):
        async with desk.editor() as editor:
            await editor.command("agent.prompt", "long")
            await editor.until(lambda m: m.get("method") == "$/progress")
    log = (await anyio.to_thread.run_sync(desk.log))[-1]
    assert (log.type, log.data) == (
        "turn/end",
        {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}},
    )


@pytest.mark.parametrize("answer", ["text", {}, [1]])
async def test_an_answer_of_the_wrong_shape_is_a_refusal(desk: LspDesk, answer: JsonValue) -> None:
    desk.script(
        [call("r", "read", file_path="a.py")], [call("e", "edit", **EDIT)], [{"text": "ok"}]
    )
    async with desk.editor() as editor:
        uri = await editor.open(desk.workspace / "a.py", "x = 1\n")
        editor.answers["workspace/applyEdit"] = lambda _params: answer
        await editor.command("agent.prompt", "two")
        await editor.ended()
        assert editor.documents[uri][1] == "x = 1\n"
    assert "Edit `a.py`**: failed" in desk.transcript()


async def test_what_is_typed_while_an_edit_is_on_its_way_is_not_overwritten(desk: LspDesk) -> None:
    ask = call("w", "write", file_path="a.py", content="all new\n")
    desk.script([call("r", "read", file_path="a.py")], [ask], [{"text": "ok"}])
    async with desk.editor() as editor:
        uri = await editor.open(desk.workspace / "a.py", "x = 1\n")

        async def typing() -> None:
            await editor.type(uri, "x = 1\ny = 2\n")

        editor.before_edit = typing
        await editor.command("agent.prompt", "two")
        await editor.ended()
        assert editor.documents[uri][1] == "x = 1\ny = 2\n"
    text = desk.transcript()
    assert "Write `a.py`**: failed" in text
    assert "the document has changed" in text


async def test_a_subagents_work_and_question_are_shown(desk: LspDesk) -> None:
    task = call("d", "subagent", description="writer", prompt="write it", wait=True)
    desk.script([task], [{"text": "All done."}])
    desk.script_for("1/1", [call("w", "write", file_path="a.py", content="1\n")], [{"text": "ok"}])
    async with desk.editor(mode="ask") as editor:
        asked: list[str] = []

        def ask(params: JsonObject) -> JsonValue:
            asked.append(str(params["message"]))
            return {"title": "Allow once"}

        editor.answers["window/showMessageRequest"] = ask
        await editor.command("agent.prompt", "delegate")
        await editor.ended()
    assert ["writer" in one for one in asked] == [True]
    assert (desk.workspace / "a.py").read_text() == "1\n"
    assert "Subagent writer" in desk.transcript()
    assert "All done." in desk.transcript()
