"""How much delegation a session may do. Apart from all else, so that settings need no more."""

import attrs


@attrs.frozen(slots=True)
class Limits:
    """How deep subagents may go below a root, and how many of one root may work at once."""

    depth_max: int = 3
    live_max: int = 16
