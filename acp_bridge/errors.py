"""Every exception of the package on one page, with who is to blame and what goes on the wire.

An error's text is one whole sentence: what failed, which id, what to do next. It is shown to
people as it is, so it never holds a traceback, another library's wording, or a secret.

Invariants: nothing here imports anything but typing; no class is raised without a test.
"""

from typing import ClassVar, Final

RESOURCE_NOT_FOUND: Final = -32002
"""ACP's code for a session or file that is not there."""


FAULT: Final = "Something went wrong inside acp-bridge; its log holds the details. Try again."
"""What people read of a fault that is ours: the log alone says more."""


class BridgeError(Exception):
    """Base of everything we raise on purpose.

    ``code`` is the JSON-RPC error code that a request answered with this error gets; ``data()``
    is the error's ``data`` member, an object or None (``architecture``: table of codes).
    """

    code: ClassVar[int] = -32603

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.details = details

    def data(self) -> dict[str, object] | None:
        """The reply's ``data``: exactly ``{"details": sentence}`` unless a subclass knows more."""
        return {"details": self.details}


class LocalProtocolError(BridgeError):
    """We were about to break a protocol or a log: a bug of ours."""


class RemoteProtocolError(BridgeError):
    """The peer sent something that is no message: bad JSON, a wrong shape, an oversize frame.

    ``code`` is -32700 for bytes that are no JSON and -32600 for JSON that is no message.
    """

    def __init__(self, details: str, *, code: int) -> None:
        super().__init__(details)
        self.code = code  # type: ignore[misc]  # this class alone has a code per instance


class MethodNotFoundError(BridgeError):
    """A request names a method that we do not serve."""

    code = -32601


class InvalidParamsError(BridgeError):
    """A request's parameters cannot be used; ``field`` names the member at fault."""

    code = -32602

    def __init__(self, details: str, *, field: str) -> None:
        super().__init__(details)
        self.field = field

    def data(self) -> dict[str, object]:
        """``{"field": …, "details": sentence}``."""
        return {"field": self.field, "details": self.details}


class AuthRequiredError(BridgeError):
    """Signing in would help."""

    code = -32000


class SessionNotFoundError(BridgeError):
    """No session has this id."""

    code = RESOURCE_NOT_FOUND

    def __init__(self, session_id: str) -> None:
        shown = session_id if len(session_id) <= 100 else session_id[:99] + "…"  # noqa: PLR2004
        super().__init__(f"Session not found: {shown}")
        self.session_id = session_id

    def for_a_shell(self, listing: str) -> str:
        """The sentence for somebody who typed the id; ``listing`` is the command that shows ids."""
        return f"{self.details}. `{listing}` shows which there are."

    def data(self) -> dict[str, object]:
        """``{"sessionId": …}``: clients key their fall-back on code and id."""
        return {"sessionId": self.session_id}


class SessionUnsupportedError(BridgeError):
    """A stored session is sound, but newer than this reader or of another generation."""


class SessionCorruptError(BridgeError):
    """A stored session is damaged; the text says where."""


class SessionMisplacedError(BridgeError):
    """A stored session lies in a folder that does not belong to its id and cwd."""


class SessionConflictError(BridgeError):
    """A session is open for writing elsewhere, or an append does not continue its log."""


class StoreFailedError(BridgeError):
    """The disk refused: full, read-only, or gone. What was durable before still is."""


class SessionQueryError(BridgeError):
    """A query over sessions has no answer; ``query_code`` says why (``sessions.md``, Query)."""

    def __init__(self, details: str, *, query_code: str) -> None:
        super().__init__(details)
        self.query_code = query_code

    def data(self) -> dict[str, object]:
        """``{"details": sentence, "queryCode": …}``."""
        return {"details": self.details, "queryCode": self.query_code}


class SubagentRefusedError(BridgeError):
    """A subagent cannot be started, messaged, interrupted or listed; ``refusal_code`` says why."""

    def __init__(self, details: str, *, refusal_code: str) -> None:
        super().__init__(details)
        self.refusal_code = refusal_code

    def data(self) -> dict[str, object]:
        """``{"details": sentence, "refusalCode": …}``."""
        return {"details": self.details, "refusalCode": self.refusal_code}


class RuntimeFailedError(BridgeError):
    """The harness or its process failed in a way that ended the turn."""


class McpServerError(BridgeError):
    """An MCP server cannot be used; the text goes on from its name and holds no secret of it."""


class ModelFailedError(BridgeError):
    """The model call failed for good: retries used up, or not worth a retry."""


class ConfigError(BridgeError):
    """A flag, environment variable or config file holds something that cannot be used."""


class PlainError(BridgeError):
    """A refusal on a wire whose errors are a code and a sentence (the SDK's)."""

    def data(self) -> None:
        """None: the wire has no place for it."""
        return


class PeerError(BridgeError):
    """The peer answered one of our requests with an error."""

    def __init__(self, details: str, *, code: int) -> None:
        super().__init__(details)
        self.peer_code = code


class PeerGoneError(BridgeError):
    """The connection ended before the peer answered; the text holds the true cause."""


class RequestCancelledError(BridgeError):
    """The peer withdrew its request with ``$/cancel_request``."""

    code = -32800

    def __init__(self) -> None:
        super().__init__("Request cancelled")

    def data(self) -> None:
        """None: a cancelled request carries no data."""
        return


class RunNotFoundError(BridgeError):
    """No run of this id is registered with the event service."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"Run not found: {run_id}. Register it (POST /v1/agent/runs) before its first event."
        )
        self.run_id = run_id


class RunConflictError(BridgeError):
    """What is asked of a run does not fit its state: another parent, another worker, no lease."""


class EventLogResetError(BridgeError):
    """The event log is another one than our cursors are of; ``epoch`` is the new one's."""

    def __init__(self, details: str, *, epoch: str) -> None:
        super().__init__(details)
        self.epoch = epoch


class EventServiceError(BridgeError):
    """The event service refused or could not be reached; ``status`` is HTTP's, None without one."""

    def __init__(self, details: str, *, status: int | None) -> None:
        super().__init__(details)
        self.status = status
