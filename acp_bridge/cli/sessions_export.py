"""``acp-bridge sessions export``: sessions as one HTML page that loads nothing from anywhere.

The page runs no script, and its own policy forbids it any; what a log holds is text on it.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import BinaryIO

import attrs

from acp_bridge.cli.markup import Html, join, tag
from acp_bridge.cli.page import anchor, article
from acp_bridge.cli.stored import Row, Stored
from acp_bridge.cli.transcript import transcript, when
from acp_bridge.errors import BridgeError, SessionNotFoundError, StoreFailedError
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.logfile import disk_reason
from acp_bridge.sessions.reading import StoredLog
from acp_bridge.sessions.survey import Verdict, kind_of

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@attrs.frozen
class Entry:
    """A session on the page, without its events: those are read when it is written."""

    row: Row
    header: Header
    title: str
    updated_ms: int
    place: str


@attrs.frozen
class Node:
    """An entry and the sessions of its subagents."""

    entry: Entry
    children: list["Node"]


@attrs.frozen
class Exported:
    """What is on a page, in its order, and how many logs are not."""

    entries: list[Entry]
    unread: int


def export(store: Stored, session_id: str | None, file: Path) -> Exported:
    """Write the page for a session with its subagents, or for all.

    Raises:
        SessionNotFoundError and the other errors of a bad log: for the session that is named.
        StoreFailedError: the file cannot be written; what was there before is whole.
    """
    entries, bad = _survey(store)
    if session_id is not None:
        bad = _only(session_id, entries, bad)
    tree = _tree(entries)
    if session_id is not None:
        tree = [node for node in _walk(tree) if node.entry.header.session_id == session_id]
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            written = _write(out, tree, bad, store.home)
        part.replace(file)
    except OSError as error:
        raise StoreFailedError(
            f"The page {file} could not be written: {disk_reason(error)}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()  # what is left of a page that was not finished
    return Exported(written, len(bad) + len(list(_walk(tree))) - len(written))


def _survey(store: Stored) -> tuple[list[Entry], list[Verdict]]:
    """All sessions, newest first, and the logs that cannot be shown."""
    good, bad = store.rows()
    entries: list[Entry] = []
    for number, row in enumerate(good, 1):
        header = row.verdict.header
        assert header is not None, "what can be opened has a header"
        name = row.title or "A session without a title"
        entries.append(Entry(row, header, name, row.updated_ms or 0, anchor(number)))
    return entries, [row.verdict for row in bad]


def _only(session_id: str, entries: Sequence[Entry], bad: Sequence[Verdict]) -> list[Verdict]:
    """No bad logs: a session that is named is good, or the command fails for its reason."""
    if any(entry.header.session_id == session_id for entry in entries):
        return []
    for verdict in bad:
        if verdict.session_id == session_id:
            raise BridgeError(verdict.reason or "The session cannot be read.")
    raise SessionNotFoundError(session_id)


def _tree(entries: Sequence[Entry]) -> list[Node]:
    """Sessions with their subagents' sessions below them; one whose parent is gone is a root."""
    nodes = {entry.header.session_id: Node(entry, []) for entry in entries}
    roots: list[Node] = []
    for node in nodes.values():
        header = node.entry.header
        parent = nodes.get(header.parent_session or "") if header.origin == "subagent" else None
        if parent is None or _is_above(node, parent, nodes):
            roots.append(node)
        else:
            parent.children.append(node)
    for node in nodes.values():
        node.children.sort(key=lambda child: child.entry.header.created_at_ms)
    return roots


def _is_above(node: Node, other: Node, nodes: dict[str, Node]) -> bool:
    """Whether ``node`` is ``other`` or above it: logs may name each other in a circle."""
    seen: set[str] = set()
    at: Node | None = other
    while at is not None and at.entry.header.session_id not in seen:
        if at is node:
            return True
        header = at.entry.header
        seen.add(header.session_id)
        at = nodes.get(header.parent_session or "") if header.origin == "subagent" else None
    return False


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """All nodes, each before those below it."""
    for node in nodes:
        yield node
        yield from _walk(node.children)


def _write(out: BinaryIO, tree: Sequence[Node], bad: Sequence[Verdict], home: Path) -> list[Entry]:
    """The page, a session at a time; those that are on it and have not gone meanwhile."""

    def put(text: str) -> None:
        out.write(text.encode("utf-8", "replace"))

    nodes = list(_walk(tree))
    name = nodes[0].entry.title if len(tree) == 1 else "Sessions"
    style = resources.files("acp_bridge.cli").joinpath("page.css").read_text("utf-8")
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", name),
        Html(f"<style>{style}</style>"),
    ]
    put(f'<!DOCTYPE html>\n<html lang="en">{tag("head", *head)}\n<body>\n')
    put(_navigation(tree, len(nodes), len(bad)) + "\n<main>\n")
    written: list[Entry] = []
    for node in nodes:
        log = node.entry.row.read()
        if log is not None:
            written.append(node.entry)
        put(_gone(node.entry) if log is None else _article(node, log, home))
        put("\n")
    put(_bad_logs(bad) + "</main>\n</body></html>\n")
    return written


def _article(node: Node, log: StoredLog, home: Path) -> Html:
    entry = node.entry
    links = [tag("a", one.entry.title, href=f"#{one.entry.place}") for one in node.children]
    shown = transcript(log, home)
    return article(entry.place, entry.header, entry.title, entry.updated_ms, shown, links)


def _gone(entry: Entry) -> Html:
    told = tag("p", "This session went away while the page was written.", class_="note")
    return tag("article", tag("h2", entry.title), told, id=entry.place)


def _navigation(tree: Sequence[Node], count: int, bad: int) -> Html:
    told: list[str] = [f"{count:,} session{'' if count == 1 else 's'}"]
    if bad:
        told += [", ", tag("a", f"{bad:,} that cannot be opened", href="#bad", class_="bad")]
    return tag("nav", tag("h1", "Sessions"), tag("p", *told), _branch(tree))


def _branch(nodes: Sequence[Node]) -> Html:
    rows = []
    for node in nodes:
        entry = node.entry
        kind = kind_of(entry.header)
        told = when(entry.updated_ms) + ("" if kind == "session" else f" · {kind}")
        link = tag("a", entry.title, tag("small", told), href=f"#{entry.place}")
        below = [_branch(node.children)] if node.children else []
        rows.append(tag("li", link, *below))
    return tag("ul", *rows)


def _bad_logs(bad: Sequence[Verdict]) -> Html:
    if not bad:
        return Html("")
    rows = [
        part
        for verdict in bad
        for part in (
            tag("dt", verdict.status),
            tag("dd", tag("code", verdict.session_id), join([" ", verdict.reason or ""])),
        )
    ]
    head = tag("header", tag("h2", "Logs that cannot be opened"))
    return tag("article", head, tag("dl", *rows, class_="badlogs"), id="bad")
