"""A stdio MCP server with one tool, or one that fails in the way its argument says.

The tool tells the server's process id and one variable of its environment. A server that is
``marked`` does not start once the file that this variable names is there.
"""

import json
import os
import sys
from pathlib import Path


def main(fails: str) -> None:
    is_marked = fails == "marked" and Path(os.environ["TINY_WORD"]).exists()
    if fails == "exits" or is_marked:
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        if fails == "hangs" or "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def result(message: dict[str, object]) -> dict[str, object]:
    match message["method"]:
        case "initialize":
            params = message["params"]
            assert isinstance(params, dict)
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "tiny", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            return {"tools": [{"name": "who", "description": "who am I", "inputSchema": schema}]}
        case "tools/call":
            says = f"pid {os.getpid()} word {os.environ.get('TINY_WORD')}"
            return {"content": [{"type": "text", "text": says}]}
    return {}


main(sys.argv[1])
