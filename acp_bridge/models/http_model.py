"""A model over HTTP: one exchange a call, whatever the API; the API is a `Dialect`."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import attrs

from acp_bridge.models.http import Ending, ProviderHttp, drain
from acp_bridge.models.known import Provider, name_of
from acp_bridge.models.messages import Pictures, load_pictures
from acp_bridge.ports import Chunk, FailureChunk, ModelInfo, ModelRequest, StopChunk
from acp_bridge.vocabulary import JsonObject

logger = logging.getLogger(__name__)


class AnswerReader(ABC):
    """Reads the events of one answer. Pure; what differs between APIs is in the subclasses."""

    def __init__(self, http: ProviderHttp, replay_kind: str, model: str) -> None:
        self._http = http
        self._replay_kind = replay_kind
        self._model = model
        self._stop: str | None = None
        """Why the model stopped, in the API's word, once it said so."""
        self._end: Ending | None = None

    @property
    def over(self) -> bool:
        """The answer is complete, or failed: `ending` holds the rest."""
        return self._end is not None

    def read(self, data: str) -> tuple[Chunk, ...]:
        """The chunks of one event's data."""
        try:
            return self._event(data)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            logger.warning("an event of %s is not as its API says", self._model)
            self._end = self._http.malformed()
            return ()

    def finish_early(self) -> None:
        """There are no more events, and the answer did not say so; makes it ``over``."""
        # With a reason to stop the answer is whole: only the farewell is missing.
        self._end = self._http.cut_off() if self._stop is None else self._stopped()

    def ending(self) -> tuple[Chunk, ...]:
        """The last chunks, the stop or failure last."""
        assert self._end is not None
        if isinstance(self._end, FailureChunk):
            return (self._end,)
        return (*self._last(), self._end)

    @abstractmethod
    def _event(self, data: str) -> tuple[Chunk, ...]:
        """The chunks of one event's data; sets ``_stop`` and, with the last event, ``_end``.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: it is not as the API says.
        """

    @abstractmethod
    def _last(self) -> Sequence[Chunk]:
        """What is told at the end of an answer that did not fail, before its stop."""

    @abstractmethod
    def _stopped(self) -> StopChunk:
        """The end of an answer that is whole."""


class MakeBody(Protocol):
    """How a request is spelled in an API."""

    def __call__(
        self, request: ModelRequest, pictures: Pictures, *, provider: Provider, info: ModelInfo
    ) -> JsonObject:
        """What to post."""


@attrs.frozen(slots=True)
class Dialect:
    """An API. ``headers`` says, for a key, who asks; ``reader`` makes a reader for one answer.

    ``mended`` is what to post instead of a body that was refused as invalid, with the provider's
    words, where our own history made it so; else None. It must give None in the end: it is asked
    again if that is refused too.
    """

    headers: Callable[[str], dict[str, str]]
    body: MakeBody
    reader: Callable[[ProviderHttp, str, str], AnswerReader]
    mended: Callable[[JsonObject, str], JsonObject | None]


class HttpModel:
    """A `ports.Model`. ``info`` is what can be chosen about it."""

    def __init__(
        self, http: ProviderHttp, dialect: Dialect, *, provider: Provider, info: ModelInfo
    ) -> None:
        self._http = http
        self._dialect = dialect
        self._provider = provider
        self.info = info
        self.provider = provider.name
        self.name = name_of(info)
        self.context_window = info.context_window

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer's chunks; see `ports.Model`. Closed early, it closes the connection."""
        pictures = await load_pictures(request) if self.info.takes_images else {}
        body: JsonObject | None = self._dialect.body(
            request, pictures, provider=self._provider, info=self.info
        )
        while body is not None:
            again: JsonObject | None = None
            reader = self._dialect.reader(self._http, self._provider.replay_kind, self.name)
            async with aclosing(self._http.events(body)) as events:
                async for event in events:
                    if not isinstance(event, str):
                        again = self._mended(body, event)
                        if again is None:
                            yield event
                        break
                    for chunk in reader.read(event):
                        yield chunk
                    if reader.over:
                        break
                else:
                    reader.finish_early()
                if reader.over:
                    await drain(events)
                    for chunk in reader.ending():
                        yield chunk
            body = again

    def _mended(self, body: JsonObject, end: Ending) -> JsonObject | None:
        if isinstance(end, FailureChunk) and end.code == "INVALID_REQUEST":
            return self._dialect.mended(body, end.message)
        return None

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self._http.aclose()
