"""registry/acp-bridge is what the public ACP registry takes: its rules, as its checks apply them.

The folder is copied there as it is. The checks (fields, versions, icon, and that the agent can be
signed in to) were read in the registry's repository, of 2026-02-07; the words here are ours. That
the package can be had from the index is checked there alone.
"""

import json
import os
import re
import select
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from acp_bridge import __version__

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "registry" / "acp-bridge"
AGENT: dict[str, Any] = json.loads((FOLDER / "agent.json").read_text("utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

AUTH_TIMEOUT_S = 60.0


def test_the_fields_are_those_that_it_wants() -> None:
    assert {"id", "name", "version", "description", "distribution"} <= AGENT.keys()
    known = {"repository", "authors", "license", "icon"}
    assert AGENT.keys() <= {"id", "name", "version", "description", "distribution"} | known
    assert re.fullmatch(r"[a-z][a-z0-9-]*", AGENT["id"])
    assert AGENT["id"] == FOLDER.name
    assert AGENT["name"]
    assert AGENT["description"]
    assert AGENT["license"] == PROJECT["license"]


def test_its_version_is_the_packages_in_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__), "it takes no pre-releases"
    assert AGENT["version"] == __version__


def test_it_is_had_as_exactly_that_version_of_the_package() -> None:
    assert AGENT["distribution"].keys() == {"uvx"}
    uvx = AGENT["distribution"]["uvx"]
    assert uvx.keys() <= {"package", "args", "env"}
    # No extra: the registry asks the index for what stands before the version, as it stands.
    assert uvx["package"] == f"{PROJECT['name']}=={__version__}"


def test_the_package_has_a_script_of_its_own_name_which_uvx_starts() -> None:
    scripts = {one.name: one.value for one in entry_points(group="console_scripts")}
    assert scripts[PROJECT["name"]] == scripts["acp-bridge"]


def test_the_icon_is_square_small_and_takes_the_editors_colour() -> None:
    text = (FOLDER / "icon.svg").read_text("utf-8")
    icon = ET.fromstring(text)
    assert (icon.get("width"), icon.get("height")) == ("16", "16")
    assert icon.get("viewBox") == "0 0 16 16"
    colours = {
        value
        for element in icon.iter()
        for name, value in element.attrib.items()
        if name in {"fill", "stroke"}
    }
    assert colours == {"none", "currentColor"}
    assert not re.search(r"\bstyle\s*=|<style|<image|url\(", text)


def command() -> list[str]:
    """What the registry starts, once uvx has installed the package."""
    uvx = AGENT["distribution"]["uvx"]
    script = uvx["package"].partition("=")[0]
    return [str(Path(sys.executable).with_name(script)), *uvx.get("args", [])]


def clean(folder: Path) -> dict[str, str]:
    """A machine on which nobody has set up anything: R119."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY") and not name.startswith(("ACP_BRIDGE_", "XDG_"))
    }
    return {**kept, "HOME": str(folder), "TERM": "dumb"}


def first_answer(folder: Path, capabilities: dict[str, Any]) -> dict[str, Any]:
    """The first line on stdout after ``initialize``, read as the registry reads it."""
    process = subprocess.Popen(
        command(),
        cwd=folder,
        env=clean(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        params = {
            "protocolVersion": 1,
            "clientInfo": {"name": "a validator", "version": "1.0.0"},
            "clientCapabilities": capabilities,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], AUTH_TIMEOUT_S)
        assert ready, "it never answered"
        answer: dict[str, Any] = json.loads(process.stdout.readline())
    finally:
        process.terminate()
        _, said = process.communicate(timeout=AUTH_TIMEOUT_S)
    assert said == b""
    return answer


OFFERED = {"terminal": True, "fs": {"readTextFile": True, "writeTextFile": True}}


@pytest.mark.process
@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        (
            OFFERED | {"_meta": {"terminal_output": True, "terminal-auth": True}},
            ["agent", "terminal"],
        ),
        (OFFERED | {"auth": {"terminal": True}}, ["agent", "terminal"]),
        (OFFERED, ["agent"]),
        ({}, ["agent"]),
    ],
    ids=["validator", "newer", "no terminal sign-in", "nothing"],
)
def test_without_a_key_it_says_how_to_sign_in(
    capabilities: dict[str, Any], kinds: list[str], tmp_path: Path
) -> None:
    answer = first_answer(tmp_path, capabilities)
    methods = answer["result"]["authMethods"]
    # The registry takes a method for one of the agent's own if it has no type.
    assert [method.get("type", "agent") for method in methods] == kinds
    assert all(method["id"] and method["name"] for method in methods)
    for method in methods:
        if method.get("type") == "terminal":
            # Its words are added to ours, or stand in their place: with no words it is the same.
            assert AGENT["distribution"]["uvx"].get("args", []) == []
            assert method["args"] == ["setup"]


@pytest.mark.process
def test_it_starts_with_nothing_to_read_and_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        command(),
        cwd=tmp_path,
        env=clean(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=AUTH_TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
