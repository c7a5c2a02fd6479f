"""SIGKILL at any moment: what a client was told is in the log, and a new process shows it.

Also a second process on the same home (R073), and a disk that is full or read-only (R053, R073).
"""

import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_rig import WAIT_S, Bridge, Message, Place, bash_call, eventually, prompt_params

pytestmark = pytest.mark.process

KILLS = 12
PROMPTS = 8
TURNS = KILLS * PROMPTS

HEARD_MAX = 80
"""Messages that come before a kill: less than the prompts of one life are answered with."""


def burst(place: Place) -> None:
    """A script whose every turn thinks, says, calls two tools at once and says again."""
    for turn in range(TURNS):
        place.script(
            [
                {"reasoning": f"Thought {turn}. "},
                {"text": f"Turn {turn}: ", "repeat": 3},
                {"tool_call": {"id": "a", "name": "read", "arguments": {"file_path": "a.txt"}}},
                {
                    "tool_call": {
                        "id": "b",
                        "name": "todo_write",
                        "arguments": {"todos": [{"content": f"{turn}", "status": "pending"}]},
                    }
                },
            ],
            [{"text": f"Done {turn}."}, {"usage": {"input_tokens": 10, "output_tokens": turn}}],
        )


def load(bridge: Bridge, place: Place, session: str) -> Message:
    return bridge.call("session/load", sessionId=session, cwd=str(place.work), mcpServers=[])


def committed(updates: list[Message]) -> dict[str, Message]:
    """What a client was told of facts: calls by id with their last status, texts by message."""
    told: dict[str, Message] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in {"tool_call", "tool_call_update"}:
            told.setdefault(update["toolCallId"], {}).update(update)
        elif kind in {"agent_message_chunk", "agent_thought_chunk"}:
            said = told.setdefault(update["messageId"], {"text": ""})
            said["text"] += update["content"]["text"]
    return told


def test_a_kill_at_any_moment_loses_nothing_that_was_told_as_r055_needs(place: Place) -> None:
    burst(place)
    (place.work / "a.txt").write_text("text\n")
    rng = random.Random(7)
    session, told, ended, is_told = "", dict[str, Message](), 0, False
    for number in range(KILLS):
        with place.bridge(checked=False) as bridge:
            bridge.hello()
            loaded = load(bridge, place, session) if session else {}
            if "result" in loaded:
                check_replay(bridge.updates(session), told, ended)
            else:
                # Nothing was told of it, so it may never have come to the disk.
                assert not is_told
                assert loaded.get("error", {"code": -32002})["code"] == -32002
                session = bridge.new(place.work)
            start = len(bridge.entries)
            prompts = [bridge.prompt(session) for _ in range(PROMPTS)]
            # By what was heard and not by the clock, so that a busy machine is killed as often in
            # each place; the first time before anything can be heard.
            hear(bridge, rng.randrange(HEARD_MAX) if number else 0, since=start)
            time.sleep(rng.random() * 0.02)
            bridge.process.send_signal(signal.SIGKILL)
            bridge.process.wait(WAIT_S)
            bridge.join()
            live = [entry.message for entry in bridge.entries[start:] if entry.to == "client"]
            answered = [message for message in live if message.get("id") in prompts]
            assert all("result" in message for message in answered), answered
            ended += len(answered)
            heard = committed(bridge.updates(session))
            is_told = is_told or bool(heard) or bool(answered)
            told = whole_messages(heard, bridge)
    assert ended > KILLS


def hear(bridge: Bridge, count: int, *, since: int) -> None:
    """Wait until it has said so much from this entry on."""
    for _ in range(count):
        bridge.wait_for(lambda _: True, since=since)
        since = 1 + next(
            number
            for number, entry in enumerate(bridge.entries[since:], start=since)
            if entry.to == "client"
        )


def check_replay(updates: list[Message], told: dict[str, Message], ended: int) -> None:
    """Everything that was told is there, as it was told, and nothing of it is still at work."""
    replayed = committed(updates)
    assert list(told) == [key for key in replayed if key in told]
    for key, item in told.items():
        if "toolCallId" in item:
            was, now = item["status"], replayed[key]["status"]
            assert now == was or was in {"pending", "in_progress"}, (was, now)
            assert now in {"completed", "failed"}
        else:
            assert replayed[key]["text"].startswith(item["text"]), key
    kinds = [update["sessionUpdate"] for update in updates]
    assert kinds.count("user_message_chunk") >= ended


def whole_messages(told: dict[str, Message], bridge: Bridge) -> dict[str, Message]:
    """Without the last message, unless a call or an answer followed it: its deltas only lived."""
    last = bridge.heard[-1]
    update = last.get("params", {}).get("update", {})
    if update.get("messageId"):
        current = update["messageId"]
        # Its siblings of the same step are not committed either.
        step = current.rsplit(".", 1)[0] if "." in current else current
        return {key: item for key, item in told.items() if not key.startswith(step)}
    return told


def test_a_kill_in_a_tool_closes_its_call_on_load_as_r055_needs(place: Place) -> None:
    place.script([{"text": "I run it."}, bash_call("echo begun; sleep 300")], [{"text": "Well."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.prompt(session)
        bridge.allow(bridge.asked())
        child = eventually(lambda: [p for p, n in place.processes().items() if "sleep 300" in n])
        bridge.process.send_signal(signal.SIGKILL)
        bridge.process.wait(WAIT_S)
        assert child
        eventually(lambda: place.processes() == {})
    with place.bridge() as bridge:
        bridge.hello()
        assert "result" in load(bridge, place, session)
        closed = bridge.update("tool_call_update", status="failed")
        assert "interrupted" in json.dumps(closed)
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_a_kill_while_asking_never_leaves_a_live_block_as_r057_needs(place: Place) -> None:
    place.script([bash_call("touch ran")], [{"text": "Well."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.prompt(session)
        bridge.asked()
        bridge.process.send_signal(signal.SIGKILL)
        bridge.process.wait(WAIT_S)
    with place.bridge() as bridge:
        bridge.hello()
        assert "result" in load(bridge, place, session)
        bridge.update("tool_call_update", status="failed")
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"
    assert not (place.work / "ran").exists()


def test_a_session_without_a_prompt_is_not_found_after_a_kill_as_r055_needs(place: Place) -> None:
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.process.send_signal(signal.SIGKILL)
        bridge.process.wait(WAIT_S)
    with place.bridge() as bridge:
        bridge.hello()
        assert load(bridge, place, session)["error"]["code"] == -32002


def test_two_processes_share_a_home_and_one_session_has_one_writer(place: Place) -> None:
    place.script([{"text": "One."}], [{"text": "Two."}], [{"text": "Three."}])
    place.script([{"text": "Other."}], agent="2")
    with place.bridge() as first, place.bridge(checked=False) as second:
        for bridge in (first, second):
            bridge.hello()
        session = first.new(place.work)
        first.result("session/prompt", **prompt_params(session))
        refused = load(second, place, session)["error"]
        assert (refused["code"], "open" in refused["message"]) == (-32603, True)
        assert set(refused["data"]) == {"details"}
        for bridge in (first, second):
            listed = bridge.result("session/list")["sessions"]
            assert [one["sessionId"] for one in listed] == [session]
        assert first.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"
        first.result("session/close", sessionId=session)
        assert "result" in load(second, place, session)
        assert second.text(session).endswith("One.Two.")
        assert second.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"
        again = load(first, place, session)["error"]
        assert again["code"] == -32603


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"mounting a file system needs root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={ballast}", "bs=4096"], capture_output=True, check=False
    )
    assert shutil.disk_usage(folder).free == 0
    return ballast


def noise() -> str:
    """Text that no archive makes smaller than 150 KiB."""
    return random.Random(3).randbytes(150 * 1024).hex()


def test_a_full_disk_ends_the_turn_with_a_sentence_and_not_the_session(
    place: Place, small_disk: Path
) -> None:
    place.home = small_disk / "home"
    place.script(
        [{"text": "Before."}],
        [{"text": "I write"}, {"wait": "full"}, {"text": noise()}, {"text": " a lot."}],
        [{"text": "After."}],
    )
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        bridge.result("session/prompt", **prompt_params(session))
        running = bridge.prompt(session)
        bridge.wait_for(lambda m: "I write" in json.dumps(m))
        ballast = fill(small_disk)
        place.release("full")
        error = bridge.answer_to(running)["error"]
        assert (error["code"], "the disk is full" in error["message"]) == (-32603, True)
        assert "result" in bridge.call("session/list")
        still = bridge.call("session/prompt", **prompt_params(session))["error"]
        assert "the disk is full" in still["message"]
        fresh = bridge.new(place.work)
        refused = bridge.call("session/prompt", **prompt_params(fresh))["error"]
        assert "the disk is full" in refused["message"]
        ballast.unlink()
        # The answer that was not stored is given again.
        for end in (" a lot.", "After."):
            bridge.result("session/prompt", **prompt_params(session))
            assert bridge.text(session).endswith(end)
    with place.bridge(checked=False) as bridge:  # what the full disk refused is not replayed
        bridge.hello()
        assert "result" in load(bridge, place, session)
        assert bridge.text(session).startswith("Before.")
        assert bridge.text(session).endswith("After.")


def test_a_limit_on_file_sizes_is_like_a_full_disk(place: Place) -> None:
    # SIGXFSZ would kill a program that did not ignore it; Python does.
    place.script([{"text": noise()}])
    limited = (
        "import os, resource, sys;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with place.bridge(command=[sys.executable, "-c", limited, *place.command()]) as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        error = bridge.call("session/prompt", **prompt_params(session))["error"]
        assert error["code"] == -32603
        assert "may not grow" in error["message"]
        no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(bridge.process.pid, resource.RLIMIT_FSIZE, no_limit)
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"


def test_resources_are_not_leaked_by_many_sessions(place: Place) -> None:
    count = 40
    for number in range(1, count + 1):
        place.script([{"text": "Hi."}], agent=str(number))
    with place.bridge() as bridge:
        bridge.hello()
        fds = Path(f"/proc/{bridge.process.pid}/fd")
        before = len(list(fds.iterdir()))
        for _ in range(count):
            session = bridge.new(place.work)
            bridge.result("session/prompt", **prompt_params(session))
            bridge.result("session/close", sessionId=session)
        assert len(list(fds.iterdir())) <= before + 3
        assert len(bridge.result("session/list")["sessions"]) == count


def test_too_few_files_are_a_sentence_too(place: Place) -> None:
    place.script([{"text": "Hi."}])
    with place.bridge() as bridge:
        bridge.hello()
        session = bridge.new(place.work)
        limit = len(list(Path(f"/proc/{bridge.process.pid}/fd").iterdir()))
        soft, hard = resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
        error = bridge.call("session/prompt", **prompt_params(session))["error"]
        assert (error["code"], "too many files" in error["message"]) == (-32603, True)
        resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert bridge.result("session/prompt", **prompt_params(session))["stopReason"] == "end_turn"
