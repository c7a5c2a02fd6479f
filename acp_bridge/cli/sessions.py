"""``acp-bridge sessions``: list, show, fork, verify, export and delete what is stored.

Reading commands take no lock and write nothing into the store; each bad log is told beside the
good ones. Errors are one sentence: exit code 1 for what failed, 2 for what was typed wrongly.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acp_bridge.cli.screen import Screen, plain
from acp_bridge.cli.stored import Row, Stored, list_command
from acp_bridge.cli.transcript import iso, replayed, turn_note, when
from acp_bridge.config import resolve
from acp_bridge.errors import BridgeError, ConfigError, InvalidParamsError, SessionNotFoundError
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.sessions.surface import title
from acp_bridge.sessions.survey import (
    FoundLog,
    Verdict,
    examine,
    find_logs,
    id_of_folder,
    kind_of,
    read_header,
)
from acp_bridge.sessions.verdict import BAD, Status
from acp_bridge.vocabulary import JsonObject

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_BAR_WIDTH = 30
_BAR_AFTER_S = 0.5
"""What is over sooner needs no bar."""


def run(flags: Mapping[str, str | None], options: Mapping[str, Any]) -> int:
    """Run one of the actions; the exit code. ``options`` is what the parser made of its flags."""
    try:
        return _act(Stored(resolve(flags, os.environ)[0].home), options)
    except ConfigError as error:
        return _failed(error.details, EXIT_USAGE)
    except SessionNotFoundError as error:
        return _failed(error.for_a_shell(list_command(flags.get("home"))), EXIT_FAILED)
    except BridgeError as error:
        return _failed(error.details, EXIT_FAILED)
    except KeyboardInterrupt:
        sys.stderr.write("\nacp-bridge: interrupted.\n")
        return EXIT_INTERRUPTED


def _act(store: Stored, options: Mapping[str, Any]) -> int:
    match options["action"]:
        case "list":
            return _list(store, as_json=options["json"])
        case "show":
            session_id = store.id_of(options["id"])
            return _show(store, session_id, as_json=options["json"], full=options["full"])
        case "verify":
            ids = [store.id_of(typed) for typed in options["ids"]]
            return _verify(store, ids, as_json=options["json"])
        case "export":
            return _export(store, options)
        case "fork":
            from acp_bridge.cli.sessions_fork import fork

            return fork(store, options)
        case _:
            session_id = store.id_of(options["id"])
            return _delete(store, session_id, is_sure=options["yes"], as_json=options["json"])


def _failed(sentence: str, code: int) -> int:
    sys.stderr.write(f"acp-bridge: {plain(sentence)}\n")
    return code


# --- list ---------------------------------------------------------------------------------------


def _list(store: Stored, *, as_json: bool) -> int:
    screen = Screen(sys.stdout)
    good, bad = store.rows()
    if as_json:
        for row in [*good, *bad]:
            screen.line(json.dumps(_row_json(row)))
        return 0
    if not good and not bad:
        screen.line(f"There are no sessions in {store.root}.")
        return 0
    _print_table(screen, good)
    if bad:
        screen.line("")
        screen.line(f"{_count(len(bad), 'log')} cannot be opened:", "31")
        for row in bad:
            screen.line(f"  {row.verdict.session_id}  {row.verdict.status}", "1")
            screen.line(f"    {row.verdict.reason}")
    return 0


def _row_json(row: Row) -> JsonObject:
    verdict, header = row.verdict, row.verdict.header
    return {
        "session_id": verdict.session_id,
        "kind": None if header is None else kind_of(header),
        "title": row.title,
        "cwd": None if header is None else header.cwd,
        "created_at": None if header is None else iso(header.created_at_ms),
        "updated_at": None if row.updated_ms is None else iso(row.updated_ms),
        "parent_session": None if header is None else header.parent_session,
        "path": str(verdict.path),
        "status": verdict.status,
        "reason": verdict.reason,
    }


def _print_table(screen: Screen, rows: Sequence[Row]) -> None:
    table: list[tuple[str, ...]] = [("ID", "UPDATED", "FOLDER", "TITLE", "KIND")]
    home = str(Path.home())
    for row in rows:
        header = row.verdict.header
        assert header is not None
        updated = when(row.updated_ms or 0)
        folder = _short(header.cwd, home)
        values = (row.verdict.session_id, updated, folder, row.title or "-", kind_of(header))
        table.append(tuple(" ".join(plain(value).split()) for value in values))
    widths = [max(len(cells[n]) for cells in table) for n in range(5)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(widths[:2]) - widths[4] - 8
        widths[3] = min(widths[3], max(20, room - min(widths[2], room // 2)))
        widths[2] = min(widths[2], max(12, room - widths[3]))
    for number, cells in enumerate(table):
        fit = [_fit(cell, width) for cell, width in zip(cells, widths, strict=True)]
        if len(cells[2]) > widths[2]:
            fit[2] = "…" + cells[2][1 - widths[2] :]  # a path's end says more than its start
        screen.line("  ".join(fit).rstrip(), "1" if number == 0 else "")


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else cell[: width - 1] + "…"


def _short(cwd: str | None, home: str) -> str:
    if cwd is None:
        return "-"
    return f"~{cwd[len(home) :]}" if cwd == home or cwd.startswith(home + "/") else cwd


# --- show ---------------------------------------------------------------------------------------


def _show(store: Stored, session_id: str, *, as_json: bool, full: bool) -> int:
    log = store.open().read(session_id)
    screen = Screen(sys.stdout, rows_max=None if full else 20, live=False)
    if not as_json:
        _introduce(screen, log)
    is_in_turn = False
    for event, updates in replayed(log, store.home):
        if screen.closed:
            break
        if as_json:
            for update in updates:
                screen.line(json.dumps(update))
            continue
        if event is None:
            screen.settle()
        elif event.type == "turn/start" or (not is_in_turn and _is_said(updates)):
            screen.line("")  # a turn, or a command that needed none
            is_in_turn = event.type == "turn/start"
        for update in updates:
            screen.show(update)
        if event is not None and event.type == "turn/end":
            is_in_turn = False
        note = None if event is None else turn_note(event)
        if note is not None:
            screen.settle()
            screen.line(f"  ({note})", "31")
    screen.end_text()
    return 0


def _is_said(updates: list[JsonObject]) -> bool:
    return any(update.get("sessionUpdate") == "user_message_chunk" for update in updates)


def _introduce(screen: Screen, log: StoredLog) -> None:
    header = log.header
    screen.line(title(log.events) or "A session without a title", "1")
    screen.line(f"  {kind_of(header)} {header.session_id}", "2")
    if header.parent_session is not None:
        screen.line(f"  of session {header.parent_session}", "2")
    screen.line(f"  in {header.cwd or 'no folder'}", "2")
    updated = log.events[-1].time_ms if log.events else header.created_at_ms
    screen.line(f"  from {when(header.created_at_ms)} to {when(updated)}", "2")


# --- verify -------------------------------------------------------------------------------------


class Bar:
    """Progress on stderr, where that is a terminal and the work takes a while."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_wanted = sys.stderr.isatty()
        self._since = time.monotonic()
        self._is_drawn = False

    def show(self, done: int) -> None:
        """So many of all are done."""
        if not self._is_wanted or time.monotonic() - self._since < _BAR_AFTER_S:
            return
        filled = _BAR_WIDTH * done // max(1, self._total)
        bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
        sys.stderr.write(f"\r{bar} {done} of {self._total} logs")
        sys.stderr.flush()
        self._is_drawn = True

    def clear(self) -> None:
        """Take the bar away before something else is printed."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False


def _verify(store: Stored, ids: Sequence[str], *, as_json: bool) -> int:
    found = _wanted(find_logs(store.root), ids)
    screen, bar = Screen(sys.stdout), Bar(len(found))
    counts: dict[Status, int] = {}
    for number, one in enumerate(found):
        bar.show(number)
        verdict = examine(one)
        counts[verdict.status] = counts.get(verdict.status, 0) + 1
        bar.clear()
        if as_json:
            screen.line(json.dumps(_verdict_json(verdict)))
        else:
            _print_verdict(screen, verdict)
    if not as_json:
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        screen.line(f"{_count(len(found), 'log')}{': ' + told if told else ''}", "1")
    return EXIT_FAILED if BAD & counts.keys() else 0


def _wanted(found: list[FoundLog], ids: Sequence[str]) -> list[FoundLog]:
    """The logs of these ids, by header or by folder; all without any."""
    if not ids:
        return found
    names: dict[Path, set[str]] = {}
    for one in found:
        header = read_header(one.path)
        names[one.path] = {
            id_of_folder(one.folder.name),
            *([header.session_id] if header else []),
        }
    return [one for one in found if names[one.path] & set(ids)]


def _verdict_json(verdict: Verdict) -> JsonObject:
    return {
        "path": str(verdict.path),
        "session_id": verdict.session_id,
        "status": verdict.status,
        "reason": verdict.reason,
    }


def _print_verdict(screen: Screen, verdict: Verdict) -> None:
    style = {"sound": "32", "repairable": "33"}.get(verdict.status, "31")
    screen.line(f"{verdict.status:<12} {verdict.session_id}", style)
    if verdict.reason is not None:
        screen.line(f"{'':<12} {verdict.reason}")
        screen.line(f"{'':<12} {verdict.path}", "2")


# --- export -------------------------------------------------------------------------------------


def _export(store: Stored, options: Mapping[str, Any]) -> int:
    if (options["id"] is None) != options["all"]:
        raise ConfigError("Say what to export: the id of a session, or --all (and not both).")
    from acp_bridge.cli import sessions_export

    wanted = None if options["all"] else store.id_of(options["id"])
    file = Path(options["html"])
    done = sessions_export.export(store, wanted, file)
    screen = Screen(sys.stdout)
    if options["json"]:
        for entry in done.entries:
            kind, session_id = kind_of(entry.header), entry.header.session_id
            told = {"session_id": session_id, "kind": kind, "title": entry.title, "html": str(file)}
            screen.line(json.dumps(told))
        return 0
    screen.line(f"Wrote {file}: {_count(len(done.entries), 'session')}.")
    if done.unread:
        screen.line(f"{_count(done.unread, 'log')} could not be read; the page says why.")
    return 0


# --- delete -------------------------------------------------------------------------------------


def _delete(store: Stored, session_id: str, *, is_sure: bool, as_json: bool) -> int:
    sessions = store.open()
    headers = store.headers()
    known = {header.session_id for header in headers}

    def check(header: Header) -> None:
        if header.origin == "subagent" and header.parent_session in known:
            raise InvalidParamsError(
                f"Session {session_id} belongs to a subagent: it is deleted with its parent,"
                f" {header.parent_session}.",
                field="id",
            )

    for header in headers:
        if header.session_id == session_id:
            check(header)
    children = below(session_id, headers)
    what = f"session {session_id}"
    if children:
        what += f" and {_count(len(children), 'session')} of its subagents"
    if not is_sure and not _agrees(what):
        Screen(sys.stdout).line("Nothing was deleted.")
        return EXIT_FAILED
    sessions.delete(session_id, check)
    screen = Screen(sys.stdout)
    if as_json:
        for gone in (session_id, *children):
            screen.line(json.dumps({"session_id": gone, "deleted": True}))
        return 0
    screen.line(f"Deleted {what}.")
    for child in children:
        screen.line(f"  {child}")
    return 0


def _agrees(what: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(f"Nobody can be asked here: say --yes to delete {what}.")
    try:
        answer = input(f"Delete {plain(what)} for good? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}


def below(session_id: str, headers: Sequence[Header]) -> list[str]:
    """The ids of the subagents' sessions below one, children of children included."""
    found: list[str] = []
    parents = [session_id]
    while parents:
        parent = parents.pop()
        for header in headers:
            is_child = header.origin == "subagent" and header.parent_session == parent
            if is_child and header.session_id not in {session_id, *found}:
                found.append(header.session_id)
                parents.append(header.session_id)
    return found


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
