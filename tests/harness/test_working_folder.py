"""Where a session's tools work: moving, rights, restarts, and a folder that is gone."""

import json
from pathlib import Path

import pytest
from fake_models import FakeModel
from harness_rig import FakeClient, Rig, call, rig, script

from acp_bridge.errors import InvalidParamsError
from acp_bridge.vocabulary import Answer, Prompt

pytestmark = pytest.mark.anyio


def moves(made: Rig) -> list[object]:
    return [data["cwd"] for data in made.data("working-directory/change")]


async def test_a_path_is_relative_to_where_the_tools_work_now(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        (made.cwd / "a" / "b").mkdir(parents=True)
        (made.cwd / "link").symlink_to(made.cwd / "a")
        assert await made.session.working_folder() == made.cwd
        assert await made.session.move("a/b") == made.cwd / "a" / "b"
        assert await made.session.move("..") == made.cwd / "a"
        assert await made.session.move(str(made.cwd / "link")) == made.cwd / "a"
        assert await made.session.move("..") == made.cwd
        assert made.session.cwd == made.cwd
        stays = [str(made.cwd / "a" / "b"), str(made.cwd / "a"), str(made.cwd)]
        assert moves(made) == stays


@pytest.mark.parametrize("path", ["", " ", "missing", "file", "~", "a\0b", "loop"])
async def test_a_path_that_is_no_folder_changes_nothing(path: str, tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        (made.cwd / "file").touch()
        (made.cwd / "loop").symlink_to("loop")
        with pytest.raises(InvalidParamsError) as refused:
            await made.session.move(path)
        assert refused.value.field == "path"
        assert made.session.events == []


async def test_the_log_is_born_with_the_first_move_and_goes_on_from_there(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        (made.cwd / "sub").mkdir()
        await made.session.move("sub")
        await made.prompt()
        kinds = [event.type for event in made.rows]
        assert kinds[:4] == [
            "permission/preset",
            "sandbox/mode",
            "approval/policy",
            "working-directory/change",
        ]
        assert kinds.count("permission/preset") == 1


async def test_home_by_another_path_is_home(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "work").symlink_to("real")
    async with rig(tmp_path, FakeModel("m")) as made:
        (made.cwd / "sub").mkdir()
        assert await made.session.move(".") == made.cwd
        assert made.session.events == []
        assert await made.session.move("sub") == tmp_path / "real" / "sub"
        assert await made.session.move("..") == made.cwd


async def test_tools_and_model_know_where_they_are(tmp_path: Path) -> None:
    where = call("c1", "read", file_path="inner.txt")
    model = script([where], [{"text": "done"}], releases=tmp_path)
    async with rig(tmp_path, model) as made:
        (made.cwd / "sub").mkdir()
        (made.cwd / "sub" / "inner.txt").write_text("found me")
        await made.session.move("sub")
        await made.prompt()
        assert "found me" in made.results()[0]
        system = json.dumps(made.data("system/message"))
        assert f"Workspace: {made.cwd}\\n" in system
        assert f"paths start: {made.cwd}/sub\\n" in system


async def test_a_move_gives_no_right_to_touch_anything(tmp_path: Path) -> None:
    secret = call("c1", "read", file_path="secret.txt")
    model = script([secret], [{"text": "ok"}], releases=tmp_path)
    async with rig(tmp_path, model, client=FakeClient(Answer.UNAVAILABLE)) as made:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret.txt").write_text("secret")
        await made.session.move(str(outside))
        await made.prompt()
        assert f"outside the workspace {made.cwd}" in made.client.asks[0].reason
        assert "nobody could be asked for permission" in made.results()[0]


async def test_a_restart_finds_the_folder_again(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        (made.cwd / "sub").mkdir()
        await made.session.move("sub")
    async with rig(tmp_path, FakeModel("m")) as made:
        assert await made.session.working_folder() == made.cwd / "sub"


async def test_a_folder_that_is_gone_is_left_before_it_is_used(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        gone = made.cwd / "gone"
        gone.mkdir()
        await made.session.move("gone")
        gone.rmdir()
        await made.prompt()
        assert moves(made) == [str(gone), str(made.cwd)]
        kinds = [event.type for event in made.rows]
        assert kinds.index("turn/start") > kinds.index("working-directory/change") + 1
        assert await made.session.working_folder() == made.cwd


async def test_a_prompt_may_bring_the_id_of_its_message(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel("m")) as made:
        said = Prompt([{"type": "text", "text": "hello"}], message_id="mine")
        await made.ended(made.session.admit(said))
        messages = made.data("user/message")
        assert [message["id"] for message in messages] == ["mine"]
