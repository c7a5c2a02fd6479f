"""Keys of providers: a file that only its owner may read, written whole or not at all.

``<home>/credentials.toml`` holds one line a provider (``deepseek = "…"``). A key is never logged,
traced or stored anywhere else, and no error shows one.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp_bridge.errors import ConfigError, StoreFailedError

FILE_NAME: Final = "credentials.toml"
KEY_CHARS_MAX: Final = 4_096
"""More is no key but a file that was pasted by mistake."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def credentials_file(home: Path) -> Path:
    """Where the keys of a home are."""
    return home / FILE_NAME


def read_keys(home: Path) -> dict[str, str]:
    """The stored keys by provider; empty without a file.

    Raises:
        ConfigError: others may read the file, or it is not as `write_key` makes it; says what to
            do.
    """
    return _read(credentials_file(home), private=True)


def write_key(home: Path, provider: str, key: str) -> None:
    """Store a provider's key beside the others.

    Raises:
        ConfigError: the file that is there cannot be read.
        StoreFailedError: the disk refused; the file is as it was.
    """
    file = credentials_file(home)
    # What others could read is made private by this; the other keys are kept as they are.
    _write(file, {**_read(file, private=False), provider: key})


def forget_keys(home: Path, provider: str | None = None) -> bool:
    """Remove a provider's stored key, or all of them; whether there was one.

    Raises:
        ConfigError: the file that is there cannot be read, and one key of it was to go.
        StoreFailedError: the disk refused.
    """
    file = credentials_file(home)
    keys = {} if provider is None else _read(file, private=False)
    if provider is not None and keys.pop(provider, None) is None:
        return False
    if keys:
        _write(file, keys)
        return True
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as fault:
        raise StoreFailedError(f"{file} cannot be removed: {fault.strerror}.") from fault
    return True


def key_problem(key: str) -> str | None:
    """Why a text cannot be a key, as a sentence that does not show it; None if it can."""
    if not key:
        return "The key is empty."
    if len(key) > KEY_CHARS_MAX:
        return "That is too long for a key."
    if not (key.isascii() and key.isprintable()) or " " in key:
        return "A key is one word of plain letters, digits and signs: copy it again."
    return None


def _read(file: Path, *, private: bool) -> dict[str, str]:
    try:
        with file.open("rb") as stream:
            if private and os.fstat(stream.fileno()).st_mode & _OTHERS:
                raise ConfigError(
                    f"{file} may be read by others, so no key is taken from it: run "
                    f"`chmod 600 {file}`, and if others use this machine, get new keys."
                )
            text = stream.read().decode("utf-8")
        import tomllib  # 4 ms, for a file that many do not have

        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError):  # a disk's, a decoder's or the parser's
        # Not the parser's words: they may quote the line, and with it a key.
        raise ConfigError(
            f"{file} cannot be read: remove it and run `acp-bridge setup` again."
        ) from None
    if not all(isinstance(key, str) for key in table.values()):
        raise ConfigError(f'{file} must hold lines such as: deepseek = "key".')
    return table


def _write(file: Path, keys: Mapping[str, str]) -> None:
    # A JSON string of a key's letters is a TOML string too.
    text = "".join(f"{provider} = {json.dumps(key)}\n" for provider, key in sorted(keys.items()))
    fresh = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)
    except OSError as fault:
        with suppress(OSError):  # what is left over, if anything; the first fault is the one
            fresh.unlink(missing_ok=True)
        raise StoreFailedError(f"{file} cannot be written: {fault.strerror}.") from fault
