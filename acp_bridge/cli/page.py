"""One session as part of an HTML page, and the chart of how its context filled. Pure."""

import json
import re
from collections.abc import Sequence

from acp_bridge.cli.markup import Html, join, tag
from acp_bridge.cli.screen import MARKS, content_text, unfenced, unified_diff
from acp_bridge.cli.transcript import (
    Call,
    Item,
    Message,
    PlanShown,
    Transcript,
    Turn,
    UsagePoint,
    objects,
    when,
)
from acp_bridge.sessions.header import Header
from acp_bridge.sessions.survey import kind_of
from acp_bridge.vocabulary import JsonObject, JsonValue

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
_CODE = re.compile(r"^(`{3,})[^\n`]*\n(.*?)^\1[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_OUTPUT_CHARS_MAX = 100_000
_CHART_WIDTH, _CHART_HEIGHT = 800, 90
_DOTS_MAX = 60
"""More dots than that are a line."""


def anchor(number: int) -> str:
    """The page-wide name of the session that has this place on the page."""
    return f"s{number}"


def article(
    place: str,
    header: Header,
    title: str,
    updated_ms: int,
    shown: Transcript,
    links: Sequence[Html],
) -> Html:
    """A whole session. ``links`` lead to its subagents' sessions."""
    facts = [
        ("Session", tag("code", header.session_id)),
        ("Folder", header.cwd or "none"),
        ("From", f"{when(header.created_at_ms)} to {when(updated_ms)}"),
    ]
    if header.parent_session is not None:
        word = "Asked by" if header.origin == "subagent" else "Forked from"
        facts.append((word, tag("code", header.parent_session)))
    if links:
        facts.append(("Subagents", join(_between(links))))
    pairs = [part for name, value in facts for part in (tag("dt", name), tag("dd", value))]
    kind = kind_of(header)
    label = join([" ", tag("span", kind, class_="kind")]) if kind != "session" else Html("")
    head = tag("header", tag("h2", title, label), tag("dl", *pairs), _chart(shown.usage))
    turns = [_turn(turn) for turn in shown.turns]
    if not turns:
        turns = [tag("p", "Nothing was said in this session.", class_="quiet")]
    return tag("article", head, *turns, id=place)


def _between(links: Sequence[Html]) -> list[str]:
    return [part for link in links for part in (", ", link)][1:]


def _turn(turn: Turn) -> Html:
    name = "Between turns" if turn.number is None else f"Turn {turn.number}"
    parts = [tag("h3", tag("span", name), tag("span", when(turn.started_ms)))]
    parts += [_item(item) for item in turn.items]
    if turn.note is not None:
        parts.append(tag("p", turn.note, class_="note"))
    return tag("section", *parts)


def _item(item: Item) -> Html:
    match item:
        case Message():
            return _message(item)
        case Call():
            return _call(item.state)
        case PlanShown():
            return _plan(item.entries)


def _message(message: Message) -> Html:
    if message.speaker == "user":
        return tag("div", *[_user_block(block) for block in message.blocks], class_="user")
    said = "".join(content_text(block) for block in message.blocks).strip("\n")
    if not said.strip():
        return Html("")
    if message.speaker == "thought":
        return tag(
            "details", tag("summary", "Thought"), tag("div", said, class_="text"), class_="thought"
        )
    return tag("div", _prose(said), class_="text")


def _user_block(block: JsonObject) -> Html:
    data, kind = block.get("data"), block.get("mimeType")
    if (
        block.get("type") == "image"
        and kind in _IMAGES
        and isinstance(data, str)
        and _BASE64.fullmatch(data)
    ):
        return tag("img", src=f"data:{kind};base64,{data}", alt="image")
    return tag("div", _prose(content_text(block)), class_="text")


def _prose(said: str) -> Html:
    """Text with its fenced code set apart; no other markup of it is taken to mean anything."""
    parts: list[str] = []
    at = 0
    for match in _CODE.finditer(said):
        parts += [said[at : match.start()], tag("pre", match[2].rstrip("\n"), class_="plain")]
        at = match.end()
    return join([*parts, said[at:]])


def _call(call: JsonObject) -> Html:
    status = str(call.get("status"))
    mark = tag("span", MARKS.get(status, "○"), class_=f"mark {status if status in MARKS else ''}")
    body: list[Html] = []
    raw, has_diff = call.get("rawInput"), False
    for part in objects(call.get("content")):
        if part.get("type") == "diff":
            has_diff = True
            body += _diff(part)
        elif "content" in part:
            output = unfenced(content_text(part["content"]))
            if len(output) > _OUTPUT_CHARS_MAX:
                output = output[:_OUTPUT_CHARS_MAX] + "\n… (cut)"
            body += [tag("h4", "Output"), tag("pre", output)]
    if isinstance(raw, dict) and raw and not has_diff:  # a diff says it all, and better
        body = [tag("h4", "Input"), tag("pre", _input(raw)), *body]
    title = tag("summary", mark, tag("span", str(call.get("title"))))
    return tag("details", title, *body, class_="call", open=has_diff or status == "failed")


def _input(raw: JsonObject) -> str:
    """A call's arguments, one a line, long texts as they are and not as JSON."""
    lines = [f"{key}: {_argument(value)}" for key, value in raw.items()]
    return "\n".join(lines)[:_OUTPUT_CHARS_MAX]


def _argument(value: JsonValue) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value if "\n" not in value else "\n  " + value.replace("\n", "\n  ")


def _diff(part: JsonObject) -> list[Html]:
    old, path = part.get("oldText"), str(part.get("path"))
    rows = unified_diff(path, old if isinstance(old, str) else None, str(part.get("newText") or ""))
    shown = rows[2:] if rows[0].startswith("--- ") else rows
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    spans = [tag("span", row or " ", class_=kinds.get(row[:1])) for row in shown]
    name = f"{path} (new file)" if old is None else path
    return [tag("h4", name), tag("pre", *spans, class_="diff")]


def _plan(entries: Sequence[JsonObject]) -> Html:
    rows = []
    for entry in entries:
        status = str(entry.get("status"))
        known = status if status in MARKS else "pending"
        mark = tag("span", MARKS[known], class_=f"mark {known}")
        done = "done" if known == "completed" else None
        rows.append(tag("li", mark, tag("span", str(entry.get("content")), class_=done)))
    return tag("ul", *rows, class_="plan") if rows else Html("")


def _chart(points: Sequence[UsagePoint]) -> Html:
    """How full the context was after each answer; nothing to see without an answer."""
    if not points:
        return Html("")
    last, most = points[-1], max(point.used for point in points)
    share = f"{100 * last.used / last.size:.0f} %"
    caption = tag(
        "figcaption",
        tag("span", f"Context after each of {len(points):,} answers, at most {most:,} tokens"),
        tag("span", f"now {last.used:,} of {last.size:,} ({share})"),
    )
    top = max(most, 1)
    steps = max(1, len(points) - 1)
    places = [
        (
            _CHART_WIDTH * number / steps if len(points) > 1 else _CHART_WIDTH / 2,
            (_CHART_HEIGHT - 8) * (1 - point.used / top) + 6,
        )
        for number, point in enumerate(points)
    ]
    curve = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    floor = str(_CHART_HEIGHT)
    area = f"M{places[0][0]:.1f} {floor} L{curve} L{places[-1][0]:.1f} {floor} Z"
    dots = [
        tag(
            "g",
            tag("title", f"{when(point.time_ms)}: {point.used:,} tokens"),
            tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_="dot"),
        )
        for (x, y), point in zip(places, points, strict=True)
    ]
    drawing = tag(
        "svg",
        tag("line", x1="0", y1=floor, x2=str(_CHART_WIDTH), y2=floor, class_="base"),
        tag("path", d=area, class_="area"),
        tag("path", d=f"M{curve}", class_="curve"),
        *(dots if len(dots) <= _DOTS_MAX else []),
        viewBox=f"0 0 {_CHART_WIDTH} {_CHART_HEIGHT}",
        role="img",
        aria_label=f"Tokens in the context, now {last.used} of {last.size}",
    )
    return tag("figure", drawing, caption)
