"""The least that can answer: json and two streams. The floor that the bridge is measured from.

A prompt "updates N" gets N ``session/update`` notifications first, each dumped, written and
flushed by itself: the natural way to stream.
"""

import json
import sys


def main() -> None:
    write, flush = sys.stdout.write, sys.stdout.flush
    for line in sys.stdin:
        message = json.loads(line)
        result: dict[str, object] = {}
        match message["method"]:
            case "initialize":
                result = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
            case "session/new":
                result = {"sessionId": "1"}
            case "session/prompt":
                word, _, count = message["params"]["prompt"][0]["text"].partition(" ")
                for _ in range(int(count) if word == "updates" else 0):
                    content = {"type": "text", "text": "token "}
                    update = {
                        "sessionUpdate": "agent_message_chunk",
                        "content": content,
                        "messageId": "1.1.1.0",
                    }
                    params = {"sessionId": "1", "update": update}
                    frame = {"jsonrpc": "2.0", "method": "session/update", "params": params}
                    write(json.dumps(frame) + "\n")
                    flush()
                result = {"stopReason": "end_turn"}
        write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        flush()


main()
