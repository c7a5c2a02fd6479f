"""Plays for the acting runtime: what a root and its subagents do at a prompt."""

from functools import partial

import anyio
from stage_rig import Stage

from acp_bridge.vocabulary import SessionId, TurnEnd


async def nest(stage: Stage) -> TurnEnd:
    """Three levels below the root; the deepest asks, and each answers the one above."""
    root = stage.root_id
    stage.turn()
    stage.say(root, "P1 ")
    one = stage.delegate(root, "c", "one", "first", task="Plan it.")
    two = stage.delegate(one, "c", "two", "second", task="Divide it.")
    three = stage.delegate(two, "c", "three", "third", task="Do it.", wait=True)
    for child in (one, two, three):
        stage.say(child, f"{child} says. ")
    await stage.ask(three, "b", "make")
    stage.say(three, "Made.")
    stage.finish(three)
    stage.result(two, "c", "Made.")
    stage.say(two, "Divided.")
    stage.finish(two)
    stage.result(one, "c", "started subagent two")
    stage.say(one, "Planned.")
    stage.finish(one)
    stage.result(root, "c", "started subagent one")
    stage.say(root, "P2")
    stage.end_turn()
    return TurnEnd("completed")


async def two_ask(stage: Stage) -> TurnEnd:
    """Two children ask for calls of one id at once."""
    root = stage.root_id
    stage.turn()
    names = []
    for number in (1, 2):
        name = stage.delegate(root, f"c{number}", f"kid{number}", f"k{number}")
        stage.result(root, f"c{number}", f"started subagent {name}")
        names.append(name)
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(partial(stage.ask, name, "call_0", f"echo {name}"))
    for name in names:
        stage.say(name, f"{name} is done.")
        stage.finish(name)
    stage.say(root, "Both are done.")
    stage.end_turn()
    return TurnEnd("completed")


async def ends(stage: Stage) -> TurnEnd:
    """One child fails, one hits its token limit, one is cancelled by the user while it asks."""
    root = stage.root_id
    stage.turn()
    kids: list[SessionId] = []
    for kind in ("error", "max-tokens", "aborted"):
        kids.append(stage.delegate(root, kind, f"kid-{kind}", kind))
        stage.result(root, kind, f"started subagent kid-{kind}")
        stage.say(kids[-1], "Half")
    failing, limited, asking = kids
    stage.finish(failing, "error")
    stage.finish(limited, "max-tokens")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.ask, asking, "b", "sleep 9")
        await stage.cancel_of(asking).wait()
        group.cancel_scope.cancel()
    stage.finish(asking, "aborted")
    stage.say(root, "Well.")
    stage.end_turn()
    return TurnEnd("completed")


async def until_cancelled(stage: Stage) -> TurnEnd:
    """A child and its child work until the user cancels the root: children end first."""
    root = stage.root_id
    stage.turn()
    one = stage.delegate(root, "c1", "one", "first", wait=True)
    two = stage.delegate(one, "c1", "two", "second", wait=True)
    stage.say(two, "Working")
    await stage.cancelled.wait()
    for parent, child in ((one, two), (root, one)):
        stage.finish(child, "aborted")
        stage.result(parent, "c1", "The subagent was cancelled.", is_error=True)
    stage.end_turn(kind="aborted")
    return TurnEnd("aborted")


async def outlive(stage: Stage) -> TurnEnd:
    """First the root answers while a child works on; then it messages the child, which ends."""
    root, kid = stage.root_id, SessionId("kid")
    stage.turn()
    if kid in stage.members:
        stage.steer(root, "c2", kid, "Hurry.")
        stage.cue("hurry").set()
        await stage.cue("over").wait()
        stage.say(root, "It is over.")
    else:
        stage.delegate(root, "c1", "kid", "slow")
        stage.result(root, "c1", "started subagent kid")
        stage.say(root, "It works.")
    stage.end_turn()
    return TurnEnd("completed")


PLAYS = {play.__name__: play for play in (nest, two_ask, ends, until_cancelled, outlive)}
