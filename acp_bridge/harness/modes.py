"""Permission modes and how the log says them. Pure.

The log has no word for a mode: it holds a sandbox, an approval policy and plan mode, as the real
runtime folds them (sessions: "Our state in v4's vocabulary"). ``full`` is logged as such, since
the other harness would otherwise edit without asking where we asked.
"""

from typing import Final

import attrs

from acp_bridge.vocabulary import Draft, Mode


@attrs.frozen(slots=True)
class ModeInfo:
    """A mode for people, and its rows."""

    mode: Mode
    title: str
    description: str
    sandbox: str
    policy: str


MODES: Final[dict[str, ModeInfo]] = {
    info.mode: info
    for info in (
        ModeInfo(
            "ask",
            "Ask first",
            "Reads in the workspace run; changes and commands ask.",
            "read-only",
            "ask",
        ),
        ModeInfo(
            "accept-edits",
            "Accept edits",
            "File changes in the workspace run too; commands ask.",
            "workspace-write",
            "ask",
        ),
        ModeInfo(
            "plan",
            "Plan only",
            "Looks and plans; changes nothing and runs no commands.",
            "read-only",
            "never",
        ),
        ModeInfo(
            "full",
            "Full access",
            "Everything runs without asking, outside the workspace too.",
            "danger-full-access",
            "never",
        ),
    )
}


def mode_rows(mode: Mode, *, before: Mode | None) -> list[Draft]:
    """The rows that put a session into ``mode``; ``before`` is None at its birth."""
    info = MODES[mode]
    rows = [
        Draft("permission/preset", {"preset": info.sandbox}),
        Draft("sandbox/mode", {"mode": info.sandbox}),
        Draft("approval/policy", {"policy": info.policy}),
    ]
    if (mode == "plan") != (before == "plan"):
        rows.append(Draft("plan/mode", {"active": mode == "plan"}))
    return rows


def delegated_rows(mode: Mode, *, before: Mode | None) -> list[Draft]:
    """The mode that a parent gives its child, as the real runtime writes it: without a preset."""
    rows = []
    for row in mode_rows(mode, before=before):
        assert isinstance(row.data, dict)
        if row.type in {"sandbox/mode", "approval/policy"}:
            rows.append(Draft(row.type, {**row.data, "source": "delegation"}))
        elif row.type != "permission/preset":
            rows.append(row)
    return rows


def mode_from_log(sandbox: str | None, policy: str | None, *, planning: bool) -> Mode:
    """The mode that these rows amount to; the most careful one where they say nothing."""
    if planning:
        return "plan"
    if sandbox == "danger-full-access" and policy == "never":
        return "full"
    return "accept-edits" if sandbox == "workspace-write" else "ask"
