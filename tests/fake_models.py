"""Models and a catalog of several, for tests of what a user chooses."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import attrs

from acp_bridge.errors import ConfigError
from acp_bridge.ports import Chunk, Model, ModelInfo, ModelRequest, StopChunk, TextChunk

Said = Sequence[Chunk | anyio.Event]
"""An answer; it waits at each event."""


class FakeModel:
    """Says its name and the effort, unless ``answers`` holds something for the next request.

    ``asked`` are the requests it got.
    """

    def __init__(self, name: str, *answers: Said, provider: str = "fake") -> None:
        self.provider, self.name, self.context_window = provider, name, 1000
        self.info = ModelInfo(f"{provider}:{name}", name.capitalize(), 1000)
        self.answers = list(answers)
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked.append(request)
        said: Said = [TextChunk(0, f"{self.name} {request.effort}"), StopChunk("end_turn")]
        for chunk in self.answers.pop(0) if self.answers else said:
            if isinstance(chunk, anyio.Event):
                await chunk.wait()
            else:
                yield chunk


class FakeCatalog:
    """A `ports.ModelCatalog` of models and their efforts by name; the first one is preferred."""

    def __init__(self, *models: FakeModel, **efforts: tuple[str, ...]) -> None:
        self.models = {model.info.model_id: model for model in models}
        for name, levels in efforts.items():
            self.give(name, *levels)

    def give(self, name: str, *efforts: str) -> None:
        """Let a model take these efforts, and no others."""
        for model in self.models.values():
            if model.name == name:
                model.info = attrs.evolve(model.info, efforts=efforts)

    def available(self) -> list[ModelInfo]:
        return [model.info for model in self.models.values()]

    def forget(self) -> None:
        self.models.clear()

    def open(self, model_id: str | None) -> Model:
        if model_id is None:
            return next(iter(self.models.values()))
        if model_id not in self.models:
            raise ConfigError(f"The model {model_id} is not available.")
        return self.models[model_id]


class OneModel:
    """A `ports.ModelCatalog` of one model, made when it is asked for."""

    def __init__(self, make: Callable[[], Model]) -> None:
        self._make = make

    def available(self) -> list[ModelInfo]:
        return []

    def forget(self) -> None:
        """There is no key."""

    def open(self, model_id: str | None) -> Model:
        model = self._make()
        if model_id not in {None, model.info.model_id}:
            raise ConfigError(f"The model {model_id} is not available.")
        return model
