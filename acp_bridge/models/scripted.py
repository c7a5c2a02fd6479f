"""A model that reads its answers from a file: for tests, scenarios, and trying things keyless.

Which answer comes next is the asker's place and position, both taken from its log by the harness,
so a restarted process goes on where it was.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import attrs

from acp_bridge.errors import ConfigError
from acp_bridge.models.failures import failure_from_status, lost_connection
from acp_bridge.models.script import (
    Call,
    Disconnect,
    Fail,
    Item,
    Pause,
    Say,
    Script,
    Stop,
    Usage,
    Wait,
    script_from_text,
)
from acp_bridge.ports import (
    Chunk,
    FailureChunk,
    ModelInfo,
    ModelRequest,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)

_STARTED = re.compile(r'"started subagent ([^"\\]+)"')
_SUBAGENT = re.compile(r"\{\{subagent ([1-9][0-9]?)\}\}")

RELEASE_POLL_S = 0.01
"""How often a waiting script looks for its release: quick for a test, cheap for a processor."""


class ScriptedModel:
    """A `ports.Model` that plays a script.

    ``releases`` is the folder where a file named NAME ends ``{"wait": "NAME"}``.
    """

    provider = "scripted"

    def __init__(self, script: Script, *, name: str, releases: Path) -> None:
        self._script = script
        self._releases = releases
        self.name = name
        self.context_window = script.context_window
        path = releases.with_suffix("")
        self.info = ModelInfo(f"scripted:{path}", f"Script {name}", script.context_window)

    @classmethod
    def load(cls, path: Path) -> "ScriptedModel":
        """Read a script file; releases stand beside it in ``<path>.releases/``.

        Raises:
            ConfigError: the file cannot be read or is no script.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise ConfigError(f"The scripted model's file {path} cannot be read.") from fault
        releases = path.with_name(path.name + ".releases")
        return cls(script_from_text(text, name=path.name), name=path.name, releases=releases)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next answer of this agent, or a failure that says that there is none."""
        answers = self._script.answers.get((request.agent, request.purpose), [])
        if request.position < len(answers):
            items = [_named(item, request) for item in answers[request.position]]
            return play(items, releases=self._releases)
        return _exhausted(
            f"The scripted model {self.name} has no answer for agent {request.agent} "
            f"at position {request.position + 1}: its script holds {len(answers)}."
        )


def _named(item: Item, request: ModelRequest) -> Item:
    """A call's ``{{subagent N}}`` become the id of the N-th subagent that the asker has started."""
    if not isinstance(item, Call) or "{{subagent " not in item.arguments_text:
        return item
    ids = [
        found[1]
        for message in request.messages
        if message.get("role") == "tool"
        and (found := _STARTED.search(json.dumps(message["content"])))
    ]

    def name(place: re.Match[str]) -> str:
        number = int(place[1])
        return ids[number - 1] if number <= len(ids) else place[0]

    return attrs.evolve(item, arguments_text=_SUBAGENT.sub(name, item.arguments_text))


async def _exhausted(message: str) -> AsyncIterator[Chunk]:
    yield FailureChunk(message=message, code="SCRIPT_EXHAUSTED")


async def play(items: Sequence[Item], *, releases: Path | None = None) -> AsyncIterator[Chunk]:
    """Stream an answer's items as chunks; a missing end is added from the content."""
    block = -1
    last_kind: str | None = None
    calls_made = False
    for item in items:
        kind = item.kind if isinstance(item, Say) else None
        if isinstance(item, Call) or (kind is not None and kind != last_kind):
            block += 1
        match item:
            case Say():
                last_kind = kind
                piece = TextChunk if item.kind == "text" else ReasoningChunk
                for _ in range(item.repeat):
                    yield piece(block, item.text)
            case Call():
                last_kind = None
                calls_made = True
                yield ToolCallChunk(block, item.call_id, item.name, "")
                for text in _split(item.arguments_text, item.split):
                    yield ToolCallChunk(block, item.call_id, None, text)
            case Pause():
                await anyio.sleep(item.delay_ms / 1000)
            case Wait():
                await _released(item.name, releases)
            case Usage():
                yield UsageChunk(item.input_tokens, item.output_tokens, item.cache_read_tokens)
            case Stop():
                yield StopChunk(item.reason)
                return
            case Fail():
                yield failure_from_status(
                    item.status, item.message, retry_after_s=item.retry_after_s
                )
                return
            case Disconnect():
                yield lost_connection()
                return
    yield StopChunk("tool_calls" if calls_made else "end_turn")


async def _released(name: str, releases: Path | None) -> None:
    # Files, not events: one mechanism serves scenarios in memory and in a process of its own.
    if releases is None:
        return
    sign = releases / name
    while not sign.exists():  # noqa: ASYNC110  # another process makes the file
        await anyio.sleep(RELEASE_POLL_S)


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]
