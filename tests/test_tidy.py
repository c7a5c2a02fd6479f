"""The repository lints itself: sizes, charters, errors that are raised and tested, no leftovers."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "acp_bridge"
GENERATED = {PACKAGE / "acp" / "types.py"}

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

PRINTS_ALLOWED = {PACKAGE / "cli", PACKAGE / "__main__.py"}
OWNED_TODO = re.compile(r"TODO\([\w.-]+\)")
ROOM_ROW = re.compile(r"^\| `(\w+)/` \| (.+) \|$", re.MULTILINE)


def sources(*folders: Path) -> list[Path]:
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [path for path in found if path not in GENERATED]


OURS = sources(PACKAGE, ROOT / "tests", ROOT / "benchmarks")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def trees(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for path in paths:
        yield path, ast.parse(path.read_text("utf-8"))


def test_no_file_is_longer_than_a_person_can_hold() -> None:
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in OURS}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path, tree in trees(OURS):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{name(path)}:{node.name}"] = lines
    assert long == {}


def test_only_commands_print() -> None:
    printing = []
    for path, tree in trees(sources(PACKAGE)):
        if any(allowed == path or allowed in path.parents for allowed in PRINTS_ALLOWED):
            continue
        printing += [
            f"{name(path)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ]
    assert printing == []


def test_no_todo_is_without_an_owner() -> None:
    found = [
        f"{name(path)}:{number}"
        for path in OURS
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if "TODO" in OWNED_TODO.sub("", line) or "FIXME" in line
    ]
    assert found == []


def charters() -> dict[str, str]:
    made = {}
    for path in sorted(PACKAGE.glob("*/__init__.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert docstring, f"{name(path)} has no charter"
        made[path.parent.name] = docstring.splitlines()[0].rstrip(".")
    return made


def test_every_room_says_what_it_owns_and_does_not_know() -> None:
    for path in sorted(PACKAGE.glob("*/__init__.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        for heading in ("Owns", "Does not know", "Invariants"):
            assert f"\n{heading}" in docstring, f"{name(path)} does not say: {heading}"


def test_readme_lists_every_room_with_its_own_charter() -> None:
    rows = dict(ROOM_ROW.findall((ROOT / "README.md").read_text("utf-8")))
    listed = {room: charter.rstrip(".") for room, charter in rows.items()}
    assert listed == charters()


def error_classes() -> list[str]:
    tree = ast.parse((PACKAGE / "errors.py").read_text("utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name != "BridgeError"
    ]


@pytest.mark.parametrize("error", error_classes())
def test_every_error_is_raised_and_tested(error: str) -> None:
    word = re.compile(rf"\b{error}\b")
    called = re.compile(rf"\b{error}(?:\.\w+)?\(")
    package = [path for path in sources(PACKAGE) if path.name != "errors.py"]
    assert any(called.search(path.read_text("utf-8")) for path in package), "never made"
    tests = [path for path in sources(ROOT / "tests") if path != Path(__file__).resolve()]
    assert any(word.search(path.read_text("utf-8")) for path in tests), "in no test"


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in sources(ROOT / "tests") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_the_plugin_is_light() -> None:
    # Every pytest run beside an installed bridge loads it.
    spec = importlib.util.find_spec("acp_bridge.testing.plugin")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= {"pathlib", "typing", "pytest"}
