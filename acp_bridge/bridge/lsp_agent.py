"""The agent behind an LSP editor: a conversation for each workspace folder, told as a transcript.

Shows what an ACP client sees that takes no subagents, whose work then is tool calls: its updates
become Markdown and lines of progress.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import anyio.abc
import anyio.to_thread

from acp_bridge.acp.types import Plan, ResourceLink, SessionUpdate, TextContent, ToolCall
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.lsp_client import LspClient, OpenQuestions
from acp_bridge.bridge.markdown import MarkdownFold
from acp_bridge.bridge.open_session import descendants_of
from acp_bridge.bridge.prompts import command_from_acp, prompt_from_acp
from acp_bridge.bridge.subagent_history import history
from acp_bridge.bridge.subagent_view import SubagentView
from acp_bridge.errors import FAULT, BridgeError, InvalidParamsError
from acp_bridge.lsp.actions import Standing
from acp_bridge.lsp.editor import Editor, Progress
from acp_bridge.lsp.server import Ask
from acp_bridge.ports import LiveSession, PendingTurn, Runtime
from acp_bridge.vocabulary import Answer, Descendant, Event, RuntimeEvent, SessionId, TurnEnd

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 16
"""Prompts that may wait in one conversation; more are a key that is held down."""

_COMMENT: Final = (
    "\n\nThis was written as a comment at the attached place; remove that comment when it is done."
)

_ENDS: Final = {
    "completed": "done",
    "max-tokens": "stopped: the answer reached its token limit",
    "step-limit": "stopped: too many steps",
    "refusal": "the model refused",
    "aborted": "cancelled",
    "error": "failed",
}


class Conversation:
    """A session as this face shows it: a file that grows, and work in progress."""

    def __init__(
        self,
        live: LiveSession,
        client: LspClient,
        folder: Path,
        descendants: Sequence[Descendant] = (),
    ) -> None:
        self.live = live
        self.path = folder / f"{quote(live.session_id, safe='')}.md"
        self.works: deque[tuple[PendingTurn, Progress | None]] = deque()
        self._fold = MarkdownFold()
        self._text: list[str] = [f"# Session {live.session_id} in {live.cwd}\n"]
        self._writing = anyio.Lock()
        self._wake = anyio.Event()
        past = list(history(live.session_id, live.events, descendants))
        self._shown = SubagentView(live.session_id, live.cwd, View())
        self._shown.prime(past)
        replay = SubagentView(live.session_id, live.cwd, View(), replay=True)
        for event in past:
            self._text += [self._fold.add(update) for _, update in replay.project(event)]
        client.asked = self._shown.asked
        live.attach(self._consume)

    async def keep_writing(self) -> None:
        """Append what is told to the file, for as long as the conversation lives."""
        while True:
            await self.flush()
            await self._wake.wait()
            self._wake = anyio.Event()

    async def flush(self) -> None:
        """Append what was told up to now.

        A disk that refuses costs the transcript its text, never the conversation.
        """
        async with self._writing:
            text, self._text = "".join(self._text), []
            if text:
                try:
                    await anyio.to_thread.run_sync(_append, self.path, text)
                except OSError as fault:
                    logger.warning("%s is not written: %s", self.path, fault.strerror)

    def say(self, text: str) -> None:
        """Add what the user asks for."""
        self._add(self._fold.prompt(text))

    def note(self, text: str) -> None:
        """Add a line about the conversation itself."""
        self._add(self._fold.note(text))

    def _consume(self, event: RuntimeEvent) -> None:
        for _, update in self._shown.project(event):
            self._add(self._fold.add(update))
            line = _progress_line(update)
            progress = self.works[0][1] if self.works else None
            if line is not None and progress is not None:
                progress.report(line)
        if isinstance(event, Event) and event.type == "turn/end":
            self._wake.set()

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._wake.set()


class LspAgent:
    """Implements `lsp.server.Agent`.

    ``tasks`` own whatever goes on after a call has returned. ``folder`` takes the transcripts;
    ``write_file`` writes the files that the editor has not open.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        editor: Editor,
        folder: Path,
        write_file: Callable[[Path, bytes], Awaitable[None]],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._runtime = runtime
        self._editor = editor
        self._folder = folder
        self._write_file = write_file
        self._tasks = tasks
        self._questions = OpenQuestions()
        self._conversations: dict[Path, Conversation] = {}
        self._current: Conversation | None = None
        self._opening = anyio.Lock()

    def prompt(self, ask: Ask) -> None:
        """Work on this, after what was asked before."""
        self._start(self._prompt, ask)

    def cancel(self, token: str | None = None) -> None:
        """Stop what runs and waits; with a progress token, the work that it shows."""
        for conversation in self._conversations.values():
            if token is None:
                conversation.live.cancel()
            for turn, progress in conversation.works:
                if progress is not None and progress.token == token:
                    turn.withdraw()

    def set_mode(self, mode: str | None) -> None:
        """Choose a permission mode; None: say which there are."""
        self._start(self._set_mode, mode)

    def open(self, session_id: str | None) -> None:
        """Show the transcript; with an id, go on with that stored session."""
        self._start(self._show, session_id)

    def answer(self, question_id: str | None, *, allow: bool, always: bool) -> None:
        """Answer an open question, the oldest without an id."""
        answer = Answer.REJECT
        if allow:
            answer = Answer.ALLOW_ALWAYS if always else Answer.ALLOW_ONCE
        if not self._questions.answer(question_id, answer):
            self._editor.tell("The agent asks nothing now.")

    def standing(self) -> Standing:
        """What there is to offer besides new work."""
        return Standing(
            questions=self._questions.questions,
            is_busy=any(one.works for one in self._conversations.values()),
            has_transcript=self._current is not None,
        )

    def _start(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        async def guarded() -> None:
            try:
                await work(*arguments)
            except BridgeError as failure:
                self._editor.tell(failure.details, is_error=True)
            except Exception:  # one command's fault must not end the others
                logger.exception("a command failed")
                self._editor.tell(FAULT, is_error=True)

        self._tasks.start_soon(guarded)

    async def _prompt(self, ask: Ask) -> None:
        conversation = await self._conversation(ask.uri)
        if len(conversation.works) >= WAITING_MAX:
            raise InvalidParamsError(
                f"{WAITING_MAX} prompts wait already: let some of them end.", field="text"
            )
        blocks = _blocks(ask)
        typed = command_from_acp(blocks, conversation.live.commands)
        turn = conversation.live.admit(typed or prompt_from_acp(blocks))
        conversation.works.append((turn, None))
        conversation.say(ask.text)
        try:
            progress = await self._begin(conversation, turn, ask)
            end = await turn.ended()
        finally:
            conversation.works = deque(work for work in conversation.works if work[0] is not turn)
        words = _ENDS[end.kind]
        if end.kind != "completed":
            conversation.note(f"{words}{'' if end.details is None else f': {end.details}'}")
        await conversation.flush()
        progress.end(words)
        self._tell_end(end)

    async def _begin(self, conversation: Conversation, turn: PendingTurn, ask: Ask) -> Progress:
        title = " ".join(ask.text.split())[:60]
        progress = await self._editor.begin(title)
        works = conversation.works
        conversation.works = deque(
            (one, progress if one is turn else shown) for one, shown in works
        )
        return progress

    def _tell_end(self, end: TurnEnd) -> None:
        if end.kind in {"error", "refusal"}:
            self._editor.tell(end.details or "The agent failed.", is_error=True)

    async def _set_mode(self, mode: str | None) -> None:
        conversation = await self._conversation(None)
        if mode is not None:
            await conversation.live.choose("mode", mode)
            conversation.note(f"The mode is now {mode}.")
        now = conversation.live.options().mode
        self._editor.tell(f"The agent's mode is {now}. Choose ask, accept-edits, plan or full.")

    async def _show(self, session_id: str | None) -> None:
        if session_id is not None:
            async with self._opening:
                await self._reopen(SessionId(session_id))
        if self._current is None:
            raise InvalidParamsError("There is no conversation yet: ask something.", field="open")
        await self._current.flush()
        await self._editor.show(self._current.path)

    async def _conversation(self, uri: str | None) -> Conversation:
        """The conversation of a document's workspace folder, begun if there is none."""
        root = self._editor.root_of(uri)
        async with self._opening:
            conversation = self._conversations.get(root)
            if conversation is None:
                client = self._client()
                live = await self._runtime.new_session(root, client)
                conversation = await self._begun(live, client)
        self._current = conversation
        return conversation

    async def _reopen(self, session_id: SessionId) -> None:
        root = self._editor.root_of(None)
        old = self._conversations.get(root)
        if old is not None and old.live.session_id == session_id:
            return
        client = self._client()
        live = await self._runtime.open_session(session_id, root, client)
        if old is not None:
            await old.live.close()
        self._current = await self._begun(live, client)

    def _client(self) -> LspClient:
        return LspClient(self._editor, self._questions, self._write_file)

    async def _begun(self, live: LiveSession, client: LspClient) -> Conversation:
        conversation = Conversation(live, client, self._folder, await descendants_of(live))
        self._conversations[live.cwd] = conversation
        self._tasks.start_soon(conversation.keep_writing)
        return conversation


def _blocks(ask: Ask) -> list[TextContent | ResourceLink]:
    """The prompt in ACP's form: what to do, and a link to the place it is about."""
    text = f"{ask.text}{_COMMENT if ask.is_comment else ''}"
    blocks: list[TextContent | ResourceLink] = [TextContent(text=text)]
    if ask.uri is not None:
        place = ask.uri
        if ask.first_line is not None:
            last = ask.first_line if ask.last_line is None else ask.last_line
            place = f"{ask.uri}#L{ask.first_line + 1}:{last + 1}"
        blocks.append(ResourceLink(uri=place, name=ask.uri.rpartition("/")[2]))
    return blocks


def _progress_line(update: SessionUpdate) -> str | None:
    match update:
        case ToolCall(title=title):
            return title
        case Plan(entries=entries):
            done = sum(entry.status == "completed" for entry in entries)
            return f"plan: {done} of {len(entries)} done"
        case _:
            return None


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
