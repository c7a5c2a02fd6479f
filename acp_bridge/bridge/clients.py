"""What particular clients need, in one table: nothing elsewhere asks who the client is."""

import attrs

from acp_bridge.acp.hello import ClientTraits


@attrs.frozen(slots=True)
class View:
    """How updates are shaped for one client.

    ``display_terminals``: commands that run here are shown as terminals through ``_meta``
    (clients: section 2.4), with live output.
    """

    display_terminals: bool = False


def view_for(traits: ClientTraits) -> View:
    """The view of a client that said this of itself."""
    return View(display_terminals=traits.terminal_output_meta)
