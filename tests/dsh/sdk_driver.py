"""What a program of the published SDK does with a runtime: run by the interpreter that has the SDK.

``sdk_driver.py BIN HOME CWD RELEASES`` prints one JSON object of what was seen, for
`test_dsh_sdk_client`.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from deepseek_harness import DeepSeekHarness, Notification
from deepseek_harness.errors import JsonRpcError
from pydantic import BaseModel

BIN, HOME, CWD, RELEASES = sys.argv[1:]
WAIT_S = 60.0
SEEN: dict[str, Any] = {}


class Empty(BaseModel):
    """A result without members."""


def harness() -> DeepSeekHarness:
    return DeepSeekHarness(
        dsh_bin=BIN, dsh_home=HOME, cwd=CWD, request_timeout_seconds=WAIT_S, patches=("p.yml",)
    )


def what(notification: Notification) -> str:
    payload = notification.payload
    event = payload.get("event")
    kind = event["type"] if isinstance(event, dict) else payload.get("status")
    return f"{payload.get('sessionId')} {kind}"


def see(name: str, result: Any) -> None:
    SEEN[name] = {
        "session": result.session_id,
        "said": result.final_response,
        "end": result.finish_reason,
        "told": [what(notification) for notification in result.notifications],
    }


def refusal(call: Any, *arguments: Any) -> list[Any]:
    try:
        call(*arguments)
    except JsonRpcError as refused:
        return [refused.code, refused.message, refused.data]
    return []


def wait(sdk: DeepSeekHarness, session_id: str) -> None:
    sdk.client.request("session/wait", {"sessionId": session_id}, response_model=Empty)


def one_program() -> None:
    with harness() as sdk:
        process = sdk.client._proc
        main = sdk.start_session("main")
        see("first", main.run("Begin."))
        see("second", main.run([{"type": "text", "text": "Go on."}]))
        wait(sdk, "main")
        SEEN["folder"] = [main.get_working_directory(), main.set_working_directory("sub")]
        see("moved", main.run("Read it."))
        SEEN["refusals"] = {
            "open": refusal(sdk.resume_session, "main"),
            "missing": refusal(sdk.resume_session, "nobody"),
            "folder": refusal(main.set_working_directory, "nowhere"),
            "block": refusal(sdk.run, [{"type": "resource_link", "uri": "file:///x"}]),
            "method": refusal(lambda: sdk.client.request("session/fork", {}, response_model=Empty)),
        }
        two_at_once(sdk)
    SEEN["exit"] = process.returncode


def two_at_once(sdk: DeepSeekHarness) -> None:
    """One session waits for its model until the other has had its turn."""
    results: dict[str, Any] = {}
    began = threading.Event()

    def slow() -> None:
        def heard(notification: Notification) -> None:
            if what(notification) == "slow user/message":
                began.set()

        results["slow"] = sdk.run("Wait.", session_id="slow", on_notification=heard)

    thread = threading.Thread(target=slow)
    thread.start()
    if not began.wait(WAIT_S):
        raise SystemExit("the slow session did not begin")
    see("quick", sdk.run("Be quick.", session_id="quick"))
    SEEN["slow was still running"] = "slow" not in results
    (Path(RELEASES) / "go").touch()
    thread.join(WAIT_S)
    see("slow", results["slow"])


def next_program() -> None:
    with harness() as sdk:
        SEEN["taken"] = refusal(lambda: sdk.run("I am new.", session_id="main"))
        again = sdk.resume_session("main")
        SEEN["folder again"] = again.get_working_directory()
        see("resumed", again.run("Still there?"))


one_program()
next_program()
json.dump(SEEN, sys.stdout)
