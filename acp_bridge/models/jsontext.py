"""JSON of requests and events: orjson where it is installed, json else, and no half characters.

Text may hold halves of surrogate pairs: json makes them of escapes, and files of broken names. No
provider takes one and no log can hold one, so both ways they become question marks.
"""

import json
from collections.abc import Callable

from acp_bridge.vocabulary import JsonObject


def body_bytes(body: JsonObject) -> bytes:
    """A request's body as UTF-8."""
    if _dumps is not None:
        try:
            return _dumps(body)
        except TypeError:
            pass  # half a character, or a number that only json writes
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def event_json(data: str) -> object:
    """An event's data.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    if "\\ud" in data or "\\uD" in data:
        whole = json.dumps(json.loads(data), ensure_ascii=False)
        return json.loads(whole.encode("utf-8", "replace"))
    return _loads(data)


def _fastest() -> tuple[Callable[[str], object], Callable[[JsonObject], bytes] | None]:
    try:
        import orjson
    except ImportError:
        return json.loads, None
    return orjson.loads, orjson.dumps


_loads, _dumps = _fastest()
