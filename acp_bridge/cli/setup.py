"""``acp-bridge setup``: store a provider's key where only this user can read it, or forget it.

Also what an editor starts in a terminal to sign in: exit code 0 means that there is a key now.
"""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from acp_bridge.config import resolve
from acp_bridge.errors import BridgeError, ConfigError
from acp_bridge.models.credentials import credentials_file, forget_keys, key_problem, write_key
from acp_bridge.models.known import PROVIDERS, Provider

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def run(flags: Mapping[str, str | None], *, provider: str | None, forget: bool, check: bool) -> int:
    """Ask, check if wanted, store; the exit code. Nothing is stored unless it is 0."""
    try:
        settings, _ = resolve(flags, os.environ)
        if forget:
            return _forget(settings.home, provider)
        return _store(settings.home, provider, check=check)
    except BridgeError as error:
        sys.stderr.write(f"acp-bridge: {error.details}\n")
        return EXIT_FAILED
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nacp-bridge: nothing was stored. Run `acp-bridge setup` to try again.\n")
        return EXIT_INTERRUPTED


def _store(home: Path, name: str | None, *, check: bool) -> int:
    provider = _ask_provider() if name is None else PROVIDERS[name]
    key = _ask_key(provider)
    problem = key_problem(key)
    if problem is not None:
        raise ConfigError(f"{problem} Nothing was stored: run `acp-bridge setup` to try again.")
    if check:
        _say(f"Asking {provider.title} ...")
        found = _check(home, provider, key)
        if found is not None:
            raise ConfigError(f"Nothing was stored: {found}")
    write_key(home, provider.name, key)
    _say(f"Stored in {credentials_file(home)}, for you alone to read.")
    if os.environ.get(provider.key_variable):
        _say(f"Note: {provider.key_variable} is set here, and wins where it is set.")
    model = f"{provider.name}:{provider.models[0].name}"
    _say(f"New sessions can use it now. To choose it: --model {model}")
    return 0


def _forget(home: Path, name: str | None) -> int:
    whose = "" if name is None else f" for {PROVIDERS[name].title}"
    if forget_keys(home, name):
        _say(f"Forgotten: {credentials_file(home)} holds no key{whose} any more.")
    else:
        _say(f"There was no stored key{whose}.")
    for provider in PROVIDERS.values():
        if name in {None, provider.name} and os.environ.get(provider.key_variable):
            _say(f"Note: {provider.key_variable} is set here, and is still used.")
    return 0


def _ask_provider() -> Provider:
    if not sys.stdin.isatty():
        raise ConfigError(f"Say whose key comes on stdin: --provider {' or '.join(PROVIDERS)}.")
    providers = list(PROVIDERS.values())
    _say("Whose key do you want to store?")
    for number, provider in enumerate(providers, start=1):
        _say(f"  {number}  {provider.title}")
    while True:
        answer = input(f"1 to {len(providers)} [1]: ").strip().lower() or "1"
        for number, provider in enumerate(providers, start=1):
            if answer in {str(number), provider.name}:
                return provider
        _say("That is none of them.")


def _ask_key(provider: Provider) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{provider.title} API key (not shown): ").strip()
    return sys.stdin.readline().strip()


def _check(home: Path, provider: Provider, key: str) -> str | None:
    """Whether the key works, by the smallest request there is: None, or what is wrong."""
    import anyio

    from acp_bridge.models.catalog import Catalog
    from acp_bridge.models.check import key_failure

    environment = {**os.environ, provider.key_variable: key}
    catalog = Catalog(home=home, environment=environment)
    return anyio.run(key_failure, catalog, f"{provider.name}:{provider.models[0].name}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
