"""README and docs/ say what is there: commands, settings, links; the front page stays one."""

import re
from pathlib import Path

import pytest

from acp_bridge.cli.main import main
from acp_bridge.config import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS, *sorted((ROOT / "editors").glob("*/README.md"))]

FRONT_PAGE_LINES_MAX = 350

FENCED = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
SETTING_ROW = re.compile(
    r"^\| (?:`--([\w-]+)`)? ?\| `(ACP_BRIDGE_\w+)` \| (?:`(\w+)`)? ?\|", re.MULTILINE
)


def text(page: Path) -> str:
    return page.read_text("utf-8")


def code(page: Path) -> str:
    return "\n".join([*FENCED.findall(text(page)), *re.findall(r"`[^`\n]+`", text(page))])


def anchors(page: Path) -> set[str]:
    """Those that a page's headings get: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_front_page_stays_one() -> None:
    assert len(text(README).splitlines()) <= FRONT_PAGE_LINES_MAX


def test_the_front_page_leads_to_every_page() -> None:
    linked = {(ROOT / link).resolve() for link in LINK.findall(text(README))}
    assert [page.name for page in DOCS if page not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", text(page))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.name)
def test_every_command_shown_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    taught = capsys.readouterr().out
    shown = re.findall(r"acp-bridge ((?:--?)?[a-z][a-z-]*)", code(page))
    assert [word for word in shown if not re.search(rf"(?<![\w-]){word}\b", taught)] == []


def test_every_setting_has_its_row() -> None:
    rows = SETTING_ROW.findall(text(ROOT / "docs" / "settings.md"))
    flagless = {"record_model_requests", "events_token"}
    assert {(flag, variable, key) for flag, variable, key in rows} == {
        (
            "" if setting.name in flagless else setting.name.replace("_", "-"),
            setting.variable,
            setting.name if setting.in_file else "",
        )
        for setting in SETTINGS
    }
