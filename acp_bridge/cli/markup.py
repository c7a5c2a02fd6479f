"""HTML that cannot be broken out of: text is escaped unless it was made here."""

import html
from collections.abc import Iterable

from acp_bridge.cli.screen import plain


class Html(str):
    """Markup made by `tag` or written in this program: the only text that is not escaped."""

    __slots__ = ()


_VOID = frozenset({"meta", "img"})


def text(value: str) -> Html:
    """Text as markup: escaped, and with control characters made visible."""
    return Html(html.escape(plain(value), quote=True))


def join(parts: Iterable[str]) -> Html:
    """Parts one after the other; those that are plain text are escaped."""
    return Html("".join(part if isinstance(part, Html) else text(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Html:
    """An element. An attribute that is None or False is left out; ``class_`` is ``class``."""
    shown = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        shown.append(f" {label}" if value is True else f' {label}="{text(value)}"')
    opened = f"<{name}{''.join(shown)}>"
    if name in _VOID:
        return Html(opened)
    return Html(f"{opened}{join(children)}</{name}>")
