"""The images that a remote child's conversation shows: bytes that stand beside its log."""

from collections.abc import Awaitable, Callable, Iterator

import attrs

from acp_bridge.subagents.remote_payloads import Task
from acp_bridge.vocabulary import JsonValue

_ENTRY_CHARS = 100
"""What an image costs beside its bytes: its id, and some characters of JSON."""


async def with_images(
    task: Task, find: Callable[[str], Awaitable[bytes | None]], *, chars_max: int
) -> Task:
    """The task with the images of its rows, as far as ``chars_max`` base64 characters take them.

    The last ones come first; of one that is left out the model is told that it is not there.
    """
    images: dict[str, bytes] = {}
    for row in reversed(task.events):
        for name in _attachment_ids(row.data):
            data = None if name in images else await find(name)
            if data is None:
                continue
            chars = len(data) * 4 // 3 + _ENTRY_CHARS
            if chars <= chars_max:
                images[name] = data
                chars_max -= chars
    return attrs.evolve(task, images=images)


def _attachment_ids(value: JsonValue) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _attachment_ids(one)
    elif isinstance(value, dict):
        name = value.get("attachmentId")
        if isinstance(name, str):
            yield name
        for one in value.values():
            yield from _attachment_ids(one)
