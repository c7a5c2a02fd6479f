"""Why a subagent cannot be had: codes that never change, and sentences for the model. Pure."""

from typing import Final

from acp_bridge.errors import SubagentRefusedError

QUERY_UNAVAILABLE: Final = "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE"
CALLER_MISSING: Final = "SUBAGENT_CONTROL_CALLER_MISSING"
CALLER_ENDING: Final = "SUBAGENT_CALLER_ENDING"
DEPTH_LIMIT: Final = "SUBAGENT_DEPTH_LIMIT"
LIVE_LIMIT: Final = "SUBAGENT_LIVE_LIMIT"
NOT_FOUND: Final = "SUBAGENT_NOT_FOUND"
NOT_YOURS: Final = "SUBAGENT_NOT_YOURS"
NOT_CONTINUABLE: Final = "SUBAGENT_NOT_CONTINUABLE"
NOT_RUNNING: Final = "SUBAGENT_NOT_RUNNING"
NO_PROVIDER: Final = "SUBAGENT_PROVIDER_NOT_REGISTERED"
CONFLICT: Final = "SUBAGENT_OWNERSHIP_CONFLICT"
UNREADABLE: Final = "SUBAGENT_UNREADABLE"


PASSING: Final = frozenset({CALLER_ENDING, DEPTH_LIMIT, LIVE_LIMIT})
"""What is refused for now: nothing is wrong with the child."""


def query_unavailable() -> SubagentRefusedError:
    """Nothing can be listed."""
    return SubagentRefusedError(
        "Subagents cannot be listed: this runtime has no session query.",
        refusal_code=QUERY_UNAVAILABLE,
    )


def caller_missing() -> SubagentRefusedError:
    """The call belongs to no session."""
    return SubagentRefusedError(
        "No session calls: only a session that is open here has subagents.",
        refusal_code=CALLER_MISSING,
    )


def caller_ending() -> SubagentRefusedError:
    """The parent was told to end."""
    return SubagentRefusedError(
        "The session that asks is ending: no subagent was started.", refusal_code=CALLER_ENDING
    )


def too_deep(depth: int, depth_max: int) -> SubagentRefusedError:
    """One more level is too much."""
    return SubagentRefusedError(
        f"A subagent here would be at depth {depth}, and {depth_max} is the limit: do the work"
        " yourself.",
        refusal_code=DEPTH_LIMIT,
    )


def too_many(live_max: int) -> SubagentRefusedError:
    """One more at once is too much."""
    return SubagentRefusedError(
        f"{live_max} subagents work already, which is the limit: wait for one to finish.",
        refusal_code=LIVE_LIMIT,
    )


def not_found(child_id: str, details: str) -> SubagentRefusedError:
    """Its log cannot be had."""
    return SubagentRefusedError(
        f"Subagent {child_id:.100} cannot be read: {details}", refusal_code=NOT_FOUND
    )


def not_yours(child_id: str) -> SubagentRefusedError:
    """The caller is not its parent, nor above it."""
    return SubagentRefusedError(
        f"Session {child_id:.100} is no subagent of this session.", refusal_code=NOT_YOURS
    )


def not_continuable(child_id: str) -> SubagentRefusedError:
    """It has no descriptor."""
    return SubagentRefusedError(
        f"Subagent {child_id:.100} was asked for one answer only and takes no messages.",
        refusal_code=NOT_CONTINUABLE,
    )


def not_running(child_id: str) -> SubagentRefusedError:
    """There is nothing to interrupt."""
    return SubagentRefusedError(
        f"No turn of subagent {child_id:.100} runs now: there is nothing to interrupt.",
        refusal_code=NOT_RUNNING,
    )


def no_provider(name: str) -> SubagentRefusedError:
    """Another program made it, or was to make it."""
    return SubagentRefusedError(
        f"There is no provider {name!r:.100} of subagents in this runtime.",
        refusal_code=NO_PROVIDER,
    )


def no_events_home(child_id: str) -> SubagentRefusedError:
    """It works on other machines, and nothing here reaches them."""
    return SubagentRefusedError(
        f"Subagent {child_id:.100} works on another machine: set the event service (--events)"
        " to wake it.",
        refusal_code=NO_PROVIDER,
    )


def bad_run_id(session_id: str) -> SubagentRefusedError:
    """The event service takes no such id."""
    return SubagentRefusedError(
        f"Session {session_id:.100} cannot have subagents on other machines: its id has letters or"
        " a length that the event service does not take. Do the work yourself.",
        refusal_code=NO_PROVIDER,
    )


def conflict(child_id: str, why: str) -> SubagentRefusedError:
    """It is at work, and not for this caller."""
    return SubagentRefusedError(
        f"Subagent {child_id:.100} cannot be taken over: {why}", refusal_code=CONFLICT
    )


def unreadable(child_id: str, reason: str) -> SubagentRefusedError:
    """Its descriptor does not say what it is."""
    return SubagentRefusedError(
        f"Subagent {child_id:.100} cannot go on: its log is {reason}.", refusal_code=UNREADABLE
    )
