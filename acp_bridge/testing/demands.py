"""What an agent is held to beyond its snapshots: everything for the bridge, less for others."""

from typing import Final, Literal, TypeAlias

import attrs

Checks: TypeAlias = Literal["all", "schema", "none"]


@attrs.frozen(slots=True)
class Demands:
    """Which messages are good, and how an agent has to leave.

    ``schema``: `strict` is the stable ACP schema and what we speak beyond it, with no member that
    it does not name; `known` the whole schema, unstable forms too, with further members allowed.
    ``rules``: those that are safe for all clients. ``leaves_well``: it exits with code 0 when its
    input ends and has written nothing to stderr.
    """

    schema: Literal["strict", "known", "none"]
    rules: bool
    leaves_well: bool


DEMANDS: Final[dict[str, Demands]] = {
    "all": Demands("strict", rules=True, leaves_well=True),
    "schema": Demands("known", rules=False, leaves_well=False),
    "none": Demands("none", rules=False, leaves_well=False),
}
"""By the name that a project gives in ``acp_checks``."""

OURS: Final = DEMANDS["all"]
