"""Which models there are: providers that have a key, the demo, and scripts.

Keys are looked up anew at every question, in the environment first and then in the file that
``acp-bridge setup`` writes. A model that is opened twice with one key is one model: its sessions
share its connections.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from acp_bridge.config import ModelSettings
from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.models.credentials import forget_keys, key_problem, read_keys
from acp_bridge.models.known import PROVIDERS, Provider, model_info, request_url
from acp_bridge.ports import Model, ModelInfo

if TYPE_CHECKING:
    from acp_bridge.models.http_model import Dialect, HttpModel
    from acp_bridge.models.scripted import ScriptedModel

logger = logging.getLogger(__name__)

NO_MODEL: Final = (
    "No model is configured. Run `acp-bridge setup` to store a provider's key, or start acp-bridge "
    "with `--model demo` to try it without one."
)

DEMO: Final = "demo"
SCRIPTED: Final = "scripted"


@attrs.frozen(slots=True)
class _Opened:
    """What makes a model the same one."""

    model_id: str
    url: str
    key: str = attrs.field(repr=False)


class Catalog:
    """Implements `ports.ModelCatalog`. ``configured`` is the model that the settings name.

    ``home`` holds ``credentials.toml``; ``models`` is what config.toml says of models.
    """

    def __init__(
        self,
        *,
        home: Path,
        environment: Mapping[str, str],
        configured: str | None = None,
        models: Mapping[str, ModelSettings] | None = None,
    ) -> None:
        self._home = home
        self._environment = environment
        self._configured = configured
        self._overrides: Mapping[str, ModelSettings] = models or {}
        self._opened: dict[_Opened, HttpModel] = {}

    def available(self) -> Sequence[ModelInfo]:
        """Models whose provider has a key, the preferred one first; may be empty.

        The configured one comes first, with or without a key if it needs none.
        """
        ids = [] if self._configured is None else [self._configured]
        ids += [
            f"{provider.name}:{known.name}"
            for provider in PROVIDERS.values()
            for known in provider.models
        ]
        ids += self._overrides
        keys = self._keys()
        infos = []
        for model_id in dict.fromkeys(ids):
            provider = PROVIDERS.get(model_id.partition(":")[0])
            if provider is None or provider.name in keys:
                try:
                    infos.append(self.info(model_id))
                except ConfigError as fault:
                    logger.warning("%s", fault.details)
        return infos

    def info(self, model_id: str) -> ModelInfo:
        """What can be chosen about a model, whether or not there is a key for it.

        Raises:
            ConfigError: the id cannot be used.
        """
        if model_id == DEMO:
            from acp_bridge.models.demo import DemoModel

            return DemoModel.info
        kind, colon, name = model_id.partition(":")
        if kind == SCRIPTED and colon and name:
            return _scripted(name).info
        provider = PROVIDERS.get(kind)
        if provider is None or not name or name != name.strip():
            raise ConfigError(
                f"The model {model_id!r} is not known: use `provider:name` with one of "
                f"{', '.join(PROVIDERS)} as the provider, or `demo`, or `scripted:FILE`."
            )
        return model_info(provider, name, self._overrides)

    def open(self, model_id: str | None) -> Model:
        """The model of this id, or without one the configured, else the preferred one.

        Raises:
            AuthRequiredError: there is none, or its provider has no key; says what to do.
            ConfigError: the id cannot be used.
        """
        chosen = self._configured if model_id is None else model_id
        if chosen is None:
            chosen = self._preferred()
        if chosen == DEMO:
            from acp_bridge.models.demo import DemoModel

            return DemoModel()
        info = self.info(chosen)
        kind, _, name = chosen.partition(":")
        if kind == SCRIPTED:
            return _scripted(name)
        return self._open(PROVIDERS[kind], info)

    def key(self, provider: str) -> str | None:
        """The key of a provider, for whoever talks to it by another way than ours.

        Raises:
            ConfigError: there is one that cannot be used.
        """
        return self._key(PROVIDERS[provider])

    def forget(self) -> None:
        """Forget every stored key."""
        forget_keys(self._home)

    async def aclose(self) -> None:
        """Close every connection; for the end of the process."""
        while self._opened:
            _, model = self._opened.popitem()
            await model.aclose()

    def _open(self, provider: Provider, info: ModelInfo) -> "HttpModel":
        url = request_url(provider, self._base_url(provider))
        key = self._key(provider)
        if key is None:
            raise AuthRequiredError(f"{provider.title} needs a key. {provider.sign_in}")
        place = _Opened(info.model_id, url, key)
        model = self._opened.get(place)
        if model is None:
            model = self._opened[place] = make_model(provider, info, url=url, key=key)
        return model

    def _preferred(self) -> str:
        for provider in PROVIDERS.values():
            if self._key(provider) is not None:
                return f"{provider.name}:{provider.models[0].name}"
        raise AuthRequiredError(NO_MODEL)

    def _key(self, provider: Provider) -> str | None:
        """The key of a provider; the file is not looked at where the environment has it."""
        key = self._environment.get(provider.key_variable, "").strip()
        if not key:
            return read_keys(self._home).get(provider.name) or None
        problem = key_problem(key)
        if problem is not None:
            raise ConfigError(f"{provider.key_variable} cannot be used. {problem}")
        return key

    def _keys(self) -> set[str]:
        """The providers that have a key; what cannot be read counts as none here."""
        found = set()
        for provider in PROVIDERS.values():
            try:
                if self._key(provider) is not None:
                    found.add(provider.name)
            except ConfigError as fault:
                logger.warning("%s", fault.details)
        return found

    def _base_url(self, provider: Provider) -> str:
        base = self._environment.get(provider.base_variable, "").strip()
        if not base:
            return provider.base_url
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(base)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query
            _ = parts.port  # reading it checks it
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                f"{provider.base_variable} is {base!r}: it must be an address such as "
                f"{provider.base_url}."
            )
        return base


def make_model(provider: Provider, info: ModelInfo, *, url: str, key: str) -> "HttpModel":
    """A model of a provider; its adapter is imported now, its HTTP client with the first call."""
    from acp_bridge.models.http import Account, ProviderHttp
    from acp_bridge.models.http_model import HttpModel

    dialect = _dialect(provider)
    account = Account(
        title=provider.title,
        url=url,
        headers=dialect.headers(key),
        key=key,
        sign_in=provider.sign_in,
        base_variable=provider.base_variable,
    )
    return HttpModel(ProviderHttp(account), dialect, provider=provider, info=info)


def _dialect(provider: Provider) -> "Dialect":
    if provider.api == "messages":
        from acp_bridge.models.anthropic import MESSAGES

        return MESSAGES
    from acp_bridge.models.openai import CHAT

    return CHAT


def _scripted(path: str) -> "ScriptedModel":
    from acp_bridge.models.scripted import ScriptedModel

    return ScriptedModel.load(Path(path).expanduser())
