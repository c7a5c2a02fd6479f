"""A catalog whose preferred model is the one that the client named in ``initialize``."""

import logging
from collections.abc import Sequence

from acp_bridge.errors import InvalidParamsError
from acp_bridge.harness.choosing import model_id_from_log
from acp_bridge.ports import Model, ModelCatalog, ModelInfo

logger = logging.getLogger(__name__)


class NamedCatalog:
    """Implements `ports.ModelCatalog`. ``pinned``: the settings name a model, which wins."""

    def __init__(self, catalog: ModelCatalog, *, pinned: bool) -> None:
        self._catalog = catalog
        self._pinned = pinned
        self._named: str | None = None

    def name(self, provider: str, model: str, effort: str | None) -> str | None:
        """Prefer this model from now on, unless another is pinned; the effort that goes with it.

        ``provider`` as either harness calls it. A pinned model drops an effort that it has not: it
        was meant for another.

        Raises:
            AuthRequiredError, ConfigError: the model cannot be used; the one before is kept.
            InvalidParamsError: it has no such effort; as above.
        """
        wanted = None if self._pinned else model_id_from_log(provider, model)
        info = self._catalog.open(wanted).info
        if effort is not None and effort not in info.efforts:
            levels = ", ".join(info.efforts) or "none"
            refusal = f"The model {info.model_id} has no effort {effort!r:.60}; it has {levels}."
            if not self._pinned:
                raise InvalidParamsError(refusal, field="reasoningEffort")
            logger.warning("the effort is not used: %s", refusal)
            effort = None
        self._named = wanted
        return effort

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
