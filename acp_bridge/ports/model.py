"""What the harness gets from a model."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import attrs

from acp_bridge.vocabulary import JsonObject


@attrs.define(slots=True)  # as `StreamDelta`: one a token, made frozen it takes twice as long
class TextChunk:
    """Answer text. ``block`` numbers the blocks of one answer from 0."""

    block: int
    text: str


@attrs.define(slots=True)  # as `TextChunk`
class ReasoningChunk:
    """Reasoning text."""

    block: int
    text: str


@attrs.frozen(slots=True)
class ToolCallChunk:
    """A piece of a tool call: ``name`` on its first piece only; arguments are raw JSON text."""

    block: int
    call_id: str
    name: str | None
    arguments_delta: str


@attrs.frozen(slots=True)
class UsageChunk:
    """Token counts of this call, each token in one of them: their sum is what the context holds.

    ``input_tokens`` are those beside the cache; an adapter takes the cached ones out where its
    provider counts them in.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@attrs.frozen(slots=True)
class StopChunk:
    """The model ended its answer; always the last chunk of a good stream."""

    reason: Literal["end_turn", "tool_calls", "max_tokens", "refusal"]
    replay_state: JsonObject | None = None
    """What the provider wants back with this answer (signatures of its reasoning); it goes into
    the message's ``source.replayState`` and means nothing to anybody else."""


@attrs.frozen(slots=True)
class FailureChunk:
    """The call failed; always the last chunk.

    ``code`` as in the log: RATE_LIMIT, SERVER, TRANSPORT and so on. ``retryable`` says whether
    the same call may work later; ``retry_after_s`` is the provider's own wish.
    """

    message: str
    code: str
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None


Chunk: TypeAlias = (
    TextChunk | ReasoningChunk | ToolCallChunk | UsageChunk | StopChunk | FailureChunk
)


@attrs.frozen(slots=True)
class ModelRequest:
    """One model call.

    ``messages`` are log messages (role, content blocks) in surface order without the system one;
    ``tools`` are ``{name, description, parameters}``. ``agent`` is the asker's place ("1", "1/1")
    and ``position`` how many answers of this purpose it has had under this provider: only scripted
    models use them.
    """

    system: str
    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject]
    purpose: Literal["turn", "compact"]
    agent: str
    position: int
    effort: str | None = None
    """How hard to think: one of the model's `ModelInfo.efforts`; None: as the provider likes."""
    find_image: Callable[[str], Awaitable[bytes | None]] | None = None
    """The bytes of an ``image`` block by its ``attachmentId`` (``sha256:<hex>``)."""


@attrs.frozen(slots=True)
class ModelInfo:
    """A model that can be chosen.

    ``model_id`` is ``provider:name``; ``efforts`` the levels of reasoning it takes, lightest
    first, empty if it has none; sizes in tokens. ``provider_title`` is what people call the
    provider.
    """

    model_id: str
    title: str
    context_window: int
    output_tokens_max: int | None = None
    efforts: tuple[str, ...] = ()
    takes_images: bool = False
    provider_title: str = ""


class ModelCatalog(Protocol):
    """Which models there are to talk to. Keys are looked up anew at every call."""

    def available(self) -> Sequence[ModelInfo]:
        """Models whose provider has a key, the preferred one first; may be empty."""

    def forget(self) -> None:
        """Sign out: forget every stored key. Keys of the environment stay.

        Raises:
            ConfigError: the file of keys cannot be changed.
        """

    def open(self, model_id: str | None) -> "Model":
        """The model of this id, or without one the configured, else the preferred one.

        Raises:
            AuthRequiredError: there is none, or its provider has no key; says what to do.
            ConfigError: the id cannot be used.
        """


class Model(Protocol):
    """A model behind the port. An adapter never raises for a failed call: it yields a failure."""

    @property
    def provider(self) -> str:
        """Who serves it, as ``request/header`` rows name it."""

    @property
    def name(self) -> str:
        """The model's own name."""

    @property
    def context_window(self) -> int:
        """Its window in tokens."""

    @property
    def info(self) -> ModelInfo:
        """What can be chosen about it; its id opens it again."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer's chunks; ends with a `StopChunk` or a `FailureChunk`.

        A stream that ends without either was cut off and counts as a lost connection.
        """
