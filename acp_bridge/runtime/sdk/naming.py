"""A catalog whose preferred model is the one that the client named in ``initialize``."""

from collections.abc import Sequence

from acp_bridge.harness.choosing import model_id_from_log
from acp_bridge.ports import Model, ModelCatalog, ModelInfo


class NamedCatalog:
    """Implements `ports.ModelCatalog`. ``pinned``: the settings name a model, which wins."""

    def __init__(self, catalog: ModelCatalog, *, pinned: bool) -> None:
        self._catalog = catalog
        self._pinned = pinned
        self._named: str | None = None

    def name(self, provider: str, model: str) -> ModelInfo:
        """Prefer this model from now on, unless another is pinned; what new sessions begin with.

        ``provider`` as either harness calls it.

        Raises:
            AuthRequiredError, ConfigError: it cannot be used; the one before is kept.
        """
        wanted = None if self._pinned else model_id_from_log(provider, model)
        info = self._catalog.open(wanted).info
        self._named = wanted
        return info

    def available(self) -> Sequence[ModelInfo]:
        """Models whose provider has a key."""
        return self._catalog.available()

    def forget(self) -> None:
        """Forget every stored key."""
        self._catalog.forget()

    def open(self, model_id: str | None) -> Model:
        """The model of this id, or without one the named one.

        Raises:
            As `ports.ModelCatalog.open`.
        """
        return self._catalog.open(self._named if model_id is None else model_id)
