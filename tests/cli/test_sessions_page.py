"""``acp-bridge sessions export``: one page that stands alone, and on which everything is text."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_sessions import conversation, family, marked, put, snapshot

from acp_bridge.cli.main import main
from acp_bridge.cli.markup import Html, tag
from acp_bridge.cli.sessions_export import export
from acp_bridge.cli.stored import Stored
from acp_bridge.sessions import survey, sweep
from acp_bridge.sessions.reading import Loaded, load, stamp_of
from acp_bridge.vocabulary import Draft, JsonObject

VOID = {"meta", "img"}


@attrs.define
class Element:
    """An element with its attributes, its own text and what is in it."""

    name: str
    attributes: dict[str, str]
    children: list["Element | str"] = attrs.field(factory=list)

    def all(self, name: str, class_: str | None = None) -> list["Element"]:
        """Every element of this name and class below."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                classes = child.attributes.get("class", "").split()
                if child.name == name and (class_ is None or class_ in classes):
                    found.append(child)
                found += child.all(name, class_)
        return found

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    @property
    def skeleton(self) -> list[object]:
        """Names and the names of attributes alone: what no text may change."""
        below = [child.skeleton for child in self.children if isinstance(child, Element)]
        return [self.name, sorted(self.attributes), below]


class Page(HTMLParser):
    """Parses strictly: every element is closed by its own end."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page", {})
        self._open = [self.root]
        self.feed(source)
        self.close()
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def exported(home: Path, session_id: str | None = None) -> Element:
    file = home / "page.html"
    export(Stored(home), session_id, file)
    return Page(file.read_text("utf-8")).root


def test_the_page_shows_the_tree_and_each_transcript(tmp_path: Path) -> None:
    family(tmp_path)
    page = exported(tmp_path)
    [nav] = page.all("nav")
    [tree, *_] = nav.all("ul")
    roots = [item for item in tree.children if isinstance(item, Element)]
    assert [len(root.all("li")) for root in roots] == [0, 2, 0]  # fork, root, old-fork
    articles = page.all("article")
    ids = [article.all("code")[0].text for article in articles]
    assert ids == ["fork", "root", "child", "grandchild", "old-fork"]
    kinds = [[span.text for span in article.all("span", "kind")] for article in articles]
    assert kinds == [["fork"], [], ["subagent"], ["subagent"], ["fork"]]
    targets = {article.attributes["id"] for article in articles}
    links = [a.attributes["href"] for a in page.all("a")]
    assert {link.removeprefix("#") for link in links} == targets


def test_a_transcript_has_turns_calls_with_diffs_and_a_chart(tmp_path: Path) -> None:
    put(tmp_path, "s")
    [article] = exported(tmp_path).all("article")
    assert [h3.all("span")[0].text for h3 in article.all("h3")] == ["Turn 1"]
    assert [one.text for one in article.all("div", "user")] == ["Fix the parser"]
    edit, run = article.all("details", "call")
    assert edit.all("summary")[0].text == "●Edit `parser.py`"
    assert "open" in edit.attributes
    spans = [(s.attributes.get("class"), s.text) for s in edit.all("pre", "diff")[0].all("span")]
    assert spans == [
        ("hunk", "@@ -1,2 +1,2 @@"),
        (None, " a = 1"),
        ("del", "-b = 2"),
        ("add", "+b = 3"),
    ]
    assert "open" not in run.attributes
    assert [pre.text for pre in run.all("pre")] == [
        "command: pytest -q\ndescription: test",
        "2 passed",
    ]
    assert [li.text for li in article.all("ul", "plan")[0].all("li")] == ["◐Find the bug"]
    [chart] = article.all("svg")
    assert [t.text.split(": ")[1] for t in chart.all("title")] == ["200 tokens", "450 tokens"]
    assert "now 450 of 1,000 (45 %)" in article.all("figcaption")[0].text


def test_one_session_comes_with_its_subagents_and_nothing_else(tmp_path: Path) -> None:
    family(tmp_path)
    put(tmp_path, "bad").write_bytes(b"no log")
    page = exported(tmp_path, "root")
    ids = [article.all("code")[0].text for article in page.all("article")]
    assert ids == ["root", "child", "grandchild"]
    assert page.all("title")[0].text == "Fix the parser"


def test_logs_that_cannot_be_read_are_named_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "good")
    put(tmp_path, "bad").write_bytes(b"no log")
    file = tmp_path / "page.html"
    home = ["--home", str(tmp_path)]
    assert main(["sessions", "export", *home, "--all", "--html", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"Wrote {file}: 1 session.\n1 log could not be read; the page says why.\n"
    )
    page = Page(file.read_text("utf-8")).root
    [bad] = [article for article in page.all("article") if article.attributes["id"] == "bad"]
    assert "its log is damaged" in bad.text
    assert page.all("a", "bad")[0].attributes["href"] == "#bad"


def test_an_export_for_machines_names_each_session_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family(tmp_path)
    file = str(tmp_path / "page.html")
    home = ["--home", str(tmp_path)]
    assert main(["sessions", "export", *home, "child", "--html", file, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["session_id"], row["kind"]) for row in rows] == [
        ("child", "subagent"),
        ("grandchild", "subagent"),
    ]
    assert {row["html"] for row in rows} == {file}


def test_sessions_that_name_each_other_as_parents_are_all_shown(tmp_path: Path) -> None:
    put(tmp_path, "a", parent_session="b", origin="subagent")
    put(tmp_path, "b", parent_session="a", origin="subagent")
    put(tmp_path, "self", parent_session="self", origin="subagent")
    assert len(exported(tmp_path).all("article")) == 3


def test_an_empty_session_is_said_to_be_empty(tmp_path: Path) -> None:
    put(tmp_path, "s", [])
    [article] = exported(tmp_path).all("article")
    assert "Nothing was said in this session." in article.text


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    family(tmp_path)
    page = exported(tmp_path)
    [policy] = [m for m in page.all("meta") if m.attributes.get("http-equiv")]
    assert policy.attributes["content"].startswith("default-src 'none';")
    assert not [name for name in ("script", "link", "iframe", "object") if page.all(name)]
    style = page.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_an_export_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    family(tmp_path)
    before = snapshot(tmp_path / "sessions")
    exported(tmp_path)
    assert snapshot(tmp_path / "sessions") == before


def test_a_log_is_judged_once_for_a_page_and_not_at_all_if_the_index_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family(tmp_path)
    for path in tmp_path.rglob("session.v4*"):  # as if it had lain here for a while
        for one in (path, path.parent):
            os.utime(one, ns=(0, 0))
    monkeypatch.setattr(sweep, "UNSETTLED_NS", -(10**9))
    judged: list[str] = []

    def counted(path: Path, session_id: str | None) -> Loaded:
        judged.append(path.parent.name)
        return load(path, session_id)

    for room in (sweep, survey):
        monkeypatch.setattr(room, "load", counted)
    exported(tmp_path)
    page = (tmp_path / "page.html").read_bytes()
    assert sorted(judged) == ["child", "fork", "grandchild", "old-fork", "root"]
    judged.clear()
    exported(tmp_path)
    assert judged == []
    assert (tmp_path / "page.html").read_bytes() == page


def test_a_log_that_changed_since_it_was_listed_is_judged_again(tmp_path: Path) -> None:
    path = put(tmp_path, "s")
    [row], _ = Stored(tmp_path).rows()
    known = attrs.evolve(row, stamp=stamp_of(path.stat()))
    assert known.read() == row.read()
    path.write_bytes(path.read_bytes()[:-9])
    torn = known.read()
    assert torn is not None
    assert torn.torn
    path.write_bytes(b"no log")
    assert known.read() is None


def test_a_page_that_cannot_be_written_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "s")
    (tmp_path / "folder").mkdir()
    for file in (tmp_path / "none" / "page.html", tmp_path / "folder"):
        home = ["--home", str(tmp_path)]
        assert main(["sessions", "export", *home, "s", "--html", str(file)]) == 1
        told = capsys.readouterr().err
        assert re.fullmatch(r"acp-bridge: The page .* could not be written: .*\.\n", told)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("words", [(), ("s", "--all")])
def test_an_export_names_one_session_or_all(words: tuple[str, ...], tmp_path: Path) -> None:
    put(tmp_path, "s")
    file = str(tmp_path / "page.html")
    assert main(["sessions", "export", "--home", str(tmp_path), *words, "--html", file]) == 2


def test_a_picture_is_shown_if_it_is_one(tmp_path: Path) -> None:
    digits = "ab" + "0" * 62
    folder = tmp_path / "attachments" / "v1" / "objects" / "ab"
    folder.mkdir(parents=True)
    (folder / digits).write_bytes(b"\x89PNG")
    for session_id, kind in (("good", "image/png"), ("odd", 'text/html;"><script>')):
        rows = conversation()
        message = rows[3].data
        assert isinstance(message, dict)
        content: list[JsonObject] = [
            {
                "type": "image",
                "attachment": {"attachmentId": f"sha256:{digits}", "mediaType": kind},
            }
        ]
        put(
            tmp_path,
            session_id,
            [
                *rows[:3],
                Draft("user/message", {**message, "content": [*content]}, "append"),
                *rows[4:],
            ],
        )
    [image] = exported(tmp_path).all("img")
    data = base64.b64encode(b"\x89PNG").decode()
    assert image.attributes["src"] == f"data:image/png;base64,{data}"


NASTY = st.sampled_from(
    ["<script>alert(1)</script>", "</pre></details>", '" onload="x', "<!--", "]]>", "&lt;b&gt;"]
)
TEXT = st.one_of(
    st.text(max_size=12),
    st.lists(st.one_of(NASTY, st.text(max_size=3)), min_size=1, max_size=4).map("".join),
)
LINE = TEXT.map(lambda text: "x" + re.sub(r"[\s`]", "_", text))
"""One line that is no code fence: lines and fences do have elements of their own."""


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(LINE, min_size=10, max_size=10), cwd=LINE, session_id=LINE)
def test_no_text_of_a_log_becomes_markup(
    texts: list[str], cwd: str, session_id: str, tmp_path: Path
) -> None:
    pages = []
    for words, where, name in (
        (["x"] * 10, "/x", "x"),
        (texts, f"/{cwd}".replace("\0", "").replace("\ud800", ""), session_id),
    ):
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        prompt, thought, told, title, path, old, new, output, todo, why = words
        rows = conversation(
            prompt,
            thought,
            told,
            title=title,
            path=f"/{path}",
            old=f"1{old}",
            new=f"2{new}",
            output=output,
            todo=todo,
            reason={"kind": "error", "error": {"message": f"! {why}", "code": "X"}},
        )
        put(home, name, rows, cwd=where)
        pages.append(exported(home))
    benign, page = pages
    assert page.skeleton == benign.skeleton


@given(text=TEXT, name=st.sampled_from(["p", "span"]))
def test_an_element_holds_the_text_that_it_was_given(text: str, name: str) -> None:
    visible = "".join(c for c in text if c.isprintable() or c == "\n")
    [element] = Page(tag(name, visible, title=visible)).root.children
    assert isinstance(element, Element)
    assert element.text == visible
    assert element.attributes["title"] == visible
    assert tag(name, Html("<b>x</b>")) == f"<{name}><b>x</b></{name}>"


@pytest.mark.process
def test_a_browser_shows_the_page_as_it_is_meant(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        assert not os.environ.get("CI"), "chromium is missing, and .ci/run should have brought it"
        pytest.skip("chromium is not installed (apt-get install chromium)")
    trap = "<img src=x onerror=\"document.title='broken out'\">"
    put(tmp_path, "root", conversation(told=f"{trap}\n```py\nprint(1)\n```\n"), later_ms=1_000)
    put(tmp_path, "child", parent_session="root", origin="subagent")
    put(tmp_path, "fork", marked(conversation(), []), is_seeded=True)
    file = tmp_path / "page.html"
    command = [sys.executable, "-m", "acp_bridge", "sessions", "export", "--home", str(tmp_path)]
    subprocess.run([*command, "--all", "--html", str(file)], check=True, timeout=60)
    shot = tmp_path / "page.png"
    browser = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1200,1000",
    ]
    address = file.as_uri()
    shown = subprocess.run(
        [*browser, "--dump-dom", address], check=True, timeout=90, capture_output=True, text=True
    )
    page = Page(shown.stdout).root
    assert page.all("title")[0].text == "Sessions"
    assert page.skeleton == Page(f"<!DOCTYPE html>{file.read_text('utf-8')}").root.skeleton
    assert trap in page.all("article")[0].text
    assert page.all("pre", "plain")[0].text == "print(1)"
    subprocess.run(
        [*browser, f"--screenshot={shot}", address], check=True, timeout=90, capture_output=True
    )
    assert len(shot.read_bytes()) > 20_000  # a blank page of this size has a third of that
