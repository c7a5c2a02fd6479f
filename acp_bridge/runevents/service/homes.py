"""What homes say of their own streams, for people who look for a fault. Kept in memory only."""

import json
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from acp_bridge.errors import EventServiceError
from acp_bridge.runevents.model import checked_id
from acp_bridge.runevents.service.guard import body_of
from acp_bridge.vocabulary import JsonObject, JsonValue

KEPT_MS: Final = 45_000
"""A home that has said nothing for three times its interval is gone."""

HOMES_MAX: Final = 1_000
SNAPSHOT_BYTES_MAX: Final = 256 * 1024
"""More than a thousand sessions of one home."""


class Homes:
    """The last snapshot of each home. ``now_ms`` is milliseconds since the epoch."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._told: dict[str, tuple[int, JsonObject]] = {}

    async def tell(self, request: Request) -> Response:
        """``POST /v1/agent/homes/{home}``: what the home has open now, instead of before.

        An empty object: it has ended.
        """
        home_id = checked_id(request.path_params["home"], "home")
        body = await body_of(request)
        if len(json.dumps(body)) > SNAPSHOT_BYTES_MAX:
            raise EventServiceError("The snapshot is too long to be kept.", status=413)
        self._told.pop(home_id, None)
        if body:
            self._told[home_id] = (self._now_ms(), body)
        while len(self._told) > HOMES_MAX:
            del self._told[next(iter(self._told))]
        return JSONResponse({})

    def told(self) -> list[JsonValue]:
        """What homes said lately, the one that spoke last behind the others."""
        since = self._now_ms() - KEPT_MS
        self._told = {name: one for name, one in self._told.items() if one[0] >= since}
        return [{"home": name, **snapshot} for name, (_, snapshot) in self._told.items()]
