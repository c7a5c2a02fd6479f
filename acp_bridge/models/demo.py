"""The built-in demo: a script that shows every kind of update, for trying an editor without a key.

Three chapters, one a prompt, over and over: thinking and reading; a plan, a new file and an edit,
each asked for; a shell command. The chapter is the number of prompts so far, the place in it the
number of answers since the last prompt, so a reopened session goes on as it should.
"""

from collections.abc import AsyncIterator

from acp_bridge.models.script import CONTEXT_WINDOW_DEFAULT, Item, items_from_json
from acp_bridge.models.scripted import play
from acp_bridge.ports import Chunk, ModelInfo, ModelRequest
from acp_bridge.vocabulary import JsonObject, JsonValue

NOTE = "acp-bridge-demo.md"
"""The file that the demo writes into the workspace, after asking."""


def _words(text: str) -> list[JsonValue]:
    pieces = [piece + " " for piece in text.split(" ")]
    pieces[-1] = pieces[-1][:-1] + "\n"
    return [{"text": piece} for piece in pieces]


def _call(call_id: str, name: str, **arguments: JsonValue) -> JsonValue:
    return {"tool_call": {"id": call_id, "name": name, "arguments": dict(arguments)}}


def _usage(tokens: int) -> JsonValue:
    return {"usage": {"input_tokens": tokens, "output_tokens": 40}}


def _plan(*statuses: str) -> JsonValue:
    steps = ("Look at the workspace", f"Write {NOTE}", "Improve its wording")
    todos: list[JsonValue] = [
        {"content": step, "status": status} for step, status in zip(steps, statuses, strict=True)
    ]
    return _call("plan", "todo_write", todos=todos)


_TEXT = "# Demo\n\nThis file was writen by the demo of acp-bridge. Delete it when you like.\n"

_SUMMARY = "The user tries the demo, which talks about itself and writes a small file."

_CHAPTERS: tuple[tuple[list[JsonValue], ...], ...] = (
    (
        [
            {"reasoning": "The user wants to see what I can do. "},
            {"reasoning": "I look at the workspace first."},
            *_words("Hello! I am the demo model: I need no key, and I say the same to everybody."),
            _call("look", "glob", pattern="*"),
            _usage(900),
        ],
        [
            *_words("That was a tool call that needs no permission. I can also *think* before I"),
            *_words("speak. Send me another message, and I will plan, write and edit a file."),
            _usage(1100),
        ],
    ),
    (
        [
            *_words("First a plan:"),
            _plan("completed", "in_progress", "pending"),
            _call("write", "write", file_path=NOTE, content=_TEXT),
            _usage(1400),
        ],
        [
            *_words("There is a typo. I fix it:"),
            _plan("completed", "completed", "in_progress"),
            _call("edit", "edit", file_path=NOTE, old_string="writen", new_string="written"),
            _usage(1700),
        ],
        [_plan("completed", "completed", "completed"), _usage(1800)],
        [
            *_words("Done. Send one more message, and I will run a shell command."),
            _usage(1900),
        ],
    ),
    (
        [
            *_words("Commands run in your workspace, after you allow them:"),
            _call(
                "shell",
                "bash",
                command="for n in 1 2 3; do echo step $n; sleep 0.2; done",
                description="Count to three",
            ),
            _usage(2100),
        ],
        [
            *_words("That is all I know. With a key a real model sits here: see the README."),
            _usage(2300),
        ],
    ),
)


class DemoModel:
    """A `ports.Model` that plays the demo."""

    provider = "scripted"
    name = "demo"
    context_window = CONTEXT_WINDOW_DEFAULT
    info = ModelInfo("demo", "Demo", CONTEXT_WINDOW_DEFAULT)

    def __init__(self) -> None:
        self._chapters: list[list[tuple[Item, ...]]] = [
            [items_from_json(answer, "demo") for answer in chapter] for chapter in _CHAPTERS
        ]
        self._summary = items_from_json(_words(_SUMMARY), "demo")
        self._farewell = items_from_json(_words("That is all for now."), "demo")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer for this place in this chapter; past its end a short farewell."""
        if request.purpose == "compact":
            async for chunk in play(self._summary):
                yield chunk
            return
        roles = [str(message.get("role")) for message in request.messages]
        prompts = [n for n, message in enumerate(request.messages) if _is_prompt(message)]
        chapter = self._chapters[max(0, len(prompts) - 1) % len(self._chapters)]
        place = roles[prompts[-1] :].count("assistant") if prompts else 0
        items = chapter[place] if place < len(chapter) else self._farewell
        async for chunk in play(items):
            yield chunk


def _is_prompt(message: JsonObject) -> bool:
    source = message.get("source")
    return (
        message.get("role") == "user" and isinstance(source, dict) and source.get("kind") == "user"
    )
