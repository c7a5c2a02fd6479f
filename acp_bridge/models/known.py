"""The providers, and what is known of their models. A name that is not here works too.

Facts of October 2026, from the providers' own pages; ``config.toml`` overrides each of them
(``[models."provider:name"]``), so a table that has aged is a nuisance and no obstacle.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from acp_bridge.config import ModelSettings
from acp_bridge.ports import ModelInfo

Reasoning: TypeAlias = Literal["effort", "adaptive", "budget", "switch", "none-with-tools"]
"""How a model is told how hard to think.

- ``effort``: by a word alone (Messages: ``output_config``; chat completions: ``reasoning_effort``).
- ``adaptive``: as ``effort``, and it is asked to tell its thoughts.
- ``budget``: in tokens, only when an effort is chosen.
- ``switch``: as ``effort``, and the word ``off`` switches it off.
- ``none-with-tools``: its API takes tools only with reasoning switched off.
"""


@attrs.frozen(slots=True)
class Provider:
    """Who serves models. ``name`` is the first half of a model id, ``title`` what people read.

    ``caches`` says that marks for its prompt cache are of use, ``unsigned`` that it takes, and
    wants, reasoning back without a signature. ``replay_kind`` names its replay state in the log.
    """

    name: str
    title: str
    api: Literal["messages", "chat"]
    base_url: str
    replay_kind: str
    caches: bool
    unsigned: bool
    other: "Known"
    models: tuple["Known", ...]

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key."""
        return f"{self.name.upper()}_API_KEY"

    @property
    def base_variable(self) -> str:
        """The environment variable that sets the address."""
        return f"{self.name.upper()}_BASE_URL"

    @property
    def sign_in(self) -> str:
        """What to do about a missing or wrong key."""
        return f"Set {self.key_variable}, or run `acp-bridge setup --provider {self.name}`."

    def known(self, name: str) -> "Known":
        """What is known of a model; for a name that is not, what holds for most."""
        return next((model for model in self.models if model.name == name), self.other)


@attrs.frozen(slots=True)
class Known:
    """A model: sizes in tokens, efforts lightest first."""

    name: str
    title: str
    context_window: int
    output_tokens_max: int | None
    reasoning: Reasoning
    efforts: tuple[str, ...] = ()
    takes_images: bool = False


_LADDER = ("low", "medium", "high", "xhigh", "max")
_CLASSIC = ("low", "medium", "high")
_SWITCHED = ("off", "low", "high", "max")
_M = 1_000_000


def _claude(name: str, title: str) -> Known:
    return Known(name, title, _M, 128_000, "adaptive", _LADDER, takes_images=True)


DEEPSEEK: Final = Provider(
    name="deepseek",
    title="DeepSeek",
    api="messages",
    base_url="https://api.deepseek.com/anthropic",
    # As the real runtime writes it, so that either program replays what the other recorded.
    replay_kind="deepseek-messages",
    # Its cache needs no marks: it ignores them.
    caches=False,
    # It refuses a tool call whose reasoning is not sent back, signature or not.
    unsigned=True,
    other=Known("", "", _M, 64_000, "switch", _SWITCHED),
    models=(
        Known(
            "deepseek-flash",
            "DeepSeek Flash",
            _M,
            256_000,
            "switch",
            _SWITCHED,
            takes_images=True,
        ),
        Known("deepseek-v4-pro", "DeepSeek V4 Pro", _M, 256_000, "switch", _SWITCHED),
    ),
)

ANTHROPIC: Final = Provider(
    name="anthropic",
    title="Anthropic",
    api="messages",
    base_url="https://api.anthropic.com",
    replay_kind="anthropic-messages",
    caches=True,
    unsigned=False,
    other=Known("", "", 200_000, 32_000, "effort", takes_images=True),
    models=(
        _claude("claude-sonnet-5-5", "Claude Sonnet 5.5"),
        _claude("claude-opus-5-5", "Claude Opus 5.5"),
        _claude("claude-haiku-5-5", "Claude Haiku 5.5"),
        _claude("claude-fable-5-1", "Claude Fable 5.1"),
        _claude("claude-opus-5", "Claude Opus 5"),
        _claude("claude-sonnet-5", "Claude Sonnet 5"),
        Known(
            "claude-haiku-4-5",
            "Claude Haiku 4.5",
            200_000,
            64_000,
            "budget",
            _CLASSIC,
            takes_images=True,
        ),
    ),
)

OPENAI: Final = Provider(
    name="openai",
    title="OpenAI",
    api="chat",
    base_url="https://api.openai.com/v1",
    replay_kind="openai-chat",
    caches=False,
    unsigned=False,
    other=Known("", "", 128_000, None, "effort", takes_images=True),
    models=(
        Known("gpt-5.6", "GPT-5.6", 1_050_000, 128_000, "none-with-tools", takes_images=True),
        Known("gpt-5.5", "GPT-5.5", 1_050_000, 128_000, "none-with-tools", takes_images=True),
        Known("gpt-5.4", "GPT-5.4", 1_050_000, 128_000, "none-with-tools", takes_images=True),
        Known(
            "gpt-5.1",
            "GPT-5.1",
            400_000,
            128_000,
            "effort",
            ("none", *_CLASSIC),
            takes_images=True,
        ),
        Known(
            "gpt-5-mini",
            "GPT-5 mini",
            400_000,
            128_000,
            "effort",
            ("minimal", *_CLASSIC),
            takes_images=True,
        ),
    ),
)

PROVIDERS: Final = {provider.name: provider for provider in (DEEPSEEK, ANTHROPIC, OPENAI)}
"""By name, the preferred one first."""


def model_info(provider: Provider, name: str, overrides: Mapping[str, ModelSettings]) -> ModelInfo:
    """A model as it can be chosen: what is known, overridden by what the user set."""
    known = provider.known(name)
    model_id = f"{provider.name}:{name}"
    theirs = overrides.get(model_id, ModelSettings())
    return ModelInfo(
        model_id=model_id,
        title=known.title or f"{provider.title} {name}",
        context_window=theirs.context_window or known.context_window,
        output_tokens_max=theirs.output_tokens_max or known.output_tokens_max,
        efforts=known.efforts if theirs.efforts is None else theirs.efforts,
        takes_images=known.takes_images if theirs.takes_images is None else theirs.takes_images,
        provider_title=provider.title,
    )


def name_of(info: ModelInfo) -> str:
    """The model's own name."""
    return info.model_id.partition(":")[2]


def request_url(provider: Provider, base_url: str) -> str:
    """Where a provider takes requests, from the address that the user or the table gives."""
    base = base_url.rstrip("/")
    if provider.api == "chat":
        return f"{base}/chat/completions"
    if provider is DEEPSEEK and base in {"https://api.deepseek.com", "https://api.deepseek.com/v1"}:
        # What its users have in this variable for the other API; this one lives beside it.
        base = DEEPSEEK.base_url
    return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"
