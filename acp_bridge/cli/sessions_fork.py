"""``acp-bridge sessions fork``: go on from a session without changing it."""

import json
import sys
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acp_bridge.cli.screen import Screen, plain
from acp_bridge.cli.stored import Stored
from acp_bridge.errors import InvalidParamsError

if TYPE_CHECKING:
    from acp_bridge.vocabulary import JsonObject


def fork(store: Stored, options: Mapping[str, Any]) -> int:
    """Fork a session and say where it is; the exit code.

    Raises:
        BridgeError: it cannot be forked; says why.
    """
    source = store.id_of(options["id"])
    made = store.open().fork(
        source,
        new_id=str(uuid.uuid4()),
        created_at_ms=time.time_ns() // 1_000_000,
        at_seq=options["at"],
        shape="dsh-0.2.1" if options["for"] == "dsh" else "current",
    )
    if not made.is_stored:
        raise InvalidParamsError(
            f"Session {source} has no completed turn there, so nothing would be forked.", field="id"
        )
    screen = Screen(sys.stdout)
    told: JsonObject = {
        "session_id": made.header.session_id,
        "source_id": source,
        "inherited_count": made.inherited_count,
        "title": made.title,
        "cwd": made.header.cwd,
    }
    if options["json"]:
        screen.line(json.dumps(told))
    else:
        screen.line(f"Forked {plain(source)} into {made.header.session_id}")
        screen.line(f"  {made.inherited_count} rows copied; {plain(made.title or 'no title')}", "2")
    return 0
