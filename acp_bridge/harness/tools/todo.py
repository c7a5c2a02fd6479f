"""The `todo_write` tool: the session's plan, replaced as a whole."""

from pathlib import Path
from typing import ClassVar

from acp_bridge.harness.tools.arguments import invalid_arguments
from acp_bridge.harness.tools.results import NoPreview
from acp_bridge.ports import Access, ToolContext, ToolResult
from acp_bridge.vocabulary import JsonObject, JsonValue


class TodoWriteTool(NoPreview):
    """Replace the plan that the user sees."""

    name: ClassVar[str] = "todo_write"
    description: ClassVar[str] = (
        "Set the plan that the user sees: the whole list of steps, in order, replacing the list "
        "before. Use it for work of three or more steps; leave it out for anything smaller. Keep "
        "exactly one step in_progress while you work, mark a step completed as soon as it is done, "
        "and send the full list every time. An empty list clears the plan."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": "Every step of the plan, in order.",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "content": {
                            "type": "string",
                            "description": "The step, as one short imperative sentence.",
                        },
                        "status": {
                            "type": "string",
                            "enum": ["pending", "in_progress", "completed"],
                        },
                    },
                    "required": ["content", "status"],
                },
            }
        },
        "required": ["todos"],
    }

    def access(self, arguments: JsonObject, cwd: Path) -> Access:  # noqa: ARG002
        """Nothing outside the log."""
        return Access()

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:  # noqa: ARG002
        """One ``todo/write`` row with content and status of each step."""
        given = arguments["todos"]
        assert isinstance(given, list)
        todos: list[JsonValue] = []
        counts = {"pending": 0, "in_progress": 0, "completed": 0}
        for at, item in enumerate(given):
            assert isinstance(item, dict)
            content, status = item["content"], item["status"]
            assert isinstance(content, str)
            assert isinstance(status, str)
            if not content.strip():
                return invalid_arguments(f'property "todos[{at}].content" must not be empty')
            counts[status] += 1
            todos.append({"content": content, "status": status})
        return ToolResult(
            text=(
                f"Updated todo list: {counts['pending']} pending, "
                f"{counts['in_progress']} in progress, {counts['completed']} completed."
            ),
            rows=(("todo/write", {"todos": todos}),),
        )
