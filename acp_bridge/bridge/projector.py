"""Runtime events to ACP updates: one pure fold for live turns and for replay.

A message's ACP id is made from turn, step, attempt and block, so it is known while the text
streams and is the same when the stored row is replayed. What exists live only, and so is not
replayed: deltas (a message whose deltas were sent is not sent again), a diff shown before the
question, terminal output as it comes, usage in between, notices. User chunks exist in replay only:
a client knows what its user typed.

Rows that replace others on the model's view (prompt change, checkpoint, pruning) show nothing:
what was said stays as it was shown. A compaction itself shows in its place, and usage drops with
it, to an estimate until the next answer counts.
"""

import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import attrs

from acp_bridge.acp.types import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ContentBlock,
    ImageContent,
    SessionInfoUpdate,
    SessionUpdate,
    Terminal,
    TextContent,
    ToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from acp_bridge.bridge import log_rows, tool_calls
from acp_bridge.bridge.clients import View
from acp_bridge.bridge.compactions import Compactions
from acp_bridge.bridge.notices import Notices
from acp_bridge.bridge.plans import Plans
from acp_bridge.bridge.prompts import acp_block_from_log
from acp_bridge.vocabulary import (
    CallId,
    Event,
    FileDiff,
    JsonObject,
    JsonValue,
    RuntimeEvent,
    StreamDelta,
    ToolOutput,
    ToolPreview,
    ToolTerminal,
)

TEXT_CHARS_MAX = 150_000
"""A replayed text is cut into chunks of this size: a line of the wire stays below 1 MiB."""

FindAttachment: TypeAlias = Callable[[str], bytes | None]
_OPEN = frozenset({"pending", "in_progress"})

Fold: TypeAlias = "Callable[[Projector, Event, JsonObject], Iterable[SessionUpdate]]"
Place: TypeAlias = tuple[int, int, int, int]
"""Turn, step, attempt, block."""


@attrs.define(slots=True)
class ShownCall:
    """A tool call as the client has it. ``acp_id`` is unique in the session.

    ``terminal``: it is shown as a display terminal. ``embedded`` is the client's own terminal that
    it runs in.
    """

    acp_id: str
    name: str
    look: tool_calls.CallLook
    status: Literal["pending", "in_progress", "completed", "failed"]
    content: list[ToolCallContent]
    locations: list[ToolCallLocation]
    terminal: bool = False
    embedded: str | None = None
    refused: bool = False
    is_run: bool = False
    """Whether it shows a subagent's work, whose end is its end."""


@attrs.frozen(slots=True)
class ChildLook:
    """How a subagent's calls are shown.

    ``id_prefix`` comes before their ids where they stand among others'. Without ``terminals`` the
    client's own terminals are not shown in them: those belong to the root's session.
    """

    id_prefix: str = ""
    terminals: bool = False


class Projector:
    """The fold for one consumer of one session.

    ``replay`` shows user messages and holds usage back to `finish_replay`. ``find_attachment``
    gives image bytes by id; it must not block. ``child`` is set for a subagent's session: what it
    was told came from its parent, so no user message is shown. ``holds_delegations``: a call that
    started a subagent stays open when its result comes, for `subagent_view` to close.
    """

    def __init__(
        self,
        *,
        cwd: Path,
        view: View,
        replay: bool = False,
        find_attachment: FindAttachment = lambda _id: None,
        child: ChildLook | None = None,
        holds_delegations: bool = False,
    ) -> None:
        self._child = child
        self._holds_delegations = holds_delegations
        self._cwd = cwd
        self._view = view
        self._replay = replay
        self._find_attachment = find_attachment
        self._sent: dict[Place, tuple[Literal["text", "reasoning"], list[str]]] = {}
        self._attempt = 1
        self._turn = 0
        self._messages_in_turn = 0
        self._said: dict[CallId, tuple[str, str]] = {}
        self._calls: dict[CallId, ShownCall] = {}
        self._asks: dict[str, CallId] = {}
        self._acp_ids: set[str] = set()
        self._compactions = Compactions(as_items=view.compactions)
        self._notices = Notices(as_notices=view.notices, replay=replay)
        self._plans = Plans(by_id=view.plans)
        self._held: dict[CallId, tuple[ShownCall, Event]] = {}
        self._window: int | None = None
        self._usage: UsageUpdate | None = None

    def project(self, event: RuntimeEvent) -> list[SessionUpdate]:
        """The updates that this event means, in order."""
        if type(event) is StreamDelta:
            return [self._delta(event)]
        if isinstance(event, Event):
            fold = self._FOLDS.get(event.type)
            if fold is None or not isinstance(event.data, dict):
                return []
            return list(fold(self, event, event.data))
        if isinstance(event, ToolPreview):
            return self._preview(event)
        if isinstance(event, ToolOutput):
            return self._output(event)
        if isinstance(event, ToolTerminal):
            return self._embed(event)
        return []

    def finish_replay(self) -> list[SessionUpdate]:
        """What a replay ends with: the context's fill."""
        return [] if self._usage is None else [self._usage]

    def unfinished(self) -> list[SessionUpdate]:
        """What a replay cannot know: messages that are no rows yet, and terminals in use."""
        texts = [
            _chunk(kind, place, "".join(pieces)) for place, (kind, pieces) in self._sent.items()
        ]
        running = [call for call in self._calls.values() if call.status == "in_progress"]
        return [*texts, *(_embedding(call) for call in running if call.embedded is not None)]

    def shown_call(self, call_id: CallId) -> ShownCall | None:
        """A call as the client has it, for a permission request."""
        return self._calls.get(call_id)

    def open_calls(self) -> list[ShownCall]:
        """The calls that have no end yet, in order of appearance."""
        return [call for call in self._calls.values() if call.status in _OPEN]

    def claim(self, call_id: CallId) -> ShownCall | None:
        """The call that started a subagent, to be ended by whoever claims it; None: not to be had.

        Only where delegations are held.
        """
        call = self._open_call(call_id)
        if call is None and call_id in self._held:
            call, _ = self._held.pop(call_id)
        if call is None or call.is_run or call.name not in tool_calls.DELEGATING:
            return None
        call.is_run = True
        return call

    def announce(self, call_id: CallId, name: str, arguments: str) -> SessionUpdate:
        """Show a call as running before its own row comes, which finds it open then."""
        (update,) = self._announce(call_id, name, arguments, status="in_progress")
        return update

    def _delta(self, delta: StreamDelta) -> SessionUpdate:
        place = (delta.turn, delta.step, delta.attempt, delta.block)
        sent = self._sent.get(place)
        if sent is None:
            sent = self._sent[place] = (delta.kind, [])
        sent[1].append(delta.text)
        return _chunk(delta.kind, place, delta.text)

    def _answer(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``assistant/message``: its text, where deltas did not tell it, and its calls to come."""
        yield from self._texts(event, data)
        message = data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        self._said = {}
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "tool-call":
                call = (str(block.get("name")), str(block.get("arguments")))
                self._said[CallId(str(block.get("id")))] = call
        yield from self._used(data.get("usage"))

    def _failed_attempt(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``assistant/attempt``: text that was streamed before the call failed stays visible."""
        yield from self._texts(event, data)
        self._attempt += 1

    def _command(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``command/run``: what the user typed, in a replay."""
        if self._replay:
            # The other harness keeps the space before the arguments.
            typed = f"/{data.get('name')} {str(data.get('args', '')).strip()}".rstrip()
            content = TextContent(text=typed)
            message_id = f"command.{data.get('commandId')}"
            yield UserMessageChunk(content=content, message_id=message_id)

    def _command_done(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``command/done``: its answer."""
        text = data.get("text")
        if isinstance(text, str) and text:
            message_id = f"command.{data.get('commandId')}.done"
            yield AgentMessageChunk(content=TextContent(text=f"{text}\n"), message_id=message_id)

    def _notice(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        return self._notices.sentence(event.seq, data)

    def _retry(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        return self._notices.retry(self._attempt, data)

    def _texts(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        if event.surface_op not in {None, "append"}:
            return
        turn, step = log_rows.integer(data, "turn"), log_rows.integer(data, "step")
        for block, kind, text in log_rows.told_texts(data):
            place = (turn, step, self._attempt, block)
            _, pieces = self._sent.pop(place, (kind, []))
            rest = text[sum(map(len, pieces)) :]
            for start in range(0, len(rest), TEXT_CHARS_MAX):
                yield _chunk(kind, place, rest[start : start + TEXT_CHARS_MAX])

    def _user(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``user/message``: shown in a replay, if a person wrote it."""
        source = data.get("source")
        human = isinstance(source, dict) and source.get("kind") == "user"
        if self._child is not None:
            return
        if not self._replay or not human or event.surface_op != "append":
            return
        self._messages_in_turn += 1
        message_id = f"{self._turn}.user.{self._messages_in_turn}"
        content = data.get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict):
                for part in self._user_parts(block):
                    yield UserMessageChunk(content=part, message_id=message_id)

    def _user_parts(self, block: JsonObject) -> Iterable[ContentBlock]:
        if block.get("type") == "image":
            yield self._image(block.get("attachment"))
            return
        sent = acp_block_from_log(block)
        if sent is not None and not isinstance(sent, TextContent):
            yield sent
            return
        text = str(block.get("text", "")) if sent is None else sent.text
        for start in range(0, len(text), TEXT_CHARS_MAX):
            yield TextContent(text=text[start : start + TEXT_CHARS_MAX])

    def _image(self, attachment: JsonValue) -> ContentBlock:
        found = attachment if isinstance(attachment, dict) else {}
        data = self._find_attachment(str(found.get("attachmentId")))
        if data is None:
            return TextContent(text="[an image that is no longer stored]")
        encoded = base64.b64encode(data).decode("ascii")
        return ImageContent(data=encoded, mime_type=str(found.get("mediaType")))

    def _turn_start(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        self._turn = log_rows.integer(data, "turn")
        self._messages_in_turn = 0
        self._sent.clear()
        return ()

    def _turn_end(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """Clients show nothing for ``max_turn_requests``, so the limit is said in text."""
        yield from self._release()
        reason = data.get("reason")
        error = reason.get("error") if isinstance(reason, dict) else None
        if isinstance(error, dict) and error.get("code") == "STEP_LIMIT":
            text = TextContent(text=f"{error.get('message')}\n")
            yield AgentMessageChunk(content=text, message_id=f"{self._turn}.end")

    def _step_start(self, _event: Event, _data: JsonObject) -> Iterable[SessionUpdate]:
        self._attempt = 1
        return ()

    def _title(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        yield SessionInfoUpdate(title=str(data.get("title")))

    def _plan(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        return self._plans.written(data)

    def _context(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        window = data.get("contextWindow")
        self._window = window if isinstance(window, int) and window > 0 else None
        return ()

    def _used(self, usage: JsonValue) -> Iterable[SessionUpdate]:
        """Tokens now in the context: what this call read and wrote (field report R069)."""
        if not isinstance(usage, dict) or self._window is None:
            return
        names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
        counts = [usage.get(name) for name in names]
        used = sum(int(count) for count in counts if isinstance(count, int | float))
        self._usage = UsageUpdate(used=used, size=self._window)
        if not self._replay:
            yield self._usage

    def _compaction(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        yield from self._compactions.project(event.type, data)
        if event.type == "compaction/end" and "error" not in data and self._usage is not None:
            used = self._compactions.used_after(self._usage.used)
            self._usage = UsageUpdate(used=used, size=self._usage.size)
            if not self._replay:
                yield self._usage

    def _asked(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        call_id = CallId(str(data.get("callId")))
        self._asks[str(data.get("id"))] = call_id
        # The other harness asks after ``tool/call``: then the call is announced already.
        if call_id in self._said and self._open_call(call_id) is None:
            yield from self._announce(call_id, *self._said[call_id], status="pending")

    def _decided(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        call = self._calls.get(self._asks.pop(str(data.get("id")), CallId("")))
        if call is not None:
            call.refused = data.get("outcome") != "allowed-once"
        return ()

    def _called(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        call_id = CallId(str(data.get("callId")))
        call = self._open_call(call_id)
        known = self._calls.get(call_id)
        if known is not None and known.is_run and call is None:
            return  # announced early, and over before its row came
        if call is None:
            name, arguments = str(data.get("name")), str(data.get("arguments"))
            yield from self._announce(call_id, name, arguments, status="in_progress")
        elif not call.refused:
            call.status = "in_progress"
            yield ToolCallUpdate(tool_call_id=call.acp_id, status="in_progress")

    def _result(self, event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        message = data.get("message")
        if event.surface_op != "append" or not isinstance(message, dict):
            return
        call_id = CallId(str(message.get("toolCallId")))
        if self._holds_delegations and self._hold(call_id, event, message):
            return
        if self._open_call(call_id) is None:
            # A repaired log: the call never started, so nothing announced it.
            said = self._said.get(call_id, ("", "{}"))
            yield from self._announce(call_id, *said, status="pending")
        call = self._calls[call_id]
        yield self._finish(call, message, data.get("meta"))

    def _finish(self, call: ShownCall, message: JsonObject, meta: JsonValue) -> SessionUpdate:
        failed = message.get("isError") is True
        text = log_rows.text_of(message.get("content"))
        call.status = "failed" if failed else "completed"
        output = tool_calls.raw_output(text, meta, is_error=failed)
        update = ToolCallUpdate(tool_call_id=call.acp_id, status=call.status, raw_output=output)
        if call.terminal and isinstance(meta, dict) and "cwd" in meta:
            update.meta = self._terminal_end(call, text, meta)
        elif call.embedded is None or failed:  # else its terminal stays, and is named no more
            update.content = tool_calls.result_content(call.name, text, meta, is_error=failed)
            self._follow(call, update, tool_calls.meta_diffs(meta))
        return update

    def _hold(self, call_id: CallId, event: Event, message: JsonObject) -> bool:
        """Whether this result is no end: of a call that shows a subagent, or is about to."""
        call = self._calls.get(call_id)
        if call is None or not (call.is_run or call.name in tool_calls.DELEGATING):
            return False
        if not call.is_run:
            if message.get("isError") is True:
                return False
            self._held[call_id] = call, event
        # Its id may come again for another call while the subagent still works.
        del self._calls[call_id]
        return True

    def _release(self) -> Iterable[SessionUpdate]:
        """End the calls of which no subagent was told: their results are all there is."""
        held, self._held = self._held, {}
        for call, event in held.values():
            if isinstance(event.data, dict) and isinstance(event.data["message"], dict):
                yield self._finish(call, event.data["message"], event.data.get("meta"))

    def _open_call(self, call_id: CallId) -> ShownCall | None:
        call = self._calls.get(call_id)
        return call if call is not None and call.status in _OPEN else None

    def _announce(
        self,
        call_id: CallId,
        name: str,
        arguments: str,
        *,
        status: Literal["pending", "in_progress"],
    ) -> Iterable[SessionUpdate]:
        look = tool_calls.look_of(name, arguments, self._cwd)
        call = ShownCall(
            acp_id=self._acp_id(call_id),
            name=name,
            look=look,
            status=status,
            content=[],
            locations=look.locations,
            terminal=self._view.display_terminals and look.kind == "execute",
        )
        self._calls[call_id] = call
        if call.terminal:
            call.content = [Terminal(terminal_id=call.acp_id)]
        yield self.announcement(call)

    def announcement(self, call: ShownCall) -> ToolCall:
        """A call as a client is first told of it."""
        update = ToolCall(
            tool_call_id=call.acp_id,
            title=call.look.title,
            name=call.name or None,
            kind=call.look.kind,
            status=call.status,
            locations=call.locations or None,
            content=call.content or None,
            raw_input=call.look.raw_input,
        )
        if call.terminal:
            update.meta = {"terminal_info": {"terminal_id": call.acp_id, "cwd": str(self._cwd)}}
        return update

    def _acp_id(self, call_id: CallId) -> str:
        """Providers reuse ids over turns, ACP does not (field report R083)."""
        first = f"{self._child.id_prefix}{call_id}" if self._child is not None else str(call_id)
        acp_id, n = first, 2
        while acp_id in self._acp_ids:
            acp_id, n = f"{first}#{n}", n + 1
        self._acp_ids.add(acp_id)
        return acp_id

    def _preview(self, preview: ToolPreview) -> list[SessionUpdate]:
        call = self._open_call(preview.call_id)
        if call is None:
            return []
        call.content = tool_calls.diffs_content(list(preview.diffs))
        update = ToolCallUpdate(tool_call_id=call.acp_id, status=call.status, content=call.content)
        self._follow(call, update, list(preview.diffs))
        return [update]

    def _follow(self, call: ShownCall, update: ToolCallUpdate, diffs: list[FileDiff]) -> None:
        """Point at the change: clients move their view to the one location a call has."""
        if diffs:
            call.locations = [tool_calls.diff_place(diffs[0])]
            update.locations = call.locations

    def _output(self, output: ToolOutput) -> list[SessionUpdate]:
        call = self._open_call(output.call_id)
        if call is None or not call.terminal:
            return []
        meta: JsonObject = {
            "terminal_output": {"terminal_id": call.acp_id, "data": output.text},
        }
        return [ToolCallUpdate(tool_call_id=call.acp_id, status=call.status, meta=meta)]

    def _embed(self, terminal: ToolTerminal) -> list[SessionUpdate]:
        call = self._open_call(terminal.call_id)
        if call is None or (self._child is not None and not self._child.terminals):
            return []
        call.embedded = terminal.terminal_id
        return [_embedding(call)]

    def _terminal_end(self, call: ShownCall, text: str, meta: JsonObject) -> JsonObject:
        code, signal = meta.get("exitCode"), meta.get("signal")
        ended: JsonObject = {
            "terminal_exit": {"terminal_id": call.acp_id, "exit_code": code, "signal": signal}
        }
        if self._replay:
            ended["terminal_output"] = {
                "terminal_id": call.acp_id,
                "data": tool_calls.terminal_text(text),
            }
        return ended

    def _moved(self, _event: Event, data: JsonObject) -> Iterable[SessionUpdate]:
        """``working-directory/change``: where relative paths of calls start from now on."""
        folder = Path(str(data.get("cwd")))
        if folder.is_absolute():
            self._cwd = folder
        return ()

    _FOLDS: ClassVar[dict[str, Fold]] = {
        "turn/start": _turn_start,
        "turn/end": _turn_end,
        "step/start": _step_start,
        "user/message": _user,
        "assistant/message": _answer,
        "assistant/attempt": _failed_attempt,
        "llm/retry": _retry,
        "command/run": _command,
        "command/done": _command_done,
        "plugin:acp-bridge/notice": _notice,
        "compaction/start": _compaction,
        "plugin:acp-bridge/summary-retry": _compaction,
        "compaction/summary": _compaction,
        "compaction/end": _compaction,
        "session/end-seed": _compaction,
        "approval/asked": _asked,
        "approval/decided": _decided,
        "tool/call": _called,
        "tool/result": _result,
        "todo/write": _plan,
        "session/title": _title,
        "working-directory/change": _moved,
        "request/context": _context,
    }


def _chunk(kind: Literal["text", "reasoning"], place: Place, text: str) -> SessionUpdate:
    content = TextContent(text=text)
    message_id = "%d.%d.%d.%d" % place  # noqa: UP031  # the quickest way, on every token's path
    if kind == "text":
        return AgentMessageChunk(content=content, message_id=message_id)
    return AgentThoughtChunk(content=content, message_id=message_id)


def _embedding(call: ShownCall) -> SessionUpdate:
    assert call.embedded is not None
    call.content = [Terminal(terminal_id=call.embedded)]
    return ToolCallUpdate(tool_call_id=call.acp_id, status=call.status, content=call.content)
