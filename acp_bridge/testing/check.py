"""Play a scenario and refuse any message that breaks the schema or a rule for all clients."""

import json
from functools import cache
from pathlib import Path

from acp_bridge.testing import launch
from acp_bridge.testing.client import ScenarioError
from acp_bridge.testing.demands import OURS, Demands
from acp_bridge.testing.launch import Launcher
from acp_bridge.testing.replay import replay_differences
from acp_bridge.testing.rules import broken_rules
from acp_bridge.testing.runner import Outcome, play
from acp_bridge.testing.scenario import Scenario, Stop, load
from acp_bridge.testing.schema import SchemaCheck, schema_problems
from acp_bridge.testing.sdk_rules import broken_sdk_rules
from acp_bridge.testing.transcript import Entry


async def played(
    folder: Path,
    place: Path,
    launcher: Launcher | None = None,
    *,
    demands: Demands = OURS,
    wait_s: float | None = None,
) -> Outcome:
    """The outcome of a scenario whose every message is good; ``place`` is an empty folder.

    Without a launcher it is the bridge: in memory, or as a process where the input says so.
    ``wait_s`` bounds every wait.

    Raises:
        ScenarioError: a step had no end, or a message is not good; the text lists them.
    """
    scenario = load(folder)
    if launcher is None:
        start = launch.bridge_process if scenario.process else launch.bridge_in_memory
        launcher = start(scenario.wire)
    outcome = await play(scenario, launcher, place, demands=demands, wait_s=wait_s)
    if scenario.wire == "sdk":
        found = broken_sdk_rules(outcome.entries)
    else:
        found = problems(
            outcome.entries,
            demands=demands,
            killed_runs=killed_runs(scenario),
            detaches=detaches(scenario),
        )
    if found:
        raise ScenarioError(f"{folder.name}:\n" + "\n".join(found))
    return outcome


def problems(
    entries: list[Entry],
    *,
    demands: Demands = OURS,
    killed_runs: tuple[int, ...] = (),
    detaches: bool = False,
) -> list[str]:
    """What the official schema and the rules say about a transcript."""
    checks = {"strict": official_schema, "known": known_schema}
    check = checks.get(demands.schema)
    found = [] if check is None else schema_problems(entries, check())
    if not demands.rules:
        return found
    return [
        *found,
        *broken_rules(entries, killed_runs=killed_runs, detaches=detaches),
        *replay_differences(entries, killed_runs=killed_runs),
    ]


def killed_runs(scenario: Scenario) -> tuple[int, ...]:
    """The runs of a scenario that end with a kill."""
    stops = [step for step in scenario.steps if isinstance(step, Stop)]
    return tuple(run for run, stop in enumerate(stops, start=1) if stop.how == "kill")


def detaches(scenario: Scenario) -> bool:
    """Whether its prompts wait for no subagent."""
    pairs = zip(scenario.flags, scenario.flags[1:], strict=False)
    return ("--background", "detach") in pairs


UNSTABLE_TYPES = (
    "ForkSessionRequest", "ForkSessionResponse", "SessionForkCapabilities", "SubagentUpdate",
    "SubagentSessionCapabilities", "SessionCancelCapabilities", "StateUpdate", "RunningStateUpdate",
    "IdleStateUpdate", "RequiresActionStateUpdate", "UnknownStateUpdate", "ErrorStopReason",
    "Usage", "SessionMessage", "SessionMessageChunk", "PlanUpdate", "PlanUpdateContent",
    "PlanItems", "PlanFile", "PlanMarkdown", "PlanRemoved", "PlanId",
    "SessionSystemPromptCapabilities",
    "SessionSystemPromptModeCapabilities", "SessionSystemPromptOverrideCapabilities",
    "SystemPrompt", "SystemPromptMode",
)  # fmt: skip
UNSTABLE_FIELDS = (
    ("SessionCapabilities", "fork"),
    ("SessionCapabilities", "systemPrompt"),
    ("NewSessionRequest", "systemPrompt"),
    ("LoadSessionRequest", "systemPrompt"),
    ("ResumeSessionRequest", "systemPrompt"),
)
UNSTABLE_TAGS = (
    (
        "SessionUpdate",
        "sessionUpdate",
        (
            "subagent_update",
            "session_message",
            "session_message_chunk",
            "plan_update",
            "plan_removed",
        ),
    ),
)
"""What is spoken beyond the pinned stable schema, to clients that ask for it."""


@cache
def known_schema() -> SchemaCheck:
    """The whole ACP schema, unstable forms too, open to further members; read once."""
    from acp_bridge.acp import schema_files

    return SchemaCheck(json.loads(schema_files()["unstable"].read_text("utf-8")), closed=False)


@cache
def official_schema() -> SchemaCheck:
    """The pinned ACP schema and the unstable forms that we speak, read once."""
    from acp_bridge.acp import schema_files

    paths = schema_files()
    stable, unstable = (
        json.loads(paths[name].read_text("utf-8")) for name in ("stable", "unstable")
    )
    known, more = stable["$defs"], unstable["$defs"]
    known.update({name: more[name] for name in UNSTABLE_TYPES})
    for name, field in UNSTABLE_FIELDS:
        known[name]["properties"][field] = more[name]["properties"][field]
    for name, member, tags in UNSTABLE_TAGS:
        branches = more[name]["oneOf"]
        known[name]["oneOf"] += [
            branch for branch in branches if branch["properties"][member]["const"] in tags
        ]
    return SchemaCheck(stable)
