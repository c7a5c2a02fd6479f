"""What the log knows of a run, and how it may change: register, claim, lease, settle. Pure.

::

    open                       registered without a task: its own process executes it
    waiting -> claimed         a worker took it; its execution id fences all earlier ones
    claimed -> settled         the worker said how it ended, or its lease lapsed
    waiting -> settled         it was cancelled before a worker took it
    open | settled -> waiting  registered again with a task: it is continued
"""

import json
from typing import Final, Literal, get_args

import attrs

from acp_bridge.errors import EventServiceError, RunConflictError
from acp_bridge.runevents.model import RunId, json_text
from acp_bridge.vocabulary import JsonObject, JsonValue

LEASE_MS: Final = 15_000
"""How long a claim holds without being renewed (``orchestration.md``, "Service and wire")."""

RunState = Literal["open", "waiting", "claimed", "settled"]
RUN_STATES: Final[tuple[RunState, ...]] = get_args(RunState)


@attrs.frozen(slots=True)
class Run:
    """A registered run.

    ``parent_id`` never changes. ``task`` is what a worker is to do, opaque here, and kept until a
    worker has it for sure; ``task_id`` is its name: registering the same task again, because an
    answer was lost, changes nothing.
    ``worker``, ``execution_id`` and ``lease_until_ms`` (milliseconds since the epoch) are set while
    a worker has it; ``settled_by`` is the execution that ended last.
    """

    run_id: RunId
    parent_id: RunId | None = None
    state: RunState = "open"
    task: JsonObject | None = None
    task_id: str | None = None
    worker: str | None = None
    execution_id: str | None = None
    lease_until_ms: int | None = None
    settled_by: str | None = None


def registered(
    known: Run | None,
    *,
    run_id: RunId,
    parent_id: RunId | None,
    task: JsonObject | None,
    task_id: str | None,
) -> Run:
    """The run after somebody registered it; the same object where that changes nothing.

    Raises:
        RunConflictError: it has another parent, or a task that is not done.
    """
    if known is None:
        return Run(run_id, parent_id, "open" if task is None else "waiting", task, task_id)
    if known.parent_id != parent_id:
        raise RunConflictError(
            f"The run {run_id} is registered with the parent {known.parent_id or '(none)'}: "
            "register it with that one, or take another id."
        )
    if task is None or known.task_id == task_id:
        return known
    if known.state in {"waiting", "claimed"}:
        raise RunConflictError(
            f"The run {run_id} still has the task {known.task_id}: wait until it has settled."
        )
    return attrs.evolve(known, state="waiting", task=task, task_id=task_id)


def claimed(run: Run, *, worker: str, execution_id: str, now_ms: int) -> Run:
    """The run in a worker's hands. Asked again with the same execution id, it stays there.

    Raises:
        RunConflictError: nobody can have it now.
    """
    if run.state == "claimed" and run.execution_id == execution_id:
        return attrs.evolve(run, lease_until_ms=now_ms + LEASE_MS)
    if run.state != "waiting":
        raise RunConflictError(
            f"The run {run.run_id} is {run.state}, so it cannot be claimed: claim one that waits."
        )
    return attrs.evolve(
        run,
        state="claimed",
        worker=worker,
        execution_id=execution_id,
        lease_until_ms=now_ms + LEASE_MS,
    )


def leased(run: Run, *, execution_id: str, now_ms: int) -> Run:
    """The run with its lease renewed from now.

    Its task goes: who renews has got it, and a log would write it again with every renewal.

    Raises:
        RunConflictError: it is not this execution's any more.
    """
    check_execution(run, execution_id)
    return attrs.evolve(run, lease_until_ms=now_ms + LEASE_MS, task=None)


def settled(run: Run, execution_id: str) -> Run:
    """The run after an execution's end was told; the same object if another one has it by now."""
    if run.state != "claimed" or run.execution_id != execution_id:
        return run
    return attrs.evolve(
        run,
        state="settled",
        task=None,
        worker=None,
        execution_id=None,
        lease_until_ms=None,
        settled_by=execution_id,
    )


def withdrawn(run: Run, task_id: str | None) -> Run:
    """The run after its task was cancelled; the same object if a worker has it, or had.

    ``task_id`` None: whatever task it has.
    """
    if run.state != "waiting" or task_id not in {None, run.task_id}:
        return run
    return attrs.evolve(run, state="settled", settled_by=withdrawal(run))


def withdrawal(run: Run) -> str:
    """What stands for the execution that a withdrawn task never had."""
    return f"withdrawn:{run.task_id}"


def has_lapsed(run: Run, now_ms: int) -> bool:
    """Whether its worker let the lease run out."""
    return run.lease_until_ms is not None and run.lease_until_ms < now_ms


def check_execution(run: Run, execution_id: str | None) -> None:
    """Whether this execution may still speak for the run.

    Raises:
        RunConflictError: another one has it, or none.
    """
    if run.state != "claimed" or run.execution_id != execution_id:
        raise RunConflictError(
            f"The execution {execution_id or '(none)'} does not hold the run {run.run_id}: its "
            "lease lapsed or the run settled. Stop it."
        )


def run_json(run: Run) -> JsonObject:
    """A run as the wire and the logs have it."""
    return attrs.asdict(run)


def run_from_json(value: JsonValue) -> Run:
    """A run of `run_json`; members that a newer program added are left out.

    Raises:
        EventServiceError: it is none.
    """
    if isinstance(value, dict):
        known = {name: value[name] for name in _MEMBERS if name in value}
        if isinstance(known.get("run_id"), str) and known.get("state") in RUN_STATES:
            return Run(**known)  # type: ignore[arg-type]  # our own service wrote it
    raise EventServiceError("The answer is no run: is it an event service?", status=None)


def run_from_text(text: str | bytes) -> Run:
    """A run that `run_text` wrote."""
    return run_from_json(json.loads(text))


_MEMBERS: Final = tuple(field.name for field in attrs.fields(Run))


def run_text(run: Run) -> str:
    """A run as logs keep it."""
    return json_text(run_json(run))
