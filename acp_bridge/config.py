"""Settings, and where each value comes from: flag, environment, config file, default.

Imports nothing heavy: the command line reads this before it answers anybody.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from acp_bridge.errors import ConfigError

MODES: Final = ("ask", "accept-edits", "plan", "full")
"""Permission modes, the most careful first that lets work be done; see README."""

RUNTIMES: Final = ("embedded", "dsh")

EXECUTIONS: Final = ("local", "client")
"""Where commands run: in a process of ours, or in a terminal of the client and nowhere else."""

SUBAGENTS: Final = ("auto", "native", "fallback")
"""How clients see subagents: as what each says it takes, or in one form whatever it says."""

BACKGROUNDS: Final = ("hold", "detach")
"""Whether a prompt stays open until the subagents that work for it have settled."""


DELEGATIONS: Final = ("local", "remote")
"""Where a session's subagents work: in this process, or with workers of the events home."""

INSTRUCTIONS: Final = ("auto", "off")
"""Whether AGENTS.md files count."""

COMPACTIONS: Final = ("auto", "off")
"""Whether a session is compacted by itself near its window's end, or by ``/compact`` alone."""


class ModelSettings(NamedTuple):
    """What the user says of a model: sizes in tokens; ``None`` leaves what is known of it."""

    context_window: int | None = None
    output_tokens_max: int | None = None
    efforts: tuple[str, ...] | None = None
    takes_images: bool | None = None


class McpSettings(NamedTuple):
    """What the user says of an MCP server: how it is reached, and how long a call may take.

    Neither ``command`` nor ``url``: it only speaks of a client's server of that name.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    url: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    type: str | None = None
    timeout_s: float | None = None


class Settings(NamedTuple):
    """What is in force. Paths are absolute; ``None`` means "not set".

    ``models`` is what config.toml says of models, by ``provider:name``, and ``mcp_servers`` what
    it says of MCP servers, by name; they have no flags.
    ``events_token`` is a secret.
    """

    home: Path
    model: str | None = None
    mode: str = "ask"
    runtime: str = "embedded"
    execution: str = "local"
    compact: str = "auto"
    instructions: str = "auto"
    subagents: str = "auto"
    background: str = "hold"
    subagent_depth: int = 3
    subagent_limit: int = 16
    delegation: str = "local"
    events: str | None = None
    events_token: str | None = None
    dsh: str | None = None
    trace: Path | None = None
    record_model_requests: Path | None = None
    log_stderr: bool = False
    models: Mapping[str, ModelSettings] = MappingProxyType({})
    mcp_servers: Mapping[str, McpSettings] = MappingProxyType({})


class Setting(NamedTuple):
    """One setting: its names and what it means. ``in_file``: whether config.toml may set it.

    ``is_count``: it is a whole number from 0. ``is_secret``: it has no flag, since a process list
    shows flags, and is never shown.
    """

    name: str
    variable: str
    help: str
    in_file: bool = True
    choices: tuple[str, ...] = ()
    is_count: bool = False
    is_secret: bool = False


SETTINGS: Final = (
    Setting(
        "home",
        "ACP_BRIDGE_HOME",
        "folder of sessions, settings and logs; the doctor says where it is",
        in_file=False,
    ),
    Setting(
        "model",
        "ACP_BRIDGE_MODEL",
        "provider:name, demo (no key needed) or scripted:FILE; default: the first that has a key",
    ),
    Setting(
        "mode",
        "ACP_BRIDGE_MODE",
        "what a new session may do unasked: ask before edits and commands (the default),"
        " accept-edits, plan (changes nothing), or full (never asks)",
        choices=MODES,
    ),
    Setting(
        "runtime",
        "ACP_BRIDGE_RUNTIME",
        "what runs sessions: our own harness (embedded, the default), or DeepSeek Harness",
        choices=RUNTIMES,
    ),
    Setting(
        "execution",
        "ACP_BRIDGE_EXECUTION",
        "where commands run: here (local, the default), or in terminals of the editor",
        choices=EXECUTIONS,
    ),
    Setting(
        "compact",
        "ACP_BRIDGE_COMPACT",
        "whether a conversation is summarized when the model's window fills up (auto, the default);"
        " off: by /compact alone",
        choices=COMPACTIONS,
    ),
    Setting(
        "instructions",
        "ACP_BRIDGE_INSTRUCTIONS",
        "whether the model is given what AGENTS.md files say (auto, the default)",
        choices=INSTRUCTIONS,
    ),
    Setting(
        "subagents",
        "ACP_BRIDGE_SUBAGENTS",
        "how the editor is shown subagents: as sessions of their own (native), as tool calls"
        " (fallback), or as what it says it takes (auto, the default)",
        choices=SUBAGENTS,
    ),
    Setting(
        "background",
        "ACP_BRIDGE_BACKGROUND",
        "whether a prompt stays open while subagents work for it (hold, the default)",
        choices=BACKGROUNDS,
    ),
    Setting(
        "subagent_depth",
        "ACP_BRIDGE_SUBAGENT_DEPTH",
        "how deep subagents may have subagents; 0: none at all; default 3",
        is_count=True,
    ),
    Setting(
        "subagent_limit",
        "ACP_BRIDGE_SUBAGENT_LIMIT",
        "how many subagents of one session may work at once; default 16",
        is_count=True,
    ),
    Setting(
        "delegation",
        "ACP_BRIDGE_DELEGATION",
        "where subagents work: here (local, the default), or with `acp-bridge worker` on other"
        " machines (remote; needs --events)",
        choices=DELEGATIONS,
    ),
    Setting(
        "events", "ACP_BRIDGE_EVENTS", "address of `acp-bridge events serve`, http://HOST:PORT"
    ),
    Setting(
        "events_token",
        "ACP_BRIDGE_EVENTS_TOKEN",
        "the event service's token",
        is_secret=True,
    ),
    Setting(
        "dsh",
        "ACP_BRIDGE_DSH",
        "DeepSeek Harness' command, for --runtime dsh; default: dsh on PATH",
    ),
    Setting(
        "trace",
        "ACP_BRIDGE_TRACE",
        "note both wire directions in this file, for a bug report; secrets are redacted",
    ),
    Setting(
        "record_model_requests",
        "ACP_BRIDGE_RECORD_MODEL_REQUESTS",
        "file for what the model is sent, one JSON line a call",
        in_file=False,
    ),
    Setting("log_stderr", "ACP_BRIDGE_LOG_STDERR", "log to stderr too", in_file=False),
)
"""Every setting there is, in the order in which people are shown them."""

COUNT_MAX: Final = 9999
"""The largest number that a setting can be: more would be a slip of the hand."""

_COUNT = re.compile(r"[0-9]{1,4}")
_TRUE = frozenset({"1", "true", "yes", "on"})


class Sourced(NamedTuple):
    """A value as text, and where it comes from."""

    value: str | None
    source: str


def resolve(
    flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> tuple[Settings, dict[str, Sourced]]:
    """The settings in force and the source of each.

    Raises:
        ConfigError: a value cannot be used; says which and from where.
    """
    home = _from_outside(SETTINGS[0], flags, environment) or Sourced(_default_home(), "default")
    assert home.value is not None
    file = Path(home.value).expanduser() / "config.toml"
    stored, models, mcp_servers = _read_file(file)
    found = {"home": home}
    for setting in SETTINGS[1:]:
        sourced = _from_outside(setting, flags, environment)
        if sourced is None and setting.name in stored:
            sourced = Sourced(stored[setting.name], str(file))
        found[setting.name] = sourced or Sourced(_DEFAULTS.get(setting.name), "default")
        _check(setting, found[setting.name])
    return _settings(found)._replace(models=models, mcp_servers=mcp_servers), found


_DEFAULTS = {
    "mode": "ask",
    "runtime": "embedded",
    "execution": "local",
    "compact": "auto",
    "instructions": "auto",
    "subagents": "auto",
    "background": "hold",
    "subagent_depth": "3",
    "subagent_limit": "16",
    "delegation": "local",
    "log_stderr": "false",
}


def _from_outside(
    setting: Setting, flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> Sourced | None:
    flag = None if setting.is_secret else flags.get(setting.name)
    if flag is not None:
        return Sourced(flag, f"--{setting.name.replace('_', '-')}")
    variable = environment.get(setting.variable)
    if variable:
        return Sourced(variable, setting.variable)
    return None


def _read_file(
    file: Path,
) -> tuple[dict[str, str], dict[str, ModelSettings], dict[str, McpSettings]]:
    """The settings that a config file holds, and what it says of models and of MCP servers."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}, {}, {}
    except OSError as fault:
        why = (fault.strerror or type(fault).__name__).lower()
        raise ConfigError(f"{file} cannot be read: {why}.") from fault
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{file} cannot be read: it is not UTF-8.") from fault
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{file} cannot be read as TOML: {fault}.") from fault
    models = _read_models(table.pop("models", {}), file)
    servers = _read_servers(table.pop("mcp_servers", {}), file)
    known = {setting.name: setting for setting in SETTINGS if setting.in_file}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(
                f"{file} sets {name!r}, which is no setting: use {', '.join(sorted(known))}, "
                "or the tables models and mcp_servers."
            )
        if known[name].is_count:
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{file} must set {name!r} to a whole number.")
            table[name] = str(value)
        elif not isinstance(value, str):
            raise ConfigError(f"{file} must set {name!r} to a string in quotes.")
    return table, models, servers


def _read_models(tables: object, file: Path) -> dict[str, ModelSettings]:
    """``[models."provider:name"]`` tables, checked."""
    models = {}
    if not isinstance(tables, dict):
        raise _no_tables("models", "provider:name", file)
    for model_id, values in tables.items():
        _check_values(values, _MODEL_VALUES, "a model", f'{file}, [models."{model_id}"]')
        efforts = values.get("efforts")
        found = values if efforts is None else {**values, "efforts": tuple(efforts)}
        models[model_id] = ModelSettings(**found)
    return models


def _read_servers(tables: object, file: Path) -> dict[str, McpSettings]:
    """``[mcp_servers.NAME]`` tables, checked."""
    servers = {}
    if not isinstance(tables, dict):
        raise _no_tables("mcp_servers", "NAME", file)
    for name, values in tables.items():
        where = f'{file}, [mcp_servers."{name}"]'
        _check_values(values, _SERVER_VALUES, "an MCP server", where)
        if "command" in values and "url" in values:
            raise ConfigError(f"{where} must set 'command' or 'url', not both.")
        for value, needs in _SERVER_NEEDS.items():
            if value in values and needs not in values:
                raise ConfigError(f"{where} sets {value!r}, which needs {needs!r}.")
        servers[name] = McpSettings(**{**values, "args": tuple(values.get("args", ()))})
    return servers


def _no_tables(kind: str, key: str, file: Path) -> ConfigError:
    return ConfigError(f'{file} must set {kind} in tables: [{kind}."{key}"].')


def _check_values(values: object, known: Mapping[str, str], what: str, where: str) -> None:
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a table.")
    for name, value in values.items():
        wanted = known.get(name)
        if wanted is None:
            raise ConfigError(
                f"{where} sets {name!r}, which is no setting of {what}: "
                f"use {', '.join(sorted(known))}."
            )
        if not _is(value, wanted):
            raise ConfigError(f"{where} must set {name!r} to {wanted}.")


_SERVER_VALUES = {
    "command": "a string",
    "args": "a list of strings in quotes",
    "env": "a table of strings",
    "url": "a string",
    "headers": "a table of strings",
    "type": "http or sse",
    "timeout_s": "a number of seconds above 0",
}

_SERVER_NEEDS = {"args": "command", "env": "command", "headers": "url", "type": "url"}

_MODEL_VALUES = {
    "context_window": "a whole number from 1",
    "output_tokens_max": "a whole number from 1",
    "efforts": "a list of strings",
    "takes_images": "true or false",
}


def _is(value: object, wanted: str) -> bool:
    match wanted:
        case "a whole number from 1":
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case "a number of seconds above 0":
            return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        case "a string":
            return isinstance(value, str) and bool(value)
        case "http or sse":
            return value in ("http", "sse")
        case "a list of strings":
            return isinstance(value, list) and all(isinstance(one, str) and one for one in value)
        case "a list of strings in quotes":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "a table of strings":
            return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        case _:
            return isinstance(value, bool)


def _check(setting: Setting, sourced: Sourced) -> None:
    if setting.choices and sourced.value not in setting.choices:
        choices = " or ".join(setting.choices)
        raise ConfigError(
            f"{setting.name} is {sourced.value!r} (from {sourced.source}): it must be {choices}."
        )
    if setting.is_count and not _COUNT.fullmatch(sourced.value or ""):
        raise ConfigError(
            f"{setting.name} is {sourced.value!r:.100} (from {sourced.source}): it must be a whole"
            f" number from 0 to {COUNT_MAX}."
        )


def _settings(found: Mapping[str, Sourced]) -> Settings:
    def text(name: str) -> str | None:
        return found[name].value

    def path(name: str) -> Path | None:
        value = text(name)
        return None if value is None else Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100  # no links resolved

    home = path("home")
    assert home is not None
    return Settings(
        home=home,
        model=text("model"),
        mode=text("mode") or "ask",
        runtime=text("runtime") or "embedded",
        execution=text("execution") or "local",
        compact=text("compact") or "auto",
        instructions=text("instructions") or "auto",
        subagents=text("subagents") or "auto",
        background=text("background") or "hold",
        subagent_depth=int(text("subagent_depth") or 0),
        subagent_limit=int(text("subagent_limit") or 0),
        delegation=text("delegation") or "local",
        events=text("events"),
        events_token=text("events_token"),
        dsh=text("dsh"),
        trace=path("trace"),
        record_model_requests=path("record_model_requests"),
        log_stderr=(text("log_stderr") or "").lower() in _TRUE,
    )


def _default_home() -> str:
    # Late: only needed when nobody names a home, and slow to import.
    import platformdirs

    return platformdirs.user_data_dir("acp-bridge", appauthor=False)
