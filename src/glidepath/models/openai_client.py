"""The OpenAI SDK: its clients, its keys, its errors. Chat completions and Responses share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from glidepath._sdk_privates import set_platform_header
from glidepath.models.checks import (
    check_compaction,
    check_headers,
    check_key,
    check_name,
    check_url,
    displayable_address,
)
from glidepath.models.clients import Clients, sdk_options
from glidepath.models.content import make_unsupported_error
from glidepath.models.faults import Faults
from glidepath.models.hosts import (
    HOSTS,
    ModelHost,
    Quirks,
    find_host,
    find_key,
    has_probabilities,
    is_behind_gate,
    key_advice,
    takes_temperature,
)
from glidepath.models.strictness import make_strict
from glidepath.models.vendor_model import VendorModel
from glidepath.spi import ModelRequest
from glidepath.values import ConfigurationError, require_extra

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_HOST = "api.openai.com"
RETENTIONS = ("in_memory", "24h")
_NO_KEY = "none"  # the SDK insists on one


class OpenAIModel(VendorModel):
    """A model behind the OpenAI SDK. `usual` is its host when no other is named."""

    usual: ClassVar[str]
    _sdk = "openai"
    compacts: ClassVar[bool] = False
    """Its endpoint can replace the beginning of a conversation itself."""

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        prompt_cache_key: str | None = None,
        prompt_cache_retention: str | None = None,
        client: AsyncOpenAI | None = None,
        host: str | None = None,
        compaction: int | None = None,
    ) -> None:
        self.name = check_name(name)
        self.compaction = check_compaction(compaction, 1)
        if compaction is not None and not self.compacts:
            raise ConfigurationError("compaction: chat completions do not have it; use openai-responses:NAME")
        self._caching = _cache_fields(prompt_cache_key, prompt_cache_retention)
        check_url(base_url)
        check_headers(headers)
        named = find_host(host or self.usual)
        if named.extra != "openai" and named.adapter != "bedrock":
            raise ConfigurationError(f"host={host!r} does not speak OpenAI's protocol")
        check_key(api_key, named.key or "api_key")
        own = named.key == "OPENAI_API_KEY"
        if own and base_url is not None and not _is_openai(base_url):
            named = HOSTS["openai-compatible"]  # somebody else's server: OpenAI's key is not for it
        if client is not None:
            clients = Clients.of(client)
        else:
            clients = Clients(lambda: _client(named, api_key, base_url, headers))
        first = clients.peek()
        url = str(first.base_url)
        served = _find_actual_host(named, first, url)
        self.host = served.name
        self.provider = served.prices or self.provider
        self.usage_is_billed = served.is_own_address(url)
        self._quirks = self._adapt_quirks(served.quirks)
        # A host with an object for reasoning, which is OpenRouter, takes a number in it.
        self.least_reasoning_tokens = 1 if self._quirks.effort == "reasoning" and not self.compacts else None
        secrets = [api_key, first.api_key, getattr(first, "admin_api_key", None), *(headers or {}).values()]
        given = api_key is not None or client is not None
        advice = key_advice(named, given=given, sent=first.api_key != _NO_KEY)
        if urlsplit(url).path in ("", "/"):
            advice += "; most addresses end in /v1, and this one has no path"
        shown = self.usual if own else named.name
        who = f"{'openai' if shown == 'openai-responses' else shown}:{name} at {displayable_address(url)}"
        faults = Faults(who, [key for key in secrets if key != _NO_KEY], advice)
        super().__init__(name, context_window, clients, faults)

    def _adapt_quirks(self, quirks: Quirks) -> Quirks:
        """The quirks of the host, adapted to the model."""
        return quirks

    def _sampling(self, request: ModelRequest) -> dict[str, Any]:
        """The temperature, unless the model refuses one; raises `RejectedError` for probabilities it cannot report."""
        if request.logprobs is not None and not has_probabilities(self._quirks, self.name, request.reasoning):
            raise make_unsupported_error(f"{self.host}:{self.name}", "logprobs")
        if request.temperature is None:
            return {}
        if takes_temperature(self._quirks, self.name, request.reasoning):
            return {"temperature": request.temperature}
        self._leave_out(
            "gets no temperature: OpenAI refuses one for models that reason; since gpt-5.1, reasoning='none' allows it"
        )
        return {}


def make_output_format(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema as OpenAI takes it: with a name, in strict form if that is possible."""
    title = str(wanted.get("title") or wanted.get("$ref", "").rpartition("/")[2] or "answer")
    name = "".join([char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in title])[:64]
    schema, closed = make_strict(wanted)
    return {"name": name, "schema": schema if closed else wanted, "strict": closed}


def _find_actual_host(named: ModelHost, client: object, url: str) -> ModelHost:
    """The host behind an address: your own client may point to Azure, OPENAI_BASE_URL anywhere."""
    azure = HOSTS["azure"]
    if azure.is_own_address(url) or "Azure" in type(client).__name__:
        return azure
    if named.key == "OPENAI_API_KEY" and not _is_openai(url):
        return HOSTS["openai-compatible"]
    return named


def _is_openai(url: str) -> bool:
    """Whether OpenAI answers at this address, itself or behind a gate of ours."""
    return urlsplit(url).hostname == OPENAI_HOST or is_behind_gate(url, "openai")


def _cache_fields(key: object, retention: object) -> dict[str, str]:
    """What a request says about the prompt cache: only what was set, because other servers may refuse the fields."""
    if key is not None and (not isinstance(key, str) or not key):
        raise ConfigurationError(f"prompt_cache_key={key!r} must be a non-empty str")
    if retention not in (None, *RETENTIONS):
        raise ConfigurationError(f"prompt_cache_retention={retention!r} is not known: use 'in_memory' or '24h'")
    given = {"prompt_cache_key": key, "prompt_cache_retention": retention}
    return {name: value for name, value in given.items() if value is not None}


def _client(host: ModelHost, key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    openai = require_extra("openai", "OpenAI models need the openai package", "openai")
    options = sdk_options(openai, headers)
    if host.adapter == "azure":
        from glidepath.models.clouds import azure_client

        client = azure_client(openai, key, base_url, options)
    elif host.key == "OPENAI_API_KEY":
        try:
            client = openai.AsyncOpenAI(api_key=key, base_url=base_url, **options)
        except openai.OpenAIError:
            raise ConfigurationError(
                "there is no key for OpenAI: set the environment variable OPENAI_API_KEY, or pass api_key="
            ) from None
    else:
        if host.adapter == "bedrock" and base_url is None:
            from glidepath.models.clouds import mantle_address

            base_url = mantle_address()
        base_url = base_url or host.address or None
        key = find_key(host, base_url or "", key)
        # Most private servers want no key.
        client = openai.AsyncOpenAI(api_key=key or _NO_KEY, base_url=base_url, **options)
    check_key(client.api_key, host.key or "api_key")
    check_url(str(client.base_url))
    return set_platform_header(client, "openai")
