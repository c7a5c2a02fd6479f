"""What is safe for every client, checked over a transcript: order, closure, shapes, promises.

A rule is a function of the whole transcript that yields sentences; `broken_rules` runs them all.
They are what the schema cannot say: about one `messages`, about the order in `turns`, and about
`offers`, what a client said that it takes.
"""

from collections.abc import Callable, Iterable, Iterator

from acp_bridge.testing.rules import messages, offers, turns
from acp_bridge.testing.transcript import Entry, Line, read

Rule = Callable[[list[Line]], Iterator[str]]

RULES: tuple[Rule, ...] = (
    turns.subagents_are_told_in_order,
    messages.every_answer_has_its_request,
    messages.results_are_objects,
    messages.errors_are_sentences,
    messages.nothing_is_null,
    messages.lines_are_short,
    turns.only_known_sessions,
    turns.chunks_have_message_ids,
    turns.calls_are_announced_and_closed,
    messages.titles_are_one_short_line,
    messages.raw_values_are_objects,
    messages.places_are_absolute,
    offers.only_what_the_client_offers,
    offers.terminals_are_released_once,
    turns.a_cancelled_prompt_is_no_error,
    turns.only_withdrawn_requests_are_cancelled,
    offers.modes_change_only_where_offered,
    offers.compactions_are_negotiated_and_end,
)
"""Every rule but those that need to know which runs were killed, or what is detached."""

TURN_RULES = (turns.turn_updates_only_in_turns, turns.permission_is_asked_properly)
"""Rules that need to know whether subagents are detached."""

LIVING_RULES: tuple[Rule, ...] = (
    messages.every_request_gets_one_answer,
    offers.every_terminal_is_released,
)
"""Rules for runs whose agent was not killed: what it owes in the end."""


def broken_rules(
    entries: Iterable[Entry], *, killed_runs: Iterable[int] = (), detaches: bool = False
) -> list[str]:
    """Every breach, as a sentence; [] for a good transcript.

    ``killed_runs`` are runs whose agent was killed: it may owe answers. ``detaches``: its prompts
    wait for no subagent (``--background detach``), so what those report starts turns by itself.
    """
    killed = set(killed_runs)
    lines = read(entries)
    found = [f"{rule.__name__}: {breach}" for rule in RULES for breach in rule(lines)]
    found += [
        f"{rule.__name__}: {breach}"
        for rule in TURN_RULES
        for breach in rule(lines, detaches=detaches)
    ]
    living = [line for line in lines if line.entry.run not in killed]
    found += [f"{rule.__name__}: {breach}" for rule in LIVING_RULES for breach in rule(living)]
    return found
