"""Choices as config options: categories, order, and models under their providers."""

from acp_bridge.acp.converter import unstructure
from acp_bridge.bridge.config_options import config_from_options
from acp_bridge.ports import ModelInfo, SessionOptions
from acp_bridge.vocabulary import JsonObject

SMALL = ModelInfo("deepseek:small", "Small", 1, efforts=("low",), provider_title="DeepSeek")
LARGE = ModelInfo("openai:large", "Large", 1, provider_title="OpenAI")
OTHER = ModelInfo("deepseek:other", "Other", 1, provider_title="DeepSeek")
OWN = ModelInfo("demo", "Demo", 1)


def shown(*models: ModelInfo) -> list[JsonObject]:
    options = SessionOptions("ask", models[0].model_id, None, models)
    return [unstructure(one) for one in config_from_options(options)]


def choice(info: ModelInfo) -> JsonObject:
    return {"value": info.model_id, "name": info.title, "description": info.model_id}


def test_models_of_several_providers_stand_under_their_names_in_order() -> None:
    assert shown(SMALL, LARGE, OTHER, OWN)[1]["options"] == [
        {"group": "deepseek", "name": "DeepSeek", "options": [choice(SMALL), choice(OTHER)]},
        {"group": "openai", "name": "OpenAI", "options": [choice(LARGE)]},
        {"group": "demo", "name": "Demo", "options": [choice(OWN)]},
    ]


def test_models_of_one_provider_need_no_heading() -> None:
    assert shown(SMALL, OTHER)[1]["options"] == [choice(SMALL), choice(OTHER)]


def test_every_option_says_what_it_is_about() -> None:
    assert [one["category"] for one in shown(SMALL)] == ["mode", "model", "thought_level"]
    assert [one["category"] for one in shown(LARGE)] == ["mode", "model"]
