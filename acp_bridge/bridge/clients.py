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
    ``notices``: what we say beside the conversation is a notice, and not a thought. ``plans``: the
    plan has an id and can be removed. ``joins_arguments``: a terminal's command and arguments are
    joined with spaces for a shell.
    ``native_subagents``: subagents are shown as sessions of their own, not as tool calls.
    """

    display_terminals: bool = False
    config_options: bool = True
    joins_arguments: bool = False
    compactions: bool = False
    notices: bool = False
    plans: bool = False
    native_subagents: bool = False


_JOINING = frozenset({"zed", "vscode-acp-client"})

_OLDER_SUBAGENTS = frozenset({"zed"})
"""Offer ``subagents`` and mean an older draft: the final form would be lost on them (clients:
section 2.6). JetBrains, which reads another old draft, is told by its family's name."""


def view_for(traits: ClientTraits, *, runs_here: bool = True, subagents: str = "auto") -> View:
    """The view of a client that said this of itself.

    ``runs_here``: commands are run by us. ``subagents`` is the setting of that name.
    """
    is_jetbrains = traits.name.startswith("JetBrains") or traits.platform == "intellij"
    return View(
        display_terminals=traits.terminal_output_meta and runs_here,
        joins_arguments=traits.name in _JOINING,
        compactions=traits.compaction,
        notices=traits.notices,
        plans=traits.plan,
        config_options=not (is_jetbrains and traits.version.startswith("2026.1")),
        native_subagents=subagents == "native"
        or (
            subagents == "auto"
            and traits.subagents
            and not is_jetbrains
            and traits.name not in _OLDER_SUBAGENTS
        ),
    )
