"""How it starts in odd places: bad settings, bad homes, bare environments (R001, R119).

What cannot be used is one sentence on stderr and exit code 2; everything else starts, and says
nothing on stderr.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from process_rig import BRIDGE, WAIT_S, Place, bash_call, prompt_params

pytestmark = pytest.mark.process

SECRET = "s3cr3t-value-of-a-key"
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


def refused(place: Place, *arguments: str, env: dict[str, str] | None = None) -> str:
    """What it says before exit code 2: one sentence; on stdout is nothing but ACP."""
    done = subprocess.run(
        [*BRIDGE, *arguments],
        input=HELLO,
        capture_output=True,
        env=place.env if env is None else env,
        timeout=WAIT_S,
        check=False,
    )
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert "[Errno" not in said
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())
    return said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--runtime", "dsh", "--model", "demo"], "deepseek:NAME"),
        (["--runtime", "dsh", "--execution", "client"], "--execution"),
        (["--trace", "/no/such/folder/x.jsonl"], "/no/such/folder/x.jsonl"),
        (["--trace", "/"], "trace file"),
        (["--home", "/proc/nothing"], "/proc/nothing"),
        (["--home", "/dev/null"], "/dev/null"),
    ],
)
def test_a_bad_setting_is_one_sentence_and_exit_code_2(
    place: Place, arguments: list[str], named: str
) -> None:
    said = refused(place, "--home", str(place.home), *arguments)
    assert said.startswith("acp-bridge: ")
    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["nonsense"],
        ["--home"],
        ["demo", "--x"],
        ["--mode", "x"],
        ["--runtime", "x"],
        ["--execution", "x"],
    ],
)
def test_a_bad_command_line_names_what_is_wrong_and_how_to_learn(
    place: Place, arguments: list[str]
) -> None:
    said = refused(place, *arguments)
    assert "usage: acp-bridge" in said
    assert said.splitlines()[-1].startswith("acp-bridge")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"model = ", "TOML"),
        (b"\xff\xfe", "UTF-8"),
        (b"moddel = 'demo'", "moddel"),
        (b"model = 3", "model"),
        (b"mode = 'yolo'", "yolo"),
        (b"execution = 'cloud'", "cloud"),
        (b"[model]\nname = 'x'", "model"),
    ],
)
def test_a_bad_config_file_is_one_sentence_that_names_it(
    place: Place, content: bytes, named: str
) -> None:
    place.home.mkdir()
    (place.home / "config.toml").write_bytes(content)
    said = refused(place, "--home", str(place.home))
    assert str(place.home / "config.toml") in said
    assert named in said
    assert said.count("\n") == 1
    config = subprocess.run(
        [*BRIDGE, "--home", str(place.home), "config"], capture_output=True, check=False
    )
    assert (config.returncode, config.stderr.decode()) == (2, said)


def test_a_closed_stderr_takes_the_sentence_but_not_the_exit_code(place: Place) -> None:
    for flags, code in ((["--trace", "/"], 2), ([], 0)):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" 2>&-', "sh", *place.command(*flags)],
            input=HELLO,
            capture_output=True,
            env=place.env,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, b"")


def test_a_home_that_is_a_file_or_a_folder_as_config_file_is_one_sentence(place: Place) -> None:
    place.home.write_text("I am a file")
    assert f"{place.home} cannot be used: it is no folder" in refused(
        place, "--home", str(place.home)
    )
    place.home.unlink()
    (place.home / "config.toml").mkdir(parents=True)
    assert "config.toml cannot be read: is a directory" in refused(place, "--home", str(place.home))


def test_a_home_that_is_read_only_is_one_sentence(place: Place) -> None:
    place.home.mkdir()
    if os.geteuid() != 0:
        place.home.chmod(0o500)
        said = refused(place, "--home", str(place.home))
    else:  # root writes everywhere but in a read-only file system
        command = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(place.home)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"root may not mount here: {mounted.stderr.strip()}")
        try:
            said = refused(place, "--home", str(place.home))
        finally:
            subprocess.run(["umount", "-l", str(place.home)], check=True)
    assert f"The folder {place.home} cannot be used" in said
    assert "--home" in said


@pytest.mark.parametrize("variables", ["none", "no home", "no language", "latin"])
def test_it_serves_in_a_bare_environment(place: Place, variables: str) -> None:
    place.script([{"text": "Grüße ☃"}, bash_call("echo Grüße; pwd")], [{"text": "é"}])
    mark = {name: value for name, value in place.env.items() if name.startswith("ACP_BRIDGE_TEST")}
    env = {
        "none": mark,
        "no home": {name: value for name, value in place.env.items() if name != "HOME"},
        "no language": {
            name: value
            for name, value in place.env.items()
            if name not in {"LANG", "LC_ALL", "LC_CTYPE"}
        },
        "latin": {**place.env, "LC_ALL": "de_DE.ISO-8859-1", "PYTHONIOENCODING": "latin-1"},
    }[variables]
    work = place.root / "Ordner mit Wörtern ☃"
    work.mkdir()
    with place.bridge(env=env) as bridge:
        bridge.hello()
        session = bridge.new(work)
        prompt = bridge.prompt(session, "Grüße")
        bridge.allow(bridge.asked())
        assert bridge.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        assert bridge.text(session) == "Grüße ☃é"
        done = bridge.update("tool_call_update", status="completed")
        assert f"Grüße\n{work}\n" in done["params"]["update"]["content"][0]["content"]["text"]
        listed = bridge.result("session/list", cwd=str(work))["sessions"]
        assert [one["title"] for one in listed] == ["Grüße"]


def test_the_default_home_needs_no_home_variable(place: Place) -> None:
    env = {name: value for name, value in place.env.items() if not name.startswith("XDG")}
    env["XDG_DATA_HOME"] = str(place.root / "data")
    del env["HOME"]
    done = subprocess.run(
        [*BRIDGE, "config"], capture_output=True, text=True, env=env, check=True, timeout=WAIT_S
    )
    assert str(place.root / "data" / "acp-bridge") in done.stdout


def test_the_first_answer_needs_no_key_model_or_home_as_r119_needs(place: Place) -> None:
    done = subprocess.run(
        BRIDGE, input=HELLO, capture_output=True, env=place.env, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    (line,) = done.stdout.splitlines()
    assert line.startswith(b'{"jsonrpc"')
    assert json.loads(line)["result"]["authMethods"]


def test_stdout_may_be_a_file_and_stdin_too(place: Place) -> None:
    place.script([{"text": "Said."}])
    script, log = place.root / "script", place.root / "log"
    new = {"jsonrpc": "2.0", "id": 2, "method": "session/new"}
    new_line = json.dumps({**new, "params": {"cwd": str(place.work), "mcpServers": []}})
    script.write_bytes(HELLO + new_line.encode() + b"\n")
    with script.open("rb") as stdin, log.open("wb") as stdout:
        done = subprocess.run(
            place.command(),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=place.env,
            timeout=WAIT_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    messages = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert [message["id"] for message in messages if "id" in message] == [1, 2]


def test_a_whole_turn_may_go_into_a_file(place: Place) -> None:
    place.script([{"text": "word ", "repeat": 5000}])
    log = place.root / "log"
    with (
        log.open("wb") as stdout,
        subprocess.Popen(
            place.command(), stdin=subprocess.PIPE, stdout=stdout, env=place.env
        ) as process,
    ):
        assert process.stdin is not None
        new = {"cwd": str(place.work), "mcpServers": []}
        request = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": new}
        process.stdin.write(HELLO + json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        while b'"sessionId"' not in log.read_bytes():
            assert process.poll() is None
        session = json.loads(log.read_bytes().splitlines()[1])["result"]["sessionId"]
        prompt = {"id": 3, "method": "session/prompt", "params": prompt_params(session)}
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **prompt}).encode() + b"\n")
        process.stdin.flush()
        while b'"stopReason"' not in log.read_bytes():
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    text = "".join(
        message["params"]["update"]["content"]["text"]
        for message in map(json.loads, log.read_bytes().splitlines())
        if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    )
    assert text == "word " * 5000


def test_secrets_are_never_in_logs_or_trace(place: Place) -> None:
    place.script(
        [
            {"text": "I look."},
            bash_call('echo "$FOO_API_KEY"; echo "token $FOO_API_KEY" >&2'),
        ],
        [{"error": {"status": 401, "message": f"bad key {SECRET}"}}],
    )
    trace = place.root / "trace.jsonl"
    env = {**place.env, "FOO_API_KEY": SECRET}
    old = os.umask(0)
    try:
        with place.bridge("--trace", str(trace), env=env) as bridge:
            bridge.hello()
            server = {
                "name": "x",
                "command": "/bin/x",
                "args": [],
                "env": [{"name": "PLAIN", "value": "another-hidden-one"}],
            }
            session = bridge.result("session/new", cwd=str(place.work), mcpServers=[server])
            prompt = bridge.prompt(session["sessionId"], f"my key is {SECRET}")
            bridge.allow(bridge.asked())
            assert "error" in bridge.answer_to(prompt)
            bridge.call("no/such", value=SECRET)
            bridge.call(f"no/{SECRET}")
    finally:
        os.umask(old)
    assert SECRET not in trace.read_text()
    assert "another-hidden-one" not in trace.read_text()
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    for log in (place.home / "logs").iterdir():
        assert SECRET not in log.read_text()
        assert "another-hidden-one" not in log.read_text()
    folders = [place.home, *(path for path in place.home.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}, folders


def temporary(place: Place) -> dict[str, str]:
    folder = place.root / "tmp"
    folder.mkdir(exist_ok=True)
    return {**place.env, "TMPDIR": str(folder)}


def test_the_demo_works_in_a_folder_that_it_may_not_write_and_leaves_nothing(place: Place) -> None:
    env = temporary(place)
    locked = Path("/proc") if sys.platform == "linux" else place.work
    done = subprocess.run(
        [*BRIDGE, "demo"],
        capture_output=True,
        text=True,
        env=env,
        cwd=locked,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "That was a real conversation" in done.stdout
    assert list((place.root / "tmp").iterdir()) == []
    assert place.processes() == {}
    assert not (place.root / ".local").exists()


def test_the_demo_survives_a_reader_that_has_seen_enough(place: Place) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" demo | head -1', "bash", *BRIDGE],
        capture_output=True,
        text=True,
        env=temporary(place),
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Connected to")
    assert list((place.root / "tmp").iterdir()) == []
    assert place.processes() == {}


@pytest.mark.parametrize("number", [2, 15, 1])
def test_the_demo_may_be_interrupted(place: Place, number: int) -> None:
    with subprocess.Popen(
        [*BRIDGE, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=temporary(place)
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert demo.stdout.readline().startswith(b"Connected")
        demo.send_signal(number)
        assert demo.wait(WAIT_S) in {128 + number, -number}
        assert b"Traceback" not in demo.stderr.read()
    assert place.processes() == {}
    assert list((place.root / "tmp").iterdir()) == []


def test_the_demo_says_in_one_sentence_that_there_is_no_room(place: Place) -> None:
    env = {**place.env, "TMPDIR": "/proc"}
    done = subprocess.run(
        [*BRIDGE, "demo"],
        capture_output=True,
        text=True,
        env=env,
        cwd="/proc",
        timeout=60,
        check=False,
    )
    if done.returncode == 0:  # it found another folder, as tempfile does
        return
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_demo_says_in_one_sentence_that_its_agent_went_away(place: Place) -> None:
    env = {**temporary(place), "ACP_BRIDGE_RUNTIME": "dsh"}
    done = subprocess.run(
        [*BRIDGE, "demo"], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the demo failed" in done.stderr.splitlines()[-1]
    assert list((place.root / "tmp").iterdir()) == []


def test_the_installed_command_needs_no_variable_at_all() -> None:
    command = shutil.which("acp-bridge", path=str(Path(sys.executable).parent))
    assert command is not None, "install the project first"
    done = subprocess.run(
        [command, "--version"], capture_output=True, text=True, env={}, check=True, timeout=WAIT_S
    )
    assert done.stdout.startswith("acp-bridge ")
