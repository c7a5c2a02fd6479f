"""One provider's HTTP: a request out, server-sent events back, and every way this can fail.

httpx is imported by the first call. A failure is the last thing that comes, as a
`FailureChunk` (or a `StopChunk` for a content filter); nothing is raised but a cancellation.
"""

from __future__ import annotations

import json
import logging
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import attrs

from acp_bridge import __version__
from acp_bridge.models.failures import (
    REFUSAL,
    ProviderError,
    code_of_error,
    failure_from_error,
    lost_connection,
    shown,
)
from acp_bridge.models.jsontext import body_bytes
from acp_bridge.ports import FailureChunk, StopChunk
from acp_bridge.sse import EventBuffer, EventTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping

    import httpx

    from acp_bridge.vocabulary import JsonObject, JsonValue

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 10.0
"""A connection that takes longer will not come: a retry looks up another address."""

IDLE_TIMEOUT_S: Final = 300.0
"""Silence between two bytes. A model that thinks without telling can be quiet for minutes."""

KEEP_ALIVE_S: Final = 45.0
"""How long an idle connection waits for the next turn: below what servers allow (60 s and more),
above the pause between two steps."""

ERROR_BYTES_MAX: Final = 65_536
"""How much of an error answer is read: its JSON is small, a proxy's page need not be."""

ERROR_WAIT_S: Final = 5.0
"""How long the body of an error answer may take; its status says enough."""

DRAIN_WAIT_S: Final = 0.25
"""How long the end of a finished stream may take. Read to its end, the connection serves the next
call; a server that leaves it open must not hold up the turn."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVENT_STREAM: Final = "text/event-stream"


@attrs.frozen(slots=True)
class Account:
    """Whom we call and as whom.

    ``title`` is the provider's name for people, ``url`` where requests go, ``headers`` what says
    who we are, ``key`` the secret in them, ``sign_in`` what a person does about a wrong key, and
    ``base_variable`` the variable that sets the address.
    """

    title: str
    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    key: str = attrs.field(repr=False)
    sign_in: str
    base_variable: str


Ending: TypeAlias = "FailureChunk | StopChunk"


class ProviderHttp:
    """Calls to one provider over kept-alive connections; ``now`` gives seconds since the epoch."""

    def __init__(self, account: Account, *, now: Callable[[], float] = time.time) -> None:
        self._account = account
        self._now = now
        self._client: httpx.AsyncClient | None = None

    async def events(self, body: JsonObject) -> AsyncGenerator[str | Ending, None]:
        """Post ``body``; the data of each event, or the one ending that says what went wrong."""
        try:
            client = self._connected()
        except (ImportError, ValueError, OSError) as fault:
            logger.warning("%s cannot be called: %s", self._account.title, type(fault).__name__)
            yield self._unusable()
            return
        import httpx

        data = body_bytes(body)
        try:
            async with client.stream("POST", self._account.url, content=data) as response:
                refused = await self._refusal(response)
                if refused is not None:
                    yield refused
                    return
                buffer = EventBuffer()
                async for piece in _pieces(response):
                    for event in buffer.receive(piece):
                        yield event
        except EventTooLongError:
            yield self.malformed()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as fault:
            yield self._lost(fault)

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def failed(self, error: JsonValue, *, status: int | None = None) -> Ending:
        """The ending that an error object in the midst of a stream is."""
        return self._ending(self._read_error(error, status), None)

    def malformed(self) -> FailureChunk:
        """The ending for an answer that is not what the provider's API says."""
        account = self._account
        return FailureChunk(
            message=f"{account.title} sent something that is no answer of its API: "
            f"check {account.base_variable}.",
            code="MALFORMED_RESPONSE",
        )

    def cut_off(self) -> FailureChunk:
        """The ending for a stream that stopped before the answer did."""
        return lost_connection(f"the answer of {self._account.title} was cut off")

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = _client(self._account)
        return self._client

    async def _refusal(self, response: httpx.Response) -> Ending | None:
        """What an answer without events is; None for one with them."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind == _EVENT_STREAM:  # noqa: PLR2004
            return None
        body = await _error_body(response)
        if response.status_code < 400:  # noqa: PLR2004  # success or a redirect, but no events
            found = body.get("error") if isinstance(body, dict) else None
            return self.failed(found) if isinstance(found, dict) else self.malformed()
        error: JsonValue = body.get("error", body) if isinstance(body, dict) else body
        told = self._read_error(error, response.status_code)
        return self._ending(told, retry_after_s(response.headers, self._now()))

    def _read_error(self, error: JsonValue, status: int | None) -> ProviderError:
        if not isinstance(error, dict):
            text = error if isinstance(error, str) and not error.lstrip().startswith("<") else ""
            return ProviderError(status, (), shown(text, secret=self._account.key))
        kinds = [error.get("code"), error.get("type")]
        if status is None:
            # Gateways put the status of their own provider where others have a name.
            status = next((k for k in kinds if isinstance(k, int) and 400 <= k < 600), None)  # noqa: PLR2004
        message = error.get("message")
        return ProviderError(
            status,
            tuple(kind for kind in kinds if isinstance(kind, str)),
            shown(message if isinstance(message, str) else "", secret=self._account.key),
        )

    def _ending(self, error: ProviderError, wait_s: float | None) -> Ending:
        if code_of_error(error) == REFUSAL:
            return StopChunk("refusal")
        account = self._account
        return failure_from_error(
            error, title=account.title, sign_in=account.sign_in, retry_after_s=wait_s
        )

    def _lost(self, fault: Exception) -> FailureChunk:
        """What an exception of httpx means; its own words stay here."""
        import httpx

        title = self._account.title
        logger.info("the call to %s failed: %s", title, type(fault).__name__)
        match fault:
            case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
                return self._unusable()
            case httpx.ConnectTimeout():
                text = f"{title} did not take the connection in {CONNECT_TIMEOUT_S:g} s"
                return FailureChunk(text, "TIMEOUT", retryable=True)
            case httpx.TimeoutException():
                text = f"{title} sent nothing for {IDLE_TIMEOUT_S:g} s"
                return FailureChunk(text, "TIMEOUT", retryable=True)
            case httpx.ConnectError() | httpx.ProxyError():
                host = urlsplit(self._account.url).hostname
                return lost_connection(f"no connection to {title} at {host}")
            case _:
                return lost_connection(f"the connection to {title} was lost")

    def _unusable(self) -> FailureChunk:
        account = self._account
        return FailureChunk(
            message=f"{account.title} cannot be called: check {account.base_variable}, the proxy "
            "variables and the key.",
            code="INVALID_REQUEST",
        )


def warm_up() -> None:
    """Import what a first call needs (about 100 ms), so that it does not wait for it."""
    import sys

    import httpx

    if find_spec("sniffio") is None:
        # httpcore looks for it four times a call, and to find nothing takes 0.2 ms each time.
        sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]
    # It notes every address it calls; ours notes what matters, and no address holds a secret.
    logging.getLogger(httpx.__name__).setLevel(logging.WARNING)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """The provider's own wish for the wait: ``retry-after-ms``, ``retry-after`` as number or date.

    Never negative; None without a wish that makes sense.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if 0 <= wait_s < float("inf"):
            return wait_s
    from email.utils import parsedate_to_datetime  # 10 ms, for the rarest form

    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, at.timestamp() - now_s)
    except (ValueError, OverflowError, OSError):
        return None


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def _client(account: Account) -> httpx.AsyncClient:
    warm_up()
    import httpx

    return httpx.AsyncClient(
        headers={
            **account.headers,
            "user-agent": f"acp-bridge/{__version__}",
            "accept": _EVENT_STREAM,
            # Compressed events wait for each other; a stream is to arrive as it is made.
            "accept-encoding": "identity",
            "content-type": "application/json",
        },
        timeout=httpx.Timeout(IDLE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
        # Certificates take 20 ms to load, and only https needs them.
        verify=account.url.lower().startswith("https:"),
        # A proxy of the environment never serves this machine's own addresses.
        trust_env=not is_loopback(account.url),
    )


def _pieces(response: httpx.Response) -> AsyncIterable[bytes]:
    """The body as it comes. Against our wish a server may have compressed it."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return response.aiter_bytes()
    return response.stream  # type: ignore[return-value]  # an asynchronous client's


async def drain(events: AsyncGenerator[str | Ending, None]) -> None:
    """Read a finished stream to its end, so that its connection serves the next call."""
    with anyio.move_on_after(DRAIN_WAIT_S):
        async for _ in events:
            pass


async def _error_body(response: httpx.Response) -> JsonValue:
    """The JSON of an error answer, its text if it is none, "" if it does not come."""
    import httpx

    data = b""
    with anyio.move_on_after(ERROR_WAIT_S):
        try:
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > ERROR_BYTES_MAX:
                    break
        except httpx.HTTPError:
            pass  # the status is known, and what came of the text may do
    try:
        value: JsonValue = json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
    return value
