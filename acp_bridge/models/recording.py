"""Writes down what a model is sent, one JSON line a call: to pin it in tests, or to look at it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from acp_bridge.ports import Chunk, Model, ModelCatalog, ModelInfo, ModelRequest


class RecordingModel:
    """A `ports.Model` around another one. The file holds prompts: it is for tests and debugging."""

    def __init__(self, model: Model, file: Path) -> None:
        self._model = model
        self._file = file
        self.provider = model.provider
        self.name = model.name
        self.context_window = model.context_window
        self.info = model.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Note the request, then answer as the other model does."""
        summary = {"for": "compact"} if request.purpose == "compact" else {}
        line = json.dumps(
            {
                **summary,
                "agent": request.agent,
                "position": request.position,
                "system": request.system,
                "tools": list(request.tools),
                "messages": list(request.messages),
            },
            ensure_ascii=False,
        )
        with self._file.open("a", encoding="utf-8") as file:  # a short line
            file.write(line + "\n")
        async with aclosing(self._model.stream(request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk


class RecordingCatalog:
    """A `ports.ModelCatalog` whose models are recorded."""

    def __init__(self, catalog: ModelCatalog, file: Path) -> None:
        self._catalog = catalog
        self._file = file

    def available(self) -> Sequence[ModelInfo]:
        """As the other catalog says."""
        return self._catalog.available()

    def forget(self) -> None:
        """As the other catalog does."""
        self._catalog.forget()

    def open(self, model_id: str | None) -> Model:
        """The other catalog's model, recorded."""
        return RecordingModel(self._catalog.open(model_id), self._file)
