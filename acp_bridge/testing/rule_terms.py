"""What the rules of a transcript know of ACP: limits, kinds of updates, and what each needs."""

TITLE_CHARS_MAX = 60
"""Longest title of a call; several clients cut there. A command is shown whole to be approved."""

LINE_BYTES_MAX = 1024 * 1024
"""Longest line to a client; one known client stops reading at ten times this."""

NULL_HAS_MEANING = {"oldText", "title", "updatedAt", "exitCode", "exit_code", "signal"}
"""Members that say something by being null; a null anywhere else can fail a strict reader."""

FOREIGN_JSON = {"rawInput", "rawOutput", "_meta", "data"}
"""Members whose inside is not ACP's."""

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}
TURN_UPDATES = CHUNKS | {"tool_call", "tool_call_update", "plan", "plan_update", "plan_removed"}
"""Updates that only a turn or a replay may send."""

SUBAGENT_KINDS = {"subagent_update", "session_message", "session_message_chunk"}
"""Updates that only a client which negotiated ``subagents`` can read."""

ASKING = {"session/request_permission", "elicitation/create"}
"""Requests that wait for the user."""

KIND_NEEDS = {
    **dict.fromkeys(SUBAGENT_KINDS, "subagents"),
    "plan_update": "plan",
    "plan_removed": "plan",
    "notice": "session.notices",
}
"""The capability that each of these updates needs."""

CLOSED = {"completed", "failed"}

OPENERS = {"session/new", "session/load", "session/resume"}

NEEDS = {
    "fs/read_text_file": "fs.readTextFile",
    "fs/write_text_file": "fs.writeTextFile",
    "terminal/create": "terminal",
    "terminal/output": "terminal",
    "terminal/wait_for_exit": "terminal",
    "terminal/kill": "terminal",
    "terminal/release": "terminal",
    "elicitation/create": "elicitation.form",
}
"""The capability that each client method needs; `session/request_permission` needs none."""

REQUEST_CANCELLED = -32800
INTERNAL_ERROR = -32603
