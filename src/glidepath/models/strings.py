"""Model strings: `provider:name` becomes a model object, and only that provider's SDK is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from glidepath.errors import ConfigurationError

__all__ = ["PROVIDERS", "resolve"]


def resolve(model: str, *, api_key: str | None = None) -> Any:
    """The model behind a string such as `anthropic:claude-sonnet-4-5`; raises `ConfigurationError` naming the fix.

    The SDK is imported now, and looks for its key now, unless `api_key` is given. Nothing is kept: two calls make two
    models.
    """
    if not isinstance(model, str):
        raise ConfigurationError(f"a model string must be a str, not {type(model).__name__}")
    provider, colon, name = model.strip().partition(":")
    if not colon or not (name.strip() or provider.lower() in _NAMELESS):
        raise ConfigurationError(
            f"model {_shown(model)} must be 'provider:name', such as 'openai:gpt-5'{_guess(model)}"
        )
    make = PROVIDERS.get(provider.lower())
    if make is None:
        raise ConfigurationError(
            f"model {_shown(model)}: there is no provider {provider!r:.60}{_close_to(provider, name)}; "
            f"known are {', '.join(sorted(PROVIDERS))}"
        )
    try:
        return make(name.strip(), api_key)
    except ConfigurationError as error:
        raise ConfigurationError(f"model {_shown(model)}: {error}") from None


def _shown(model: str) -> str:
    """The string without what might be a password in an address."""
    name, at, address = model.partition("@")
    return repr(f"{name}@..." if at and "@" in address else model)[:120]


def _close_to(provider: str, name: str) -> str:
    from difflib import get_close_matches  # only needed when something is wrong

    address = _SERVERS.get(provider.lower())
    if address is not None:
        return f" (did you mean 'openai-compatible:{name[:60]}@{address}'?)"
    close = get_close_matches(_COMPANIES.get(provider.lower(), provider.lower()), PROVIDERS, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _guess(model: str) -> str:
    """A hint for a bare model name."""
    provider, slash, name = model.partition("/")
    if slash and name and provider.lower() in PROVIDERS:
        return f"; did you mean '{provider.lower()}:{name[:80]}'?"
    for start, provider in (
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("o1", "openai"),
        ("o3", "openai"),
        ("gemini", "google"),
    ):
        if model.lower().startswith(start):
            return f"; did you mean '{provider}:{model[:80]}'?"
    return ""


def _anthropic(name: str, api_key: str | None) -> Any:
    from glidepath.models.anthropic import AnthropicModel

    return AnthropicModel(name, api_key=api_key)


def _google(name: str, api_key: str | None) -> Any:
    from glidepath.models.google import GoogleModel

    return GoogleModel(name, api_key=api_key)


def _openai_responses(name: str, api_key: str | None) -> Any:
    from glidepath.models.openai_responses import OpenAIResponsesModel

    return OpenAIResponsesModel(name, api_key=api_key)


def _openai_chat(name: str, api_key: str | None) -> Any:
    from glidepath.models.openai_chat import OpenAIChatModel

    return OpenAIChatModel(name, api_key=api_key)


def _compatible(name: str, api_key: str | None) -> Any:
    from glidepath.models.openai_chat import OpenAIChatModel

    bare, at, address = name.partition("@")
    if not at or not bare or "://" not in address:
        raise ConfigurationError(
            "it must be 'openai-compatible:NAME@ADDRESS', such as 'openai-compatible:qwen3@http://127.0.0.1:11434/v1'"
        )
    return OpenAIChatModel(bare, base_url=address, api_key=api_key)


def _local(name: str, _api_key: str | None) -> Any:
    from importlib import import_module

    try:
        module = import_module("glidepath.models.local")
    except ImportError as error:
        raise ConfigurationError(f"local models are not available ({error}): pip install 'glidepath[local]'") from None
    return module.LocalModel(name)


_COMPANIES = {"gemini": "google", "claude": "anthropic", "gpt": "openai"}
_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "xai": "https://api.x.ai/v1",
}
"""Where those who speak like OpenAI are found; only a hint is made of it."""
_NAMELESS = frozenset({"local"})  # these have a model that needs no name

PROVIDERS: Mapping[str, Callable[[str, str | None], Any]] = {
    "anthropic": _anthropic,
    "google": _google,
    "local": _local,
    "openai": _openai_responses,
    "openai-chat": _openai_chat,
    "openai-compatible": _compatible,
    "openai-responses": _openai_responses,
}
"""What stands before the colon, and what it makes."""
