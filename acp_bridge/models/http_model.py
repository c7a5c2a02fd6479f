"""A model over HTTP: one exchange a call, whatever the API; the API is a `Dialect`."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol

from acp_bridge.models.http import Ending, ProviderHttp, drain
from acp_bridge.models.known import name_of
from acp_bridge.models.messages import Pictures, load_pictures
from acp_bridge.ports import Chunk, ModelInfo, ModelRequest
from acp_bridge.vocabulary import JsonObject


class Reader(Protocol):
    """Reads the events of one answer. Pure."""

    over: bool
    """The answer is complete, or failed: `ending` holds the rest."""

    def read(self, data: str) -> tuple[Chunk, ...]:
        """The chunks of one event's data."""

    def finish_early(self) -> None:
        """There are no more events; makes it ``over``."""

    def ending(self) -> tuple[Chunk, ...]:
        """The last chunks, the stop or failure last."""


class Dialect(Protocol):
    """An API: how a request is spelled in it, and how an answer is read."""

    def body(self, request: ModelRequest, pictures: Pictures) -> JsonObject:
        """What to post."""

    def reader(self) -> Reader:
        """A fresh reader for one answer."""

    def mended(self, body: JsonObject, end: Ending) -> JsonObject | None:
        """What to post instead after a refusal that our own history caused; None: nothing.

        Must give None in the end: it is asked again if that is refused too.
        """


class HttpModel:
    """A `ports.Model`. ``info`` is what can be chosen about it."""

    def __init__(
        self, http: ProviderHttp, dialect: Dialect, *, provider: str, info: ModelInfo
    ) -> None:
        self._http = http
        self._dialect = dialect
        self.info = info
        self.provider = provider
        self.name = name_of(info)
        self.context_window = info.context_window

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer's chunks; see `ports.Model`. Closed early, it closes the connection."""
        pictures = await load_pictures(request) if self.info.takes_images else {}
        body: JsonObject | None = self._dialect.body(request, pictures)
        while body is not None:
            again: JsonObject | None = None
            reader = self._dialect.reader()
            async with aclosing(self._http.events(body)) as events:
                async for event in events:
                    if not isinstance(event, str):
                        again = self._dialect.mended(body, event)
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

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self._http.aclose()
