"""What the user is to hear: files that people wrote down are looked at again, and news told once.

News wait on the `Desk` until a turn puts them into the log.
"""

from acp_bridge.harness.commands import commands_of
from acp_bridge.harness.desk import Desk
from acp_bridge.harness.memory import NOTICE_ROW
from acp_bridge.vocabulary import CommandsChanged, Event


async def look(desk: Desk) -> None:
    """Look at what people have written down, and tell of commands that came or went."""
    before = commands_of(desk)
    await desk.project.look()
    if commands_of(desk) != before:
        desk.committer.emit(CommandsChanged())
    if desk.committer.writer.header.origin == "subagent":
        return  # its root's user was told already
    desk.news += desk.project.new_notes(desk.project.found.instructions)


def forget_told(desk: Desk, event: Event) -> None:
    """The user knows what this event tells; what came up meanwhile still waits."""
    if event.type != NOTICE_ROW or not isinstance(event.data, dict):
        return
    text = event.data["text"]
    if text == desk.notice:
        desk.notice = None
    elif text in desk.news:
        desk.news.remove(str(text))
