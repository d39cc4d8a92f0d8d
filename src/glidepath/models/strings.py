"""Model strings: `provider:name` becomes a model object, and only that provider's SDK is imported."""

from __future__ import annotations

import re
from typing import Any

from glidepath.models.hosts import HOSTS, ModelHost
from glidepath.values import ConfigurationError, close_to

_ADDRESS = re.compile(r"@(?=[A-Za-z]+://)")
"""Where an address begins; a model's own name may contain an @."""
_NAMELESS = frozenset({"local"})  # these have a default model
_ADAPTERS = {
    "anthropic": "AnthropicModel",
    "google": "GoogleModel",
    "vertex": "GoogleModel",
    "responses": "OpenAIResponsesModel",
}
_MEANT = {
    "gemini": "google",
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "aws": "bedrock",
    "grok": "xai",
    "x-ai": "xai",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "vertexai": "vertex",
    "azure-openai": "azure",
}
"""Words that people write for a host, or that begin the names of its models."""


def resolve(model: str, *, api_key: str | None = None) -> Any:
    """The model behind a string such as `anthropic:claude-sonnet-4-5`; raises `ConfigurationError` naming the fix.

    The SDK is imported now and looks for its key now, unless `api_key` is given. Two calls make two models.
    """
    if not isinstance(model, str):
        raise ConfigurationError(f"a model string must be a str, not {type(model).__name__}")
    provider, colon, name = model.strip().partition(":")
    if not colon or not (name.strip() or provider.lower() in _NAMELESS):
        raise ConfigurationError(
            f"model {_hide_password(model)} must be 'provider:name', such as 'openai:gpt-5'{_guess(model)}"
        )
    host = HOSTS.get(provider.lower())
    if host is None:
        close = close_to(_MEANT.get(provider.lower(), provider.lower()), HOSTS, cutoff=0.5)
        hint = f" (did you mean {close!r}?)" if close else ""
        raise ConfigurationError(
            f"model {_hide_password(model)}: there is no provider {provider!r:.60}{hint}; "
            f"the providers are {', '.join(sorted(HOSTS))}"
        )
    try:
        return _make_model(host, name.strip(), api_key)
    except ConfigurationError as error:
        raise ConfigurationError(f"model {_hide_password(model)}: {error}") from None


def _make_model(host: ModelHost, name: str, api_key: str | None) -> Any:
    from glidepath import models

    if host.adapter == "local":
        return models.LocalModel(name)
    found = list(_ADDRESS.finditer(name))
    bare, address = (name[: found[-1].start()], name[found[-1].end() :]) if found else (name, None)
    if host.form == "NAME@ADDRESS" and (not bare or address is None):
        raise ConfigurationError(f"it must be '{host.name}:{host.form}', such as '{host.example}'")
    if not bare:
        raise ConfigurationError(f"it needs a name before the address, such as '{host.example}@{address:.60}'")
    claude = host.adapter in ("bedrock", "vertex") and "claude" in bare.lower()
    kind = "AnthropicModel" if claude else _ADAPTERS.get(host.adapter, "OpenAIChatModel")
    return getattr(models, kind)(bare, api_key=api_key, base_url=address, host=host.name)


def _hide_password(model: str) -> str:
    """The string without a possible password in its address."""
    found = _ADDRESS.search(model)
    held = found is not None and "@" in model[found.end() :]
    return repr(f"{model[: found.start()]}@..." if held and found is not None else model)[:120]


def _guess(model: str) -> str:
    """A hint for a bare model name."""
    provider, _, name = model.partition("/")
    if name and provider.lower() in HOSTS:
        return f"; did you mean '{provider.lower()}:{name[:80]}'?"
    meant = next((host for start, host in _MEANT.items() if model.lower().startswith(start)), None)
    return f"; did you mean '{meant}:{model[:80]}'?" if meant else ""
