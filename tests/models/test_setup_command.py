"""``acp-bridge setup``: asks, checks, stores for one user alone; or stores nothing."""

import getpass
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from provider_server import (
    KEY,
    ProviderServer,
    messages_answer,
    provider_server,
    refusal,
    stream,
    text_block,
)

from acp_bridge.cli.main import PROVIDER_NAMES, main
from acp_bridge.models.credentials import credentials_file, read_keys, write_key
from acp_bridge.models.known import PROVIDERS

Setup = Callable[..., int]


class Terminal(io.StringIO):
    """Text that somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
        monkeypatch.delenv(provider.base_variable, raising=False)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Run the command; ``typed`` comes from a terminal, ``piped`` from a pipe."""

    def run(*flags: str, typed: str | None = None, piped: str = "") -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped) if typed is None else Terminal(typed))
        return main(["setup", "--home", str(tmp_path), *flags])

    return run


def type_key(monkeypatch: pytest.MonkeyPatch, key: str | BaseException) -> None:
    def ask(_prompt: str) -> str:
        if isinstance(key, BaseException):
            raise key
        return key

    monkeypatch.setattr(getpass, "getpass", ask)


def test_the_names_on_the_command_line_are_the_providers() -> None:
    assert tuple(PROVIDERS) == PROVIDER_NAMES


def test_a_key_from_a_pipe_is_stored(
    tmp_path: Path, setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup("--provider", "openai", piped=f"  {KEY}\n") == 0
    assert read_keys(tmp_path) == {"openai": KEY}
    told = capsys.readouterr()
    assert str(credentials_file(tmp_path)) in told.out
    assert KEY not in told.out + told.err
    assert told.err == ""


@pytest.mark.parametrize(
    ("typed", "provider"), [("\n", "deepseek"), ("9\n2\n", "anthropic"), ("OpenAI\n", "openai")]
)
def test_in_a_terminal_the_provider_is_asked_for(
    tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch, typed: str, provider: str
) -> None:
    type_key(monkeypatch, KEY)
    assert setup(typed=typed) == 0
    assert read_keys(tmp_path) == {provider: KEY}


def test_without_a_terminal_the_provider_must_be_named(
    tmp_path: Path, setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup(piped=f"{KEY}\n") == 1
    assert "--provider" in capsys.readouterr().err
    assert not credentials_file(tmp_path).exists()


@pytest.mark.parametrize("key", ["", "\n", "two words\n", "x" * 5000])
def test_what_is_no_key_is_not_stored(
    tmp_path: Path, setup: Setup, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert setup("--provider", "openai", piped=key) == 1
    told = capsys.readouterr().err
    assert "Nothing was stored" in told
    assert "words" not in told.replace("one word", "")
    assert not credentials_file(tmp_path).exists()


@pytest.mark.parametrize("end", [KeyboardInterrupt(), EOFError()])
def test_an_interrupt_stores_nothing(
    tmp_path: Path,
    setup: Setup,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: BaseException,
) -> None:
    write_key(tmp_path, "openai", "old")
    type_key(monkeypatch, end)
    assert setup("--provider", "openai", typed="") == 130
    assert read_keys(tmp_path) == {"openai": "old"}
    assert "nothing was stored" in capsys.readouterr().err


def test_a_variable_that_wins_is_mentioned(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    assert setup("--provider", "openai", piped=KEY) == 0
    assert "OPENAI_API_KEY is set here" in capsys.readouterr().out
    assert setup("--forget") == 0
    assert "OPENAI_API_KEY is set here" in capsys.readouterr().out


def test_keys_are_forgotten_and_forgetting_again_is_no_error(
    tmp_path: Path, setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    write_key(tmp_path, "openai", KEY)
    write_key(tmp_path, "deepseek", KEY)
    assert setup("--forget", "--provider", "openai") == 0
    assert read_keys(tmp_path) == {"deepseek": KEY}
    assert setup("--forget") == 0
    assert not credentials_file(tmp_path).exists()
    assert setup("--forget") == 0
    assert "There was no stored key." in capsys.readouterr().out


def test_a_config_that_cannot_be_read_is_an_error(
    tmp_path: Path, setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("=")
    assert setup("--provider", "openai", piped=KEY) == 1
    assert "config.toml" in capsys.readouterr().err


@contextmanager
def served(*answers: bytes) -> Iterator[ProviderServer]:
    """A provider in a thread of its own: the command runs an event loop itself."""
    ready, over = threading.Event(), threading.Event()
    found: list[ProviderServer] = []

    async def serve() -> None:
        async with provider_server() as server:
            for one in answers:
                server.then(one)
            found.append(server)
            ready.set()
            await anyio.to_thread.run_sync(over.wait)

    thread = threading.Thread(target=anyio.run, args=(serve,))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        over.set()
        thread.join(60)


def test_a_key_that_works_is_stored_after_a_check(
    tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(stream(messages_answer(text_block(0, "ok")))) as server:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", server.url)
        assert setup("--provider", "deepseek", "--check", piped=KEY) == 0
    assert server.requests[0].headers["x-api-key"] == KEY
    assert read_keys(tmp_path) == {"deepseek": KEY}


def test_a_key_that_is_refused_is_not_stored(
    tmp_path: Path,
    setup: Setup,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = {"error": {"type": "authentication_error", "message": f"bad key {KEY}"}}
    with served(refusal(401, error)) as server:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", server.url)
        assert setup("--provider", "deepseek", "--check", piped=KEY) == 1
    told = capsys.readouterr()
    assert "Nothing was stored: DeepSeek answered 401" in told.err
    assert KEY not in told.out + told.err
    assert not credentials_file(tmp_path).exists()


@pytest.mark.process
def test_what_is_typed_in_a_terminal_is_not_shown(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "acp_bridge", "setup", "--provider", "openai", "--home", tmp_path],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    told = b""
    while b"not shown" not in told:
        told += os.read(ours, 4096)
    os.write(ours, KEY.encode() + b"\n")
    try:
        while piece := os.read(ours, 4096):
            told += piece
    except OSError:
        pass  # how a terminal tells that its other end is closed
    assert process.wait(60) == 0
    os.close(ours)
    assert read_keys(tmp_path) == {"openai": KEY}
    assert KEY.encode() not in told
