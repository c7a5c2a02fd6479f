"""The model's tools for subagents; names and parameters are the real runtime's.

Two differences, both of the contract: `subagent` and `subagent_fork` take ``wait``, and
`list_agents` takes nothing. A refusal is a result that the model can read, never an exception.
"""

from pathlib import Path
from typing import ClassVar, Final

import anyio

from acp_bridge.errors import BridgeError, SubagentRefusedError
from acp_bridge.harness.titles import one_line
from acp_bridge.harness.tools.arguments import (
    flag,
    invalid_arguments,
    optional_text,
    required_text,
)
from acp_bridge.harness.tools.paths import absolute_path, resolved_path, shown_path
from acp_bridge.harness.tools.results import NoPreview
from acp_bridge.ports import Access, Tool, ToolContext, ToolResult
from acp_bridge.subagents.activation import Activation
from acp_bridge.subagents.catalog import Child, Diagnostic
from acp_bridge.subagents.delegation import Delegation
from acp_bridge.subagents.messages import how_it_ended, shortened
from acp_bridge.subagents.service import SubagentService
from acp_bridge.vocabulary import CallId, JsonObject, SessionId

LABEL_CHARS_MAX: Final = 100
"""A label is one line of a list; what a model describes at length is cut."""

NOBODY: Final = "(no subagents)"


def control_tools(service: SubagentService) -> tuple[Tool, ...]:
    """Every tool of this room.

    Raises:
        SubagentRefusedError: as `ListAgentsTool`.
    """
    return (
        SubagentTool(service),
        SubagentForkTool(service),
        ListAgentsTool(service),
        SendMessageTool(service),
        InterruptAgentTool(service),
    )


class _ControlTool(NoPreview):
    """Base of the tools: they touch nothing but sessions."""

    def __init__(self, service: SubagentService) -> None:
        self._service = service

    def access(self, arguments: JsonObject, cwd: Path) -> Access:  # noqa: ARG002
        """Nothing outside the logs."""
        return Access()


_DELEGATION: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "description": {
            "type": "string",
            "description": "What the subagent does, in three to six words: its lasting name.",
        },
        "prompt": {
            "type": "string",
            "description": "The whole task, with everything needed to do it and what to report.",
        },
        "cwd": {
            "type": "string",
            "description": "The folder to work in; left out, it is yours.",
        },
        "wait": {
            "type": "boolean",
            "description": (
                "Wait for the answer, which is then this call's result. Such a subagent takes no "
                "messages later."
            ),
        },
    },
    "required": ["description", "prompt"],
}


class SubagentTool(_ControlTool):
    """Delegate to a child that begins with nothing but its task."""

    name: ClassVar[str] = "subagent"
    provider: ClassVar[str] = "spawn"
    description: ClassVar[str] = (
        "Give a self-contained piece of work to a subagent: an agent with your tools and your "
        "permissions, and a conversation of its own that begins with the prompt alone. It works "
        "beside you, and a message tells you when it has finished, with its last words; do not "
        "poll for it. Several calls in one answer start several subagents that work side by side. "
        "Use it for work whose details you do not need to see; do small things yourself."
    )
    parameters: ClassVar[JsonObject] = _DELEGATION

    def access(self, arguments: JsonObject, cwd: Path) -> Access:
        """A folder elsewhere: the subagent may do there what you may do here."""
        given = optional_text(arguments, "cwd")
        if given is None:
            return Access()
        return Access(hands_over=(resolved_path(absolute_path(given, cwd)),))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """``started subagent <id>``, or with ``wait`` what it answers."""
        label = one_line(required_text(arguments, "description"))
        task, given = required_text(arguments, "prompt"), optional_text(arguments, "cwd")
        if not label or not task.strip():
            return invalid_arguments("description and prompt must not be empty")
        folder = None if given is None else absolute_path(given, context.cwd)
        # One on another machine is looked for there.
        is_here = not self._service.delegates_elsewhere(context.session_id)
        if folder is not None and is_here and not await _is_folder(folder):
            return invalid_arguments(f'property "cwd" is no folder: {shown_path(folder)}')
        waits = flag(arguments, "wait")
        ask = Delegation(
            caller_id=context.session_id,
            call_id=context.call_id or CallId(""),
            provider=self.provider,
            label=label[:LABEL_CHARS_MAX],
            task=task,
            cwd=folder,
            mode="one-shot" if waits else "continuable",
        )
        try:
            activation = await self._service.delegate(ask)
        except BridgeError as error:
            return _refused("", error)
        if waits:
            return await _answer(activation)
        return ToolResult(f"started subagent {activation.child_id}")


class SubagentForkTool(SubagentTool):
    """Delegate to a child that knows what was said so far."""

    name: ClassVar[str] = "subagent_fork"
    provider: ClassVar[str] = "fork"
    description: ClassVar[str] = (
        "Like subagent, but the subagent knows this conversation up to your last completed turn. "
        "Use it when the work needs that context; it costs as much of the subagent's window as the "
        "conversation is long."
    )


class ListAgentsTool(_ControlTool):
    """List the caller's continuable children.

    Raises:
        SubagentRefusedError: the service has no query to list them with.
    """

    def __init__(self, service: SubagentService) -> None:
        service.query()
        super().__init__(service)

    name: ClassVar[str] = "list_agents"
    description: ClassVar[str] = (
        "List your subagents, oldest first, one a line: running ones, and complete ones, which a "
        "message wakes again. Complete says nothing of success. Subagents of your subagents are "
        "not listed."
    )
    parameters: ClassVar[JsonObject] = {"type": "object", "properties": {}}

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:  # noqa: ARG002
        """One line per entry, in order."""
        try:
            entries = await self._service.list_children(context.session_id)
        except BridgeError as error:
            return _refused("", error)
        return ToolResult("\n".join(map(_line, entries)) or NOBODY)


_AGENT_ID: Final[JsonObject] = {
    "type": "string",
    "description": "The id that subagent or list_agents gave.",
}


class SendMessageTool(_ControlTool):
    """Steer a running child, or wake a complete one."""

    name: ClassVar[str] = "send_message"
    description: ClassVar[str] = (
        "Send a message to a subagent of yours. A running one reads it before its next step; a "
        "complete one goes to work again, with all it knew, and tells you when it has finished."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {
            "agent_id": _AGENT_ID,
            "message": {"type": "string", "description": "What to tell it."},
        },
        "required": ["agent_id", "message"],
    }

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Which of the two was done; a failure says that nothing was delivered."""
        child_id = SessionId(required_text(arguments, "agent_id"))
        text = required_text(arguments, "message")
        if not text.strip():
            return invalid_arguments('property "message" must not be empty')
        call_id = context.call_id or CallId("")
        try:
            is_steered = await self._service.send_message(
                context.session_id, call_id, child_id, text
            )
        except BridgeError as error:
            return _refused("the message was not delivered. ", error)
        if is_steered:
            return ToolResult(f"message delivered to running subagent {child_id}")
        return ToolResult(f"message delivered to subagent {child_id}, which works again")


class InterruptAgentTool(_ControlTool):
    """End a child's current turn."""

    name: ClassVar[str] = "interrupt_agent"
    description: ClassVar[str] = (
        "Stop what a running subagent of yours does now. It keeps what it knows, and the messages "
        "that it has not read; send it a message to set it to work again."
    )
    parameters: ClassVar[JsonObject] = {
        "type": "object",
        "properties": {"agent_id": _AGENT_ID},
        "required": ["agent_id"],
    }

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """That it was told to; its end comes as a notice."""
        child_id = SessionId(required_text(arguments, "agent_id"))
        try:
            self._service.interrupt(context.session_id, child_id)
        except BridgeError as error:
            return _refused("", error)
        return ToolResult(f"interrupt requested for subagent {child_id}")


async def _is_folder(path: Path) -> bool:
    try:
        return await anyio.Path(path).is_dir()
    except ValueError:  # no system call takes it
        return False


async def _answer(activation: Activation) -> ToolResult:
    """What a one-shot child answers; cancelled, the child ends with its caller."""
    try:
        await activation.gone.wait()
    except anyio.get_cancelled_exc_class():
        activation.stop("parent", is_quiet=True)
        raise
    answer = shortened(activation.answer or "")
    if activation.end.kind == "completed":
        return ToolResult(answer or "(the subagent finished without a word)")
    sentence = f"Error: subagent {activation.child_id} {how_it_ended(activation.end)}"
    return ToolResult(
        f"{sentence}\n{answer}".strip(),
        is_error=True,
        error_name="SubagentFailedError",
        error_code=activation.end.code or activation.end.kind.upper(),
    )


def _line(entry: Child | Diagnostic) -> str:
    match entry:
        case Child(session_id=session_id, label=label, status=status):
            # Another program's label may have line breaks, which would look like more entries.
            return f"{session_id} [{status}] — {one_line(label)}"
        case Diagnostic(session_id=session_id, reason=reason):
            return f"{session_id} [diagnostic: {reason}]"


def _refused(before: str, error: BridgeError) -> ToolResult:
    code = error.refusal_code if isinstance(error, SubagentRefusedError) else "SUBAGENT_FAILED"
    return ToolResult(
        f"Error: {before}{error.details}",
        is_error=True,
        error_name=type(error).__name__,
        error_code=code,
    )
