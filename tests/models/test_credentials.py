"""The file of keys: for one user alone, whole or not there, and never in an error."""

import os
import stat
from pathlib import Path

import pytest

from acp_bridge.errors import ConfigError, StoreFailedError
from acp_bridge.models.credentials import (
    credentials_file,
    forget_keys,
    key_problem,
    read_keys,
    write_key,
)

KEY = 'sk-"quoted\\'


def test_a_key_is_read_back_by_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    assert read_keys(home) == {}
    old = os.umask(0)
    try:
        write_key(home, "deepseek", KEY)
        write_key(home, "openai", "b")
    finally:
        os.umask(old)
    assert read_keys(home) == {"deepseek": KEY, "openai": "b"}
    assert stat.S_IMODE(credentials_file(home).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == ["credentials.toml"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_open_to_others_is_refused_until_it_is_written_again(
    tmp_path: Path, mode: int
) -> None:
    write_key(tmp_path, "deepseek", KEY)
    file = credentials_file(tmp_path)
    file.chmod(mode)
    with pytest.raises(ConfigError) as error:
        read_keys(tmp_path)
    assert f"chmod 600 {file}" in error.value.details
    assert KEY not in error.value.details
    write_key(tmp_path, "openai", "b")
    assert read_keys(tmp_path) == {"deepseek": KEY, "openai": "b"}


@pytest.mark.parametrize(
    "text", [b"deepseek = sk-secret", b"\xff", b"[deepseek]\nkey = 1", b"a = 1"]
)
def test_a_file_that_is_not_ours_is_refused_unshown(tmp_path: Path, text: bytes) -> None:
    file = credentials_file(tmp_path)
    file.write_bytes(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        read_keys(tmp_path)
    assert "sk-secret" not in str(error.value)
    assert error.value.__cause__ is None
    assert forget_keys(tmp_path)
    assert not file.exists()


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_key(tmp_path, "deepseek", KEY)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailedError, match="No space left"):
        write_key(tmp_path, "deepseek", "other")
    assert read_keys(tmp_path) == {"deepseek": KEY}
    assert [path.name for path in tmp_path.iterdir()] == ["credentials.toml"]


def test_a_home_that_is_a_file_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.touch()
    with pytest.raises(StoreFailedError):
        write_key(home, "deepseek", KEY)


def test_keys_are_forgotten_one_or_all(tmp_path: Path) -> None:
    assert not forget_keys(tmp_path)
    for provider in ("deepseek", "openai", "anthropic"):
        write_key(tmp_path, provider, KEY)
    assert not forget_keys(tmp_path, "nobody")
    assert forget_keys(tmp_path, "openai")
    assert read_keys(tmp_path) == {"anthropic": KEY, "deepseek": KEY}
    assert forget_keys(tmp_path)
    assert not credentials_file(tmp_path).exists()
    write_key(tmp_path, "openai", KEY)
    assert forget_keys(tmp_path, "openai")
    assert not credentials_file(tmp_path).exists()


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "ü", "x" * 4097, "\x7f"])
def test_what_cannot_be_a_key(key: str) -> None:
    problem = key_problem(key)
    assert problem is not None
    assert not key or key not in problem


def test_what_can_be_a_key() -> None:
    assert key_problem("sk-ant-api03-_-.~+/=") is None
