"""From the text of ``--model`` to a model, with the keys of the environment alone."""

import os
from pathlib import Path

from acp_bridge.models.catalog import Catalog
from acp_bridge.ports import Model

_CATALOG = Catalog(home=Path(os.devnull), environment=os.environ)


def model_from_name(name: str | None) -> Model:
    """The model that ``provider:name``, ``demo`` or ``scripted:PATH`` names.

    Raises:
        AuthRequiredError: no model is named and none can be found.
        ConfigError: the name or the script cannot be used.
    """
    return _CATALOG.open(name)
