"""Who may call, how much they may send, and errors as answers. The outermost layer of the app."""

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from acp_bridge.errors import (
    BridgeError,
    EventLogResetError,
    EventServiceError,
    InvalidParamsError,
    RunConflictError,
    RunNotFoundError,
    StoreFailedError,
)
from acp_bridge.runevents.model import object_from_text
from acp_bridge.vocabulary import JsonObject

logger = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The longest body: a row of a log with a large file in it fits."""

HEALTH: Final = "/healthz"
EPOCH_HEADER: Final = "acp-bridge-epoch"

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own and nobody else's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through who may call. ``token`` None: bound to loopback, everybody on the machine."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        refused = None if scope["path"] == HEALTH else self._refusal(dict(scope["headers"]))
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, headers: dict[bytes, bytes]) -> Response | None:
        if self._expected is None:
            # A page in a browser reaches loopback too, by its own address or by a name that
            # somebody pointed at it.
            host = urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname or ""
            if b"origin" in headers or not is_loopback(host):
                return refusal(403, "Web pages may not call this service.")
            return None
        given = headers.get(b"authorization", b"")
        if hmac.compare_digest(given, self._expected):
            return None
        return refusal(401, "The token is missing or wrong: set ACP_BRIDGE_EVENTS_TOKEN.")


def refusal(status: int, details: str, **more: str) -> Response:
    """An error as an answer: a whole sentence, and what a program needs beside it."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else None  # noqa: PLR2004
    return JSONResponse({"details": details, **more}, status, headers=headers)


def answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors as answers; no foreign text goes out."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except InvalidParamsError as error:
            return refusal(400, error.details, field=error.field)
        except RunNotFoundError as error:
            return refusal(404, error.details)
        except EventLogResetError as error:
            return refusal(409, error.details, epoch=error.epoch)
        except RunConflictError as error:
            return refusal(409, error.details)
        except EventServiceError as error:
            return refusal(error.status or 500, error.details)
        except StoreFailedError as error:
            logger.error("%s %s: %s", request.method, request.url.path, error.details)  # noqa: TRY400
            return refusal(503, error.details)
        except BridgeError as error:
            logger.error("%s %s: %s", request.method, request.url.path, error.details)  # noqa: TRY400
            return refusal(500, error.details)

    return answer


async def body_of(request: Request) -> JsonObject:
    """The request's JSON object.

    Raises:
        InvalidParamsError: it is none.
        EventServiceError: it is too long.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise EventServiceError(
                f"The body is longer than {BODY_BYTES_MAX} bytes: send less at a time.", status=413
            )
    return object_from_text(bytes(body))
