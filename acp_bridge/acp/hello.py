"""``initialize``, answered from plain dicts before attrs, cattrs or a runtime is imported.

Pure. What is advertised here is what `agent_side` serves; a test checks the answer against the
generated types and the official schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from acp_bridge.errors import InvalidParamsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_bridge.vocabulary import JsonObject, JsonValue

__all__ = ["CONFIGURED_MODEL", "SETUP", "ClientTraits", "answer_initialize", "client_traits"]

PROTOCOL_VERSION: Final = 1
"""The one version that we speak; the answer to any other that a client asks for."""

PROTOCOL_VERSION_MAX: Final = 65535
"""The schema's type is uint16."""

CONFIGURED_MODEL: Final[JsonObject] = {
    "id": "configured-model",
    "name": "Use the configured model",
    "description": "Work with the model and key that acp-bridge is set up with.",
}
"""The auth method that is always there: some clients fail without one (``acp`` section 6)."""


SETUP: Final = "setup"
"""The auth method that runs ``acp-bridge setup`` in a terminal of the client."""


class ClientTraits(NamedTuple):
    """What a client said about itself. Whatever it left out or misspelt counts as "no".

    ``reads_text``, ``writes_text`` and ``terminal`` allow ``fs/*`` and ``terminal/*`` requests,
    ``forms`` those for forms (``elicitation/create``);
    ``terminal_output_meta`` display terminals through ``_meta``; ``subagents``, ``plan``,
    ``notices`` and ``compaction`` the updates of those names; ``auth_terminal`` auth methods of
    type terminal. ``platform`` is what an editor's family calls itself under ``_meta``.
    """

    name: str = ""
    version: str = ""
    reads_text: bool = False
    writes_text: bool = False
    terminal: bool = False
    terminal_output_meta: bool = False
    subagents: bool = False
    plan: bool = False
    notices: bool = False
    compaction: bool = False
    auth_terminal: bool = False
    forms: bool = False
    platform: str = ""


def answer_initialize(
    params: JsonValue, *, version: str, setup_command: Sequence[str]
) -> JsonObject:
    """The result for an ``initialize`` request: version 1 whatever integer was asked for.

    ``setup_command`` is what stores a key, run in a terminal; offered to clients that open one.

    Raises:
        InvalidParamsError: the parameters are no object, or their ``protocolVersion`` is no
            integer from 0 to 65535 (R015).
    """
    _check_version(params)
    methods = [CONFIGURED_MODEL]
    if client_traits(params).auth_terminal:
        methods.append(_setup_method(setup_command))
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "acp-bridge", "title": "ACP Bridge", "version": version},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {
                "list": {},
                "resume": {},
                "fork": {},
                "close": {},
                "delete": {},
                "additionalDirectories": {},
                "systemPrompt": {},
            },
            "auth": {"logout": {}},
        },
        "authMethods": list(methods),
        "_meta": {"steering": {"supported": True}},  # ``_session/steering``
    }


def _setup_method(command: Sequence[str]) -> JsonObject:
    """Signing in by a command in a terminal; exit status 0 means success.

    Clients append ``args`` to the command they start us with; before the type was stable some
    took a whole command from ``_meta``.
    """
    name = "Store a key in a terminal"
    whole: JsonObject = {"label": name, "command": command[0], "args": list(command[1:])}
    return {
        "type": "terminal",
        "id": SETUP,
        "name": name,
        "description": "Asks for a provider and its key, and stores the key for you alone.",
        "args": ["setup"],
        "_meta": {"terminal-auth": whole},
    }


def client_traits(params: JsonValue) -> ClientTraits:
    """What an ``initialize`` request tells about the client; never fails."""
    offered = _object(params, "clientCapabilities")
    info = _object(params, "clientInfo")
    meta = _object(offered, "_meta")
    files = _object(offered, "fs")
    session = _object(offered, "session")
    return ClientTraits(
        name=_text(info, "name"),
        version=_text(info, "version"),
        reads_text=files.get("readTextFile") is True,
        writes_text=files.get("writeTextFile") is True,
        terminal=offered.get("terminal") is True,
        terminal_output_meta=meta.get("terminal_output") is True,
        subagents=_offers(offered, "subagents"),
        plan=_offers(offered, "plan"),
        notices=_offers(session, "notices"),
        compaction=_offers(session, "compaction"),
        # Zed announced it through _meta before it had a place of its own.
        auth_terminal=_object(offered, "auth").get("terminal") is True
        or meta.get("terminal-auth") is True,
        forms=_offers(_object(offered, "elicitation"), "form"),
        platform=_text(_object(info, "_meta"), "platform"),
    )


def _check_version(params: JsonValue) -> None:
    expected = f"an integer from 0 to {PROTOCOL_VERSION_MAX}"
    if not isinstance(params, dict):
        raise InvalidParamsError(
            "The parameters of initialize must be an object with `protocolVersion`.",
            field="params" if params is not None else "protocolVersion",
        )
    if "protocolVersion" not in params:
        raise InvalidParamsError(
            f"`protocolVersion` is missing: it must be {expected}.", field="protocolVersion"
        )
    asked = params["protocolVersion"]
    if type(asked) is not int or not 0 <= asked <= PROTOCOL_VERSION_MAX:
        raise InvalidParamsError(f"`protocolVersion` must be {expected}.", field="protocolVersion")


def _object(value: JsonValue, key: str) -> JsonObject:
    """The object at ``key``, or an empty one where there is none."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _text(value: JsonObject, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _offers(value: JsonObject, key: str) -> bool:
    """Whether an object-style capability is there: ``{}`` is, null is not."""
    return isinstance(value.get(key), dict)
