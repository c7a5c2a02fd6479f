"""What particular clients need, in one table: nothing elsewhere asks who the client is."""

import attrs

from acp_bridge.acp.hello import ClientTraits


@attrs.frozen(slots=True)
class View:
    """How updates are shaped for one client.

    ``display_terminals``: commands that run here are shown as terminals through ``_meta``
    (clients: section 2.4), with live output. ``config_options``: choices are sent as config
    options besides modes; JetBrains 2026.1 breaks on them (clients: section 3).
    ``compactions``: a compaction is an item of its own, and not a thought.
    ``joins_arguments``: a terminal's command and arguments are joined with spaces for a shell.
    """

    display_terminals: bool = False
    config_options: bool = True
    joins_arguments: bool = False
    compactions: bool = False


_JOINING = frozenset({"zed", "vscode-acp-client"})


def view_for(traits: ClientTraits, *, runs_here: bool = True) -> View:
    """The view of a client that said this of itself; ``runs_here``: commands are run by us."""
    is_jetbrains = traits.name.startswith("JetBrains") or traits.platform == "intellij"
    return View(
        display_terminals=traits.terminal_output_meta and runs_here,
        joins_arguments=traits.name in _JOINING,
        compactions=traits.compaction,
        config_options=not (is_jetbrains and traits.version.startswith("2026.1")),
    )
