"""What inner rooms need from outer ones, as Protocols: runtime, session, model, tool, client.

Owns: those Protocols, by who answers them, and the values that they take and give.

Does not know: who implements them; outer rooms do, and `cli` hands them in.

Invariants:

* Nothing here has behaviour.
"""

from acp_bridge.ports.client import (
    Client,
    ClientCommand,
    CommandEnd,
    CommandRunner,
    PermissionAsk,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionsAsk,
)
from acp_bridge.ports.model import (
    Chunk,
    FailureChunk,
    Model,
    ModelCatalog,
    ModelInfo,
    ModelRequest,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from acp_bridge.ports.runtime import (
    DEFAULT_EFFORT,
    NO_EXTRAS,
    ChildRunner,
    Consumer,
    Extras,
    LiveSession,
    OptionName,
    PendingTurn,
    Runtime,
    SessionOptions,
    SessionPage,
)
from acp_bridge.ports.tool import (
    Access,
    Tool,
    ToolContext,
    ToolFiles,
    ToolResult,
)

__all__ = [
    "DEFAULT_EFFORT",
    "NO_EXTRAS",
    "Access",
    "ChildRunner",
    "Chunk",
    "Client",
    "ClientCommand",
    "CommandEnd",
    "CommandRunner",
    "Consumer",
    "Extras",
    "FailureChunk",
    "LiveSession",
    "Model",
    "ModelCatalog",
    "ModelInfo",
    "ModelRequest",
    "OptionName",
    "PendingTurn",
    "PermissionAsk",
    "Question",
    "QuestionAnswer",
    "QuestionOption",
    "QuestionsAsk",
    "ReasoningChunk",
    "Runtime",
    "SessionOptions",
    "SessionPage",
    "StopChunk",
    "TextChunk",
    "Tool",
    "ToolCallChunk",
    "ToolContext",
    "ToolFiles",
    "ToolResult",
    "UsageChunk",
]
