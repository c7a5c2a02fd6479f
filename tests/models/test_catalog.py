"""Which models there are, by which keys, and what the user may say of them."""

import logging
from pathlib import Path

import pytest
from provider_server import KEY

from acp_bridge.config import ModelSettings, resolve
from acp_bridge.errors import AuthRequiredError, ConfigError
from acp_bridge.models.catalog import NO_MODEL, Catalog
from acp_bridge.models.credentials import credentials_file, write_key
from acp_bridge.models.demo import DemoModel
from acp_bridge.models.http_model import HttpModel
from acp_bridge.models.known import ANTHROPIC, DEEPSEEK, OPENAI, PROVIDERS, request_url
from acp_bridge.models.scripted import ScriptedModel


def catalog(home: Path, configured: str | None = None, **environment: str) -> Catalog:
    return Catalog(home=home, environment=environment, configured=configured)


def ids(models: Catalog) -> list[str]:
    return [info.model_id for info in models.available()]


def test_without_a_key_there_is_no_model_and_the_error_says_how_to_get_one(
    tmp_path: Path,
) -> None:
    models = catalog(tmp_path)
    assert ids(models) == []
    with pytest.raises(AuthRequiredError) as error:
        models.open(None)
    assert error.value.details == NO_MODEL
    with pytest.raises(AuthRequiredError, match="OPENAI_API_KEY, or run `acp-bridge setup"):
        models.open("openai:gpt-5.1")


def test_the_first_provider_with_a_key_is_preferred(tmp_path: Path) -> None:
    models = catalog(tmp_path, OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
    assert ids(models)[0] == "anthropic:claude-sonnet-5-5"
    assert {model_id.partition(":")[0] for model_id in ids(models)} == {"anthropic", "openai"}
    model = models.open(None)
    assert (model.provider, model.name) == ("anthropic", "claude-sonnet-5-5")
    assert model.context_window == 1_000_000


def test_the_configured_model_comes_before_the_preferred_one(tmp_path: Path) -> None:
    models = catalog(tmp_path, "anthropic:claude-next", DEEPSEEK_API_KEY=KEY, ANTHROPIC_API_KEY=KEY)
    assert ids(models)[:2] == ["anthropic:claude-next", "deepseek:deepseek-flash"]
    assert models.open(None).name == "claude-next"
    assert models.open("deepseek:anything:else").name == "anything:else"


def test_the_demo_and_scripts_need_no_key(tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    script.write_text('{"context_window": 77}\n{"stream": []}\n')
    assert isinstance(catalog(tmp_path, "demo").open(None), DemoModel)
    assert ids(catalog(tmp_path, "demo")) == ["demo"]
    models = catalog(tmp_path, f"scripted:{script}")
    assert isinstance(models.open(None), ScriptedModel)
    assert [(i.model_id, i.context_window) for i in models.available()] == [
        (f"scripted:{script}", 77)
    ]


@pytest.mark.parametrize("model_id", ["nobody:m", "deepseek:", "deepseek", "", "scripted:", ":m"])
def test_an_id_that_names_nothing_is_refused(tmp_path: Path, model_id: str) -> None:
    with pytest.raises(ConfigError, match="is not known"):
        catalog(tmp_path, DEEPSEEK_API_KEY=KEY).info(model_id)


def test_a_configured_model_that_cannot_be_used_does_not_hide_the_others(tmp_path: Path) -> None:
    models = catalog(tmp_path, "scripted:/no/such/file", DEEPSEEK_API_KEY=KEY)
    assert ids(models)[0] == "deepseek:deepseek-flash"
    with pytest.raises(ConfigError):
        models.open(None)


def test_keys_are_looked_up_anew_each_time_as_r096_needs(tmp_path: Path) -> None:
    models = catalog(tmp_path)
    with pytest.raises(AuthRequiredError):
        models.open(None)
    write_key(tmp_path, "deepseek", KEY)
    first = models.open(None)
    assert models.open("deepseek:deepseek-flash") is first
    write_key(tmp_path, "deepseek", "another-key")
    assert models.open(None) is not first
    credentials_file(tmp_path).unlink()
    with pytest.raises(AuthRequiredError):
        models.open(None)


def test_the_environment_wins_and_then_the_file_is_not_looked_at(tmp_path: Path) -> None:
    file = credentials_file(tmp_path)
    file.write_text("no toml")
    models = catalog(tmp_path, DEEPSEEK_API_KEY=KEY)
    assert models.open(None).provider == "deepseek"
    with pytest.raises(ConfigError):
        catalog(tmp_path).open(None)


def test_a_file_that_others_can_read_is_refused_but_lists_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_key(tmp_path, "openai", KEY)
    credentials_file(tmp_path).chmod(0o644)
    models = catalog(tmp_path)
    with pytest.raises(ConfigError, match="chmod 600"):
        models.open("openai:gpt-5.1")
    assert ids(models) == []
    assert "chmod 600" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel", "x" * 5000])
def test_a_key_that_no_header_can_hold_is_refused_unshown(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError) as error:
        catalog(tmp_path, DEEPSEEK_API_KEY=key).open(None)
    assert "DEEPSEEK_API_KEY" in error.value.details
    assert key not in error.value.details


@pytest.mark.parametrize("base", ["here", "ftp://host", "http://", "http://[", "http://h:99999"])
def test_an_address_that_cannot_be_called_is_refused(tmp_path: Path, base: str) -> None:
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        catalog(tmp_path, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=base).open(None)


def test_requests_go_where_each_api_is() -> None:
    assert request_url(ANTHROPIC, "http://h") == "http://h/v1/messages"
    assert request_url(ANTHROPIC, "http://h/v1/") == "http://h/v1/messages"
    assert request_url(DEEPSEEK, "http://h/x/") == "http://h/x/v1/messages"
    assert request_url(OPENAI, "http://h/v1") == "http://h/v1/chat/completions"
    # What DeepSeek's users have in this variable for its other API.
    for base in ("https://api.deepseek.com", "https://api.deepseek.com/v1/"):
        assert request_url(DEEPSEEK, base) == "https://api.deepseek.com/anthropic/v1/messages"


def test_what_config_toml_says_of_a_model_wins(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[models."openai:local"]\n'
        "context_window = 32000\noutput_tokens_max = 4000\n"
        'efforts = ["low", "high"]\ntakes_images = false\n'
        '[models."openai:gpt-5.1"]\ntakes_images = false\n'
        "[models.nonsense]\n"
    )
    settings, _ = resolve({"home": str(tmp_path)}, {})
    assert settings.models["openai:gpt-5.1"] == ModelSettings(takes_images=False)
    models = Catalog(home=tmp_path, environment={"OPENAI_API_KEY": KEY}, models=settings.models)
    info = models.info("openai:local")
    assert (info.context_window, info.output_tokens_max) == (32_000, 4_000)
    assert (info.efforts, info.takes_images) == (("low", "high"), False)
    known = models.info("openai:gpt-5.1")
    assert (known.context_window, known.takes_images) == (400_000, False)
    assert "openai:local" in ids(models)
    assert "nonsense" not in ids(models)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 1", "in tables"),
        ("[models]\nx = 1", "must be a table"),
        ('[models."a:b"]\ncolour = "red"', "'colour', which is no setting of a model"),
        ('[models."a:b"]\ncontext_window = 0', "a whole number from 1"),
        ('[models."a:b"]\noutput_tokens_max = true', "a whole number from 1"),
        ('[models."a:b"]\nefforts = "low"', "a list of strings"),
        ('[models."a:b"]\ntakes_images = 1', "true or false"),
    ],
)
def test_what_config_toml_may_not_say_of_a_model(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        resolve({"home": str(tmp_path)}, {})


def test_every_known_model_can_be_chosen(tmp_path: Path) -> None:
    models = catalog(tmp_path, **{provider.key_variable: KEY for provider in PROVIDERS.values()})
    infos = models.available()
    assert len(infos) == len({info.model_id for info in infos}) == len({i.title for i in infos})
    for info in infos:
        model = models.open(info.model_id)
        assert isinstance(model, HttpModel)
        assert model.info == info
        assert info.output_tokens_max is not None
        assert info.output_tokens_max < info.context_window


def test_no_http_client_is_imported_before_the_first_call(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom pathlib import Path\n"
        "from acp_bridge.models.catalog import Catalog\n"
        "models = Catalog(home=Path('.'), environment={'OPENAI_API_KEY': 'k', "
        "'DEEPSEEK_API_KEY': 'k'})\n"
        "models.available(); models.open(None); models.open('openai:m')\n"
        "print([n for n in ('httpx', 'httpcore', 'httpx_sse', 'ssl') if n in sys.modules])\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert told.stdout.strip() == "[]"


def test_a_key_is_in_no_text_that_a_log_could_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    models = catalog(tmp_path, OPENAI_API_KEY=KEY)
    model = models.open(None)
    assert KEY not in repr(models) + repr(model) + repr(models._opened) + caplog.text
