"""Forks that a scenario finds in the store, for a wire that has no method to make one."""

import io
import json
from pathlib import Path

from acp_bridge.sessions.codec import Frames, encode_batch
from acp_bridge.sessions.reading import encoding_of
from acp_bridge.sessions.store import SessionStore
from acp_bridge.testing.client import ScenarioError


def make_fork(home: Path, source_id: str, new_id: str, *, historical: bool) -> None:
    """Fork a stored session; ``historical`` as programs once did, naming the source as parent.

    Raises:
        ScenarioError: the source has no completed turn.
        BridgeError: it cannot be forked.
    """
    store = SessionStore(home / "sessions", clock=lambda: 0)
    fork = store.fork(source_id, new_id=new_id, created_at_ms=0)
    if not fork.is_stored:
        raise ScenarioError(f"session {source_id} has no completed turn to fork")
    if historical:
        _name_parent(store.read(new_id).path, source_id)


def _name_parent(path: Path, parent_id: str) -> None:
    data = path.read_bytes()
    encoding = encoding_of(path)
    frames = Frames(io.BytesIO(data).read, encoding)
    header = {**json.loads(frames.header_line()), "parentSession": parent_id}
    line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(encode_batch(line, encoding) + data[frames.start :])
