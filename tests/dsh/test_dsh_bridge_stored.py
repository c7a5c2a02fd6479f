"""Stores that others wrote, opened on the real runtime: historical forks, and nested subagents."""

import json
from pathlib import Path
from typing import Any

import pytest
from bridge_rig import DshPlace, end_of
from dsh_rig import Message, loopback_model, text, tool
from process_rig import BRIDGE, Bridge

from acp_bridge.errors import SessionNotFoundError
from acp_bridge.sessions import SessionStore
from acp_bridge.testing.forks import make_fork

pytestmark = [pytest.mark.dsh, pytest.mark.process]

NATIVE: Message = {"subagents": {}}
FALLBACK: Message = {}
FORMS = pytest.mark.parametrize("form", [NATIVE, FALLBACK], ids=["native", "fallback"])


def ids_of(bridge: Bridge) -> set[str]:
    return {one["sessionId"] for one in bridge.result("session/list")["sessions"]}


def params(place: DshPlace, session: str) -> Message:
    return {"sessionId": session, "cwd": str(place.work), "mcpServers": []}


def announced(bridge: Bridge, session: str | None = None) -> set[str]:
    """The subagents' sessions that the client was told of, on one session or on all."""
    return {
        update["sessionId"]
        for update in bridge.updates(session)
        if update["sessionUpdate"] == "subagent_update"
    }


def said_in(bridge: Bridge, session: str) -> list[Message]:
    """What a session was shown, but for the models that the process turned out to have."""
    return [
        update
        for update in bridge.updates(session)
        if update["sessionUpdate"] != "config_option_update"
    ]


@FORMS
def test_forks_that_name_their_source_are_sessions_of_their_own(
    place: DshPlace, form: Message
) -> None:
    """Programs before the newer rule wrote the source's id into a fork, as into a subagent."""
    place.loopback.promise("Child, work.", text("From the child."))
    with place.bridge("--mode", "full") as bridge:
        bridge.hello(**form)
        session = bridge.new(place.work)
        place.loopback.answer(
            session, tool("c1", "subagent", description="Helper", prompt="Child, work.")
        )
        place.loopback.answer(session, text("It works. "))
        place.loopback.answer(session, text("It is done."))
        assert end_of(bridge, session, "the source begins") == "end_turn"
    [child] = {one for one in place.loopback.requests if one not in {session, ""}}
    make_fork(place.dsh_home, session, "old", historical=True)
    make_fork(place.dsh_home, "old", "older", historical=True)
    store = SessionStore(place.dsh_home / "sessions", clock=lambda: 0)
    assert store.read_header("older").parent_session == "old"

    with place.bridge() as bridge:
        bridge.hello(**form)
        assert ids_of(bridge) == {session, "old", "older"}
        bridge.result("session/load", **params(place, session))
        assert announced(bridge) == ({child} if form is NATIVE else set())
        for fork in ("old", "older"):
            bridge.result("session/load", **params(place, fork))
            assert bridge.text(fork).endswith("It is done.")
        # What a fork says reaches neither its source nor the fork above it.
        before = {one: said_in(bridge, one) for one in (session, "old")}
        place.loopback.answer("older", text("In the older one."))
        assert end_of(bridge, "older", "go on") == "end_turn"
        assert bridge.text("older").endswith("In the older one.")
        assert "the source begins" in place.loopback.asked("older")
        assert {one: said_in(bridge, one) for one in before} == before
        assert announced(bridge, "old") == announced(bridge, "older") == set()
        assert announced(bridge) <= {child}

        nested = bridge.result("session/fork", **params(place, "older"))["sessionId"]
        assert end_of(bridge, nested, "in a new fork") == "end_turn"
        assert "In the older one." in place.loopback.asked(nested)
        assert store.read_header(nested).parent_session is None

        # A delete takes the session's subagent with it, and no fork.
        bridge.result("session/delete", sessionId=session)
        assert ids_of(bridge) == {"old", "older", nested}
        bridge.result("session/delete", sessionId="old")
        assert ids_of(bridge) == {"older", nested}
        assert end_of(bridge, "older", "still here") == "end_turn"
    with pytest.raises(SessionNotFoundError):
        store.read_header(child)
    with place.editor() as bridge:
        assert ids_of(bridge) == {"older", nested}
        bridge.result("session/load", **params(place, "older"))
        assert "In the older one." in bridge.text("older")


class Embedded(DshPlace):
    """The same home and model; its bridges run the embedded harness."""

    def command(self, *flags: str) -> list[str]:
        return [*BRIDGE, "--home", str(self.dsh_home), "--model", "deepseek:deepseek-flash", *flags]


@FORMS
def test_nested_subagents_of_the_embedded_harness_are_shown_as_it_shows_them(
    tmp_path: Path, form: Message
) -> None:
    with loopback_model() as model:
        ours = Embedded(tmp_path, model)
        model.promise(
            "Root, go.",
            tool("c1", "subagent", description="Middle", prompt="Middle, go.", wait=True),
        )
        model.promise("Root, go.", text("The root is done."))
        model.promise(
            "Middle, go.",
            tool("c2", "subagent", description="Leaf", prompt="Leaf, go.", wait=True),
        )
        model.promise("Middle, go.", text("The middle is done."))
        model.promise("Leaf, go.", text("The leaf is done."))
        with ours.bridge("--mode", "full") as bridge:
            bridge.hello(**form)
            session = bridge.new(ours.work)
            assert end_of(bridge, session, "Root, go.") == "end_turn"
        shown = []
        for command in (Embedded.command, DshPlace.command):
            ours.command = command.__get__(ours)  # type: ignore[method-assign]
            with ours.bridge() as bridge:
                bridge.hello(**form)
                bridge.result("session/load", **params(ours, session))
                shown.append(json.dumps(told(bridge)))
                assert ids_of(bridge) == {session}
        embedded, theirs = shown
        assert "The leaf is done." in embedded
        assert theirs == embedded
        with ours.bridge() as bridge:
            bridge.hello(**form)
            bridge.result("session/load", **params(ours, session))
            model.answer(session, text("The runtime goes on."))
            assert end_of(bridge, session, "And now?") == "end_turn"
            assert "The root is done." in model.asked(session)
            bridge.result("session/delete", sessionId=session)
        assert not list(ours.dsh_home.glob("sessions/*/*/session.v*"))


def told(bridge: Bridge) -> list[Any]:
    """Every update of a load but for what is chosen and offered."""
    apart = {"available_commands_update", "config_option_update", "current_mode_update"}
    return [
        [m["params"]["sessionId"], m["params"]["update"]]
        for m in bridge.heard
        if m.get("method") == "session/update"
        and m["params"]["update"]["sessionUpdate"] not in apart
    ]


class Scripted(DshPlace):
    """The same home; its bridges run the embedded harness with a model that dsh does not have."""

    def command(self, *flags: str) -> list[str]:
        return [*BRIDGE, "--home", str(self.dsh_home), "--model", f"scripted:{self.model}", *flags]


@pytest.mark.parametrize("plugin", [True, False], ids=["plugin", "no plugin"])
def test_a_model_that_the_runtime_does_not_have_is_named_once(tmp_path: Path, plugin: bool) -> None:
    with loopback_model() as model:
        place = Scripted(tmp_path, model)
        place.script([{"text": "From the script."}])
        with place.editor() as bridge:
            session = bridge.new(place.work)
            assert end_of(bridge, session, "first") == "end_turn"
        place.command = DshPlace.command.__get__(place)  # type: ignore[method-assign]
        if not plugin:
            place.without_plugin()
        shown = []
        for words in ("second", "third"):
            with place.editor() as bridge:
                bridge.result("session/load", **params(place, session))
                assert end_of(bridge, session, words) == "end_turn"
                shown.append(json.dumps(bridge.updates(session)))
        assert "From the script." in model.asked(session)
        notice = (
            "The model scripted:model.jsonl is not available now; deepseek:deepseek-flash answers."
        )
        assert [told.count(notice) for told in shown] == [1, 1]  # live, then loaded
