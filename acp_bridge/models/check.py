"""Whether a key works, by one short answer."""

from contextlib import aclosing

from acp_bridge.models.catalog import Catalog
from acp_bridge.ports import FailureChunk, ModelRequest


async def key_failure(catalog: Catalog, model_id: str) -> str | None:
    """Ask the model for one word: None if it answers, else what went wrong, for people.

    Closes the catalog.

    Raises:
        AuthRequiredError, ConfigError: as `Catalog.open`.
    """
    request = ModelRequest(
        system="",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Say: ok"}]}],
        tools=[],
        purpose="turn",
        agent="1",
        position=0,
    )
    try:
        async with aclosing(catalog.open(model_id).stream(request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                # A model that speaks, whatever it says, has taken the key.
                return chunk.message if isinstance(chunk, FailureChunk) else None
        return "the provider gave no answer."
    finally:
        await catalog.aclose()
