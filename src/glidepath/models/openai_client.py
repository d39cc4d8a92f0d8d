"""The OpenAI SDK: its client, its keys, its errors. Shared by chat completions and Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from glidepath.errors import ConfigurationError
from glidepath.models.checks import check_headers, check_key, check_url, leave_open, site
from glidepath.models.clients import Clients, known_platform
from glidepath.models.faults import Faults

__all__ = ["OPENAI_HOST", "OpenAIPort", "cache_fields"]

OPENAI_HOST = "api.openai.com"
_AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
RETENTIONS = ("in_memory", "24h")
_NO_KEY = "none"  # the SDK insists on one


class OpenAIPort:
    """How an OpenAI model is reached."""

    __slots__ = ("azure", "clients", "faults", "url")

    def __init__(
        self, *, api_key: str | None, base_url: str | None, headers: Mapping[str, str] | None, client: Any, who: str
    ) -> None:
        check_key(api_key, "OPENAI_API_KEY")
        check_url(base_url)
        check_headers(headers)
        if client is not None:
            calm = client.with_options(max_retries=0)  # ours govern: they know the budget and the deadline
            self.clients = Clients(lambda: calm, leave_open)
        else:
            local = base_url is not None and urlsplit(base_url).hostname != OPENAI_HOST
            # A server of one's own mostly wants no key; and OpenAI's, from the environment, is not for it.
            key = api_key or (_NO_KEY if local else None)
            self.clients = Clients(lambda: _client(key, base_url, headers), _close)
        first = self.clients.peek()
        self.url = str(first.base_url)
        self.azure = (urlsplit(self.url).hostname or "").endswith(_AZURE) or "Azure" in type(first).__name__
        secrets = [first.api_key, getattr(first, "admin_api_key", None), *(headers or {}).values()]
        ours = urlsplit(self.url).hostname == OPENAI_HOST
        where = "OPENAI_API_KEY" if ours else "api_key=, or GLIDEPATH_API_KEY on the command line"
        advice = f"check the model name and the key ({where})"
        if urlsplit(self.url).path in ("", "/"):
            advice += "; an address mostly ends in /v1, and this one has no path"
        self.faults = Faults(f"{who} at {site(self.url)}", [key for key in secrets if key != _NO_KEY], advice)


def cache_fields(key: Any, retention: Any) -> dict[str, str]:
    """What a request says about the prompt cache: only what was set, because other servers may refuse the fields."""
    if key is not None and (not isinstance(key, str) or not key):
        raise ConfigurationError(f"prompt_cache_key={key!r} must be a text that is not empty")
    if retention not in (None, *RETENTIONS):
        raise ConfigurationError(f"prompt_cache_retention={retention!r} is not known: use 'in_memory' or '24h'")
    given = {"prompt_cache_key": key, "prompt_cache_retention": retention}
    return {name: value for name, value in given.items() if value is not None}


async def _close(client: Any) -> None:
    await client.close()


def _client(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    try:
        import openai
    except ImportError:
        raise ConfigurationError("OpenAI models need the openai package: pip install 'glidepath[openai]'") from None
    from openai._base_client import get_platform

    try:
        client = openai.AsyncOpenAI(
            api_key=key,
            base_url=base_url,
            default_headers=headers,
            max_retries=0,  # ours govern: they know the budget and the deadline
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(timeout=None),
        )
    except openai.OpenAIError:
        raise ConfigurationError(
            "there is no key for OpenAI: set the environment variable OPENAI_API_KEY, or pass api_key="
        ) from None
    check_key(client.api_key, "OPENAI_API_KEY")
    check_url(str(client.base_url))
    return known_platform(client, get_platform)
