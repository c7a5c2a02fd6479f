"""What ``--help`` teaches: every flag is explained, and examples can be typed as they stand."""

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from acp_bridge.cli.main import _parser
from acp_bridge.config import SETTINGS, Settings

COMMANDS = """
    demo|setup|editor|doctor|config|record|lsp|runtime|worker
    |sessions|sessions list|sessions show|sessions fork|sessions verify|sessions export
    |sessions delete|events|events serve|events tail|events status
"""
WORDS = ["", *(" ".join(name.split()) for name in COMMANDS.split("|"))]
WIDTH_MAX = 100


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    """The parser that a command's own help is made by."""
    parser = _parser(words)
    for word in words:
        parser = subparsers(parser)[word]
    return parser


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def examples(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """The arguments of each command line that the help shows, without what follows from it."""
    for line in (parser.epilog or "").splitlines():
        found = re.match(r"  (?:\w+=\S+ )?acp-bridge (.+)", line)
        if found is not None:
            typed = re.split(r" {2,}| [|<>] ", found[1])[0]
            yield shlex.split(typed)


def test_every_command_is_looked_at() -> None:
    found = {""}
    for name in subparsers(_parser([])):
        below = subparsers(parser_of([name]))
        found |= {name, *(f"{name} {action}" for action in below)}
    assert found == set(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_help_explains_every_flag_and_shows_an_example(name: str) -> None:
    parser = parser_of(name.split())
    silent = [
        action.dest
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []
    assert "example" in (parser.epilog or "")
    assert max(map(len, parser.format_help().splitlines())) <= WIDTH_MAX


@pytest.mark.parametrize("name", WORDS)
def test_examples_can_be_typed_as_they_stand(name: str) -> None:
    parser = parser_of(name.split())
    found = list(examples(parser))
    assert found or name == "runtime", "that one is started by an SDK"
    for typed in found:
        _parser(typed).parse_args(typed)  # else it ends the program


@pytest.mark.parametrize("name", subparsers(_parser([])))
def test_usage_names_the_command_alone(name: str) -> None:
    assert parser_of([name]).format_usage().startswith(f"usage: acp-bridge {name} [")


def test_the_default_of_a_setting_is_said() -> None:
    shown = {action.dest: str(action.help) for action in _parser([])._actions}
    for setting in SETTINGS:
        default = Settings._field_defaults.get(setting.name)
        if isinstance(default, str | int) and default is not False:
            assert re.search(rf"\b{default}\b.*default|default {default}\b", shown[setting.name])


def test_a_recording_takes_what_it_uses_alone() -> None:
    flags = {action.dest for action in parser_of(["record"])._actions}
    assert flags == {"help", "id", "into", "trace", "runtime", "home"}
