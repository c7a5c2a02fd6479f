"""What goes along with a remote child beside its log: its editor's words, and images."""

from pathlib import Path

import anyio
import attrs
import pytest
from family_rig import fork, say
from picture_bytes import png
from remote_rig import estate
from test_remote_payloads import TASK

from acp_bridge.harness.images import image_from_base64
from acp_bridge.ports import Extras
from acp_bridge.subagents.remote_images import with_images
from acp_bridge.vocabulary import Event, JsonObject, Prompt, TurnEnd

pytestmark = pytest.mark.anyio


async def test_the_system_prompt_and_images_of_a_fork_go_along(tmp_path: Path) -> None:
    image = image_from_base64(png(), "image/png", field="image")
    answers = [say("Nice."), fork(), say("ok"), say("ok")]
    async with estate(tmp_path) as place, place.home.family({"1": answers}) as family:
        await family.root.take(Extras(system_prompt="Be kind."))
        shown = Prompt([image.block], title="look", attachments={image.attachment_id: image.data})
        with anyio.fail_after(10):
            await family.root.admit(shown).ended()
            turn = family.admit("Ask somebody.")
            job = await place.worker.claim()
            assert job.task.system_prompt == "Be kind."
            assert job.task.images == {image.attachment_id: image.data}
            await job.works(say("done"))
            await job.tell()
            await job.settle()
            assert await turn.ended() == TurnEnd("completed")


async def test_images_go_along_as_far_as_there_is_room_the_last_ones_first() -> None:
    def row(seq: int, name: str) -> Event:
        block: JsonObject = {"type": "image", "attachment": {"attachmentId": name}}
        return Event(seq, 0, "user/message", {"content": [block]})

    async def find(name: str) -> bytes | None:
        return None if name == "lost" else bytes(3000)

    rows = [row(seq, name) for seq, name in enumerate(["a", "b", "lost", "a"])]
    task = attrs.evolve(TASK, events=rows, images={})
    made = [await with_images(task, find, chars_max=most) for most in (9000, 5000, 0)]
    assert [list(one.images) for one in made] == [["a", "b"], ["a"], []]
