"""The Anthropic SDK: its clients (its own endpoint, Bedrock, Vertex), its keys, its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath._sdk_privates import set_platform_header
from glidepath.models.checks import check_headers, check_key, check_url, displayable_address
from glidepath.models.clients import Clients, sdk_options
from glidepath.models.faults import Faults
from glidepath.models.hosts import find_host, key_advice
from glidepath.values import ConfigurationError, require_extra

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex

    ClaudeClient: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

_NO_KEY = "there is no key for Anthropic: set the environment variable ANTHROPIC_API_KEY, or pass api_key="
# The version decides what requests and streams look like. The adapter is written for these, whatever the SDK sends.
_VERSION = {"anthropic-version": "2023-06-01"}
_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
SHOWN = {"anthropic": "Anthropic", "bedrock": "Bedrock", "vertex": "Vertex AI"}


class AnthropicPort:
    """How to reach a Claude model."""

    __slots__ = ("billed", "clients", "faults", "host", "routed", "vendor", "version")

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None,
        headers: Mapping[str, str] | None,
        client: ClaudeClient | None,
        host: str | None,
    ) -> None:
        check_url(base_url)
        check_headers(headers)
        if client is not None:
            kinds = " ".join([kind.__name__ for kind in type(client).__mro__])
            clouds = [cloud for cloud in ("bedrock", "vertex") if f"Anthropic{cloud.title()}" in kinds]
            self.host = find_host(host or (clouds[0] if clouds else "anthropic"))
            self.clients = Clients.of(client)
        else:
            self.host = find_host(host or "anthropic")
            if self.host.adapter not in ("anthropic", "bedrock", "vertex"):
                raise ConfigurationError(f"host={host!r} does not serve Claude models over Anthropic's protocol")
            check_key(api_key, self.host.key)
            self.clients = Clients(lambda: _client(self.host.name, api_key, base_url, headers))
        first = self.clients.peek()
        kinds = type(first).__name__
        self.routed = ("Bedrock" in kinds and "Mantle" not in kinds) or "Vertex" in kinds
        """The client puts the model's name into the URL: it is not part of the body."""
        self.version = _VERSIONS.get(self.host.name, "")
        """The version of the interface, where it is part of the body."""
        self.vendor = SHOWN.get(self.host.name, "Anthropic")
        url = str(first.base_url)
        self.billed = self.host.is_own_address(url)
        names = ("api_key", "auth_token", "access_token", "aws_secret_key", "aws_session_token")
        secrets = [api_key, *[getattr(first, name, None) for name in names], *(headers or {}).values()]
        advice = key_advice(self.host, given=api_key is not None or client is not None)
        self.faults = Faults(f"{self.host.name}:{name} at {displayable_address(url)}", secrets, advice)


def _client(host: str, key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    if host == "anthropic":
        return _make_direct_client(key, base_url, headers)
    from glidepath.models.clouds import CLAUDE

    return CLAUDE[host](key, base_url, headers)


def claude_sdk(extra: str) -> Any:
    """The SDK; raises `ConfigurationError` naming the extra that brings it."""
    return require_extra("anthropic", "Anthropic models need the anthropic package", extra)


def prepare_client(client: ClaudeClient) -> ClaudeClient:
    """The client, checked and ready."""
    check_url(str(client.base_url))
    return set_platform_header(client, "anthropic")


def _make_direct_client(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = claude_sdk("anthropic")
    try:
        options = sdk_options(sdk, {**_VERSION, **(headers or {})})
        client = sdk.AsyncAnthropic(api_key=key, base_url=base_url, **options)
    except sdk.AnthropicError as error:
        raise ConfigurationError(f"{_NO_KEY} ({error})") from None
    if client.api_key is None and client.auth_token is None and getattr(client, "credentials", None) is None:
        raise ConfigurationError(_NO_KEY)
    check_key(client.api_key, "ANTHROPIC_API_KEY")
    return prepare_client(client)
