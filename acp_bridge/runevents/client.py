"""The event service from outside: publish, register, claim, ask, and streams. httpx.

Every failure is an `EventServiceError` with one whole sentence. Nothing is tried again in here:
whoever calls knows how long it may wait, and every call may be repeated with the same ids.
"""

from __future__ import annotations

import json
import logging
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, urlsplit

import attrs

from acp_bridge import __version__
from acp_bridge.errors import ConfigError, EventLogResetError, EventServiceError, InvalidParamsError
from acp_bridge.runevents.model import RunEvent, RunId, event_from_json, json_text
from acp_bridge.runevents.runs import Run, run_from_json
from acp_bridge.sse import EventBuffer, EventTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    import httpx

    from acp_bridge.runevents.model import EventDraft
    from acp_bridge.vocabulary import JsonObject, JsonValue

logger = logging.getLogger(__name__)

CONNECT_S: Final = 10.0
ANSWER_S: Final = 40.0
"""How long an answer may take: an ask is held for 25 s."""

SILENCE_S: Final = 45.0
"""A stream that says nothing for three heartbeats is dead."""

KEEP_ALIVE_S: Final = 45.0
"""Idle connections are closed here before the service closes them (75 s)."""

ERROR_BYTES_MAX: Final = 65_536
EPOCH_HEADER: Final = "acp-bridge-epoch"


class EventClient:
    """Calls to one service. An `EventSource` for streams; a context manager that closes it.

    ``url`` is where ``/v1`` begins, ``token`` what the service was started with.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        import httpx

        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"The event service {url!r} is no address: use http://HOST:PORT.")
        self._url = url.rstrip("/")
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError("The token of the event service must be plain characters.")
        headers = {"user-agent": f"acp-bridge/{__version__}", "content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # Each session may have a stream: no bound here but the service's.
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            verify=parts.scheme == "https",  # certificates take 20 ms to load
            trust_env=parts.hostname not in {"localhost", "127.0.0.1", "::1"},
        )

    @property
    def address(self) -> str:
        """Where the service is, for people: without credentials."""
        return self._shown

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    # --- for homes and workers -----------------------------------------------------------------

    async def publish(self, run_id: RunId, drafts: Sequence[EventDraft]) -> list[int]:
        """Append events of one run, all or none; their sequences."""
        items: list[JsonValue] = [attrs.asdict(draft, recurse=False) for draft in drafts]
        return _sequences(await self._post(f"events/{_part(run_id)}", {"events": items}))

    async def message(
        self, recipient: RunId, event_id: str, payload: JsonObject, *, sender: RunId | None = None
    ) -> int:
        """Send a message into a run's inbox; its sequence."""
        body: JsonObject = {
            "run_id": recipient,
            "event_id": event_id,
            "ref_id": sender,
            "payload": payload,
        }
        return _sequences(await self._post("messages", body))[0]

    async def register(
        self,
        run_id: RunId,
        *,
        parent_id: RunId | None = None,
        task: JsonObject | None = None,
        task_id: str | None = None,
    ) -> Run:
        """Register a run; with a task, for a worker to claim."""
        body: JsonObject = {
            "run_id": run_id,
            "parent_id": parent_id,
            "task": task,
            "task_id": task_id,
        }
        return run_from_json(await self._post("runs", body))

    async def run(self, run_id: RunId) -> Run:
        """What the service knows of a run."""
        found = await self._get(f"runs/{_part(run_id)}")
        found.pop("children", None)
        return run_from_json(found)

    async def children(self, run_id: RunId) -> list[RunId]:
        """The runs that have this one as their parent."""
        children = (await self._get(f"runs/{_part(run_id)}")).get("children")
        return [RunId(str(one)) for one in children] if isinstance(children, list) else []

    async def waiting(self, *, limit: int = 1_000, hold_s: int = 0) -> list[Run]:
        """Runs that a worker may claim, those that wait longest first; their tasks left out.

        While there is none the service waits up to ``hold_s`` seconds (25 at most) for the first.
        """
        query = f"runs?state=waiting&limit={limit}&hold_s={hold_s}"
        runs = (await self._get(query)).get("runs")
        return [run_from_json(one) for one in runs] if isinstance(runs, list) else []

    async def claim(self, run_id: RunId, *, worker: str, execution_id: str) -> Run:
        """Take a waiting run; asked again with the same execution id, keep it."""
        body: JsonObject = {"worker": worker, "execution_id": execution_id}
        return run_from_json(await self._post(f"runs/{_part(run_id)}/claim", body))

    async def lease(self, run_id: RunId, *, execution_id: str) -> Run:
        """Keep the run for 15 s more; status 409: it is lost, stop."""
        body: JsonObject = {"execution_id": execution_id}
        return run_from_json(await self._post(f"runs/{_part(run_id)}/lease", body))

    async def rows(
        self, run_id: RunId, *, execution_id: str, event_id: str, rows: list[JsonValue]
    ) -> int:
        """Send rows of the child's log to its home; the event's sequence."""
        body: JsonObject = {"execution_id": execution_id, "event_id": event_id, "rows": rows}
        return _sequences(await self._post(f"runs/{_part(run_id)}/rows", body))[0]

    async def ask(
        self, run_id: RunId, *, execution_id: str, event_id: str, payload: JsonObject
    ) -> JsonObject | None:
        """Ask the home's user; None: no answer yet, ask again with the same event id."""
        body: JsonObject = {"execution_id": execution_id, "event_id": event_id, "payload": payload}
        answer = (await self._post(f"runs/{_part(run_id)}/ask", body)).get("answer")
        return answer if isinstance(answer, dict) else None

    async def answer(self, run_id: RunId, *, ask_id: str, payload: JsonObject) -> int:
        """Answer an ask; the first answer counts. The event's sequence."""
        body: JsonObject = {"ask_id": ask_id, "payload": payload}
        return _sequences(await self._post(f"runs/{_part(run_id)}/answer", body))[0]

    async def cancel(
        self,
        run_id: RunId,
        *,
        event_id: str,
        payload: JsonObject | None = None,
        task_id: str | None = None,
    ) -> int:
        """Tell whoever executes the run to end it; the event's sequence.

        If it still waits, with this task, it is settled as cancelled.
        """
        body: JsonObject = {"event_id": event_id, "payload": payload or {}, "task_id": task_id}
        return _sequences(await self._post(f"runs/{_part(run_id)}/cancel", body))[0]

    async def delivered(self, run_id: RunId, *, through: int) -> None:
        """Let the service forget what the run told before this settlement."""
        await self._post(f"runs/{_part(run_id)}/delivered", {"through": through})

    async def tell_home(self, home_id: str, snapshot: JsonObject) -> None:
        """Let the service show what this home has open; it forgets it after a while."""
        await self._post(f"homes/{quote(home_id, safe='')}", snapshot)

    async def status(self) -> JsonObject:
        """What is open at the service, in counts."""
        return await self._get("status")

    # --- streams -------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(
        self,
        cursors: Mapping[RunId, int],
        *,
        epoch: str | None,
        types: Sequence[str] | None = None,
    ) -> AsyncIterator[HttpStream]:
        """A stream of all later events of these runs, or of some types: see `EventSource`."""
        import httpx

        asked: JsonObject = {
            "run_ids": list(cursors),
            "since": list(cursors.values()),
            "epoch": epoch,
            "types": None if types is None else list(types),
        }
        body = json_text(asked)
        url = f"{self._url}/v1/agent/events/stream"
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
        try:
            async with self._http.stream("POST", url, content=body, timeout=timeout) as response:
                if response.status_code != 200:  # noqa: PLR2004
                    raise await self._refused(response)
                found = response.headers.get(EPOCH_HEADER, "")
                if epoch not in {None, found}:
                    raise EventLogResetError("The event log is another one now.", epoch=found)
                yield HttpStream(found, response)
        except EventTooLongError as fault:
            details = f"The event service at {self._shown} sent an event without an end."
            raise EventServiceError(details, status=None) from fault
        except (httpx.HTTPError, httpx.StreamError) as fault:
            raise self._lost(fault) from fault

    async def _get(self, path: str) -> JsonObject:
        return await self._call("GET", path, None)

    async def _post(self, path: str, body: JsonObject) -> JsonObject:
        return await self._call("POST", path, json_text(body))

    async def _call(self, method: str, path: str, content: str | None) -> JsonObject:
        import httpx

        try:
            url = f"{self._url}/v1/agent/{path}"
            async with self._http.stream(method, url, content=content) as response:
                if response.status_code != 200:  # noqa: PLR2004
                    raise await self._refused(response)
                answer = json.loads(await response.aread())
        except (httpx.HTTPError, httpx.StreamError) as fault:
            raise self._lost(fault) from fault
        except ValueError as fault:
            answer = None
            logger.info("no JSON from %s: %s", self._shown, type(fault).__name__)
        if not isinstance(answer, dict):
            details = f"{self._shown} answered with something else: is it an event service?"
            raise EventServiceError(details, status=None)
        return answer

    async def _refused(self, response: httpx.Response) -> EventServiceError | EventLogResetError:
        data = bytearray()
        async with aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                data += piece
                if len(data) > ERROR_BYTES_MAX:
                    break
        try:
            told = json.loads(data)
        except ValueError:
            told = None
        found = told if isinstance(told, dict) else {}
        status, details = response.status_code, found.get("details")
        if not isinstance(details, str):
            details = f"{self._shown} answered with status {status}: is it an event service?"
        if status == 409 and isinstance(found.get("epoch"), str):  # noqa: PLR2004
            return EventLogResetError(details, epoch=found["epoch"])
        return EventServiceError(details, status=status)

    def _lost(self, fault: Exception) -> EventServiceError:
        """What an exception of httpx means; its own words stay here."""
        kind = type(fault).__name__
        details = (
            f"The event service at {self._shown} is not reached ({kind}): does it run? "
            "`acp-bridge events serve` starts one."
        )
        return EventServiceError(details, status=None)


class HttpStream:
    """An open stream: an `EventStream`."""

    def __init__(self, epoch: str, response: httpx.Response) -> None:
        self.epoch = epoch
        self._response = response

    async def batches(self) -> AsyncGenerator[list[RunEvent], None]:
        """Events as they come. What is no event is skipped with a warning."""
        buffer = EventBuffer()
        async with aclosing(_pieces(self._response)) as pieces:
            async for piece in pieces:
                found = [_event(data) for data in buffer.receive(piece)]
                batch = [event for event in found if event is not None]
                if batch:
                    yield batch


async def _pieces(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    async for piece in response.aiter_raw():
        yield piece


def _event(data: str) -> RunEvent | None:
    try:
        return event_from_json(json.loads(data))
    except (ValueError, RecursionError, InvalidParamsError) as fault:
        what = fault.field if isinstance(fault, InvalidParamsError) else type(fault).__name__
        logger.warning("an item of the stream is no event and is skipped: %s", what)
        return None


def _part(run_id: RunId) -> str:
    return quote(run_id, safe="")


def _sequences(answer: JsonObject) -> list[int]:
    found = answer.get("sequences")
    if not isinstance(found, list) or not found:
        raise EventServiceError(
            "The answer names no sequence: is it an event service?", status=None
        )
    return [one for one in found if isinstance(one, int)]
