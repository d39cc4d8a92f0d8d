"""The Anthropic SDK: its clients (its own endpoint, Bedrock, Vertex), its keys, its errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath.errors import ConfigurationError, install_line
from glidepath.models.checks import check_headers, check_key, check_url, site
from glidepath.models.clients import Clients
from glidepath.models.faults import Faults
from glidepath.models.hosts import HOSTS, find_host, key_advice, setting
from glidepath.sdk_privates import with_platform

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex

    ClaudeClient: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

_NO_KEY = "there is no key for Anthropic: set the environment variable ANTHROPIC_API_KEY, or pass api_key="
# The version decides what requests and streams look like. The adapter is written for these, whatever the SDK sends.
_VERSION = {"anthropic-version": "2023-06-01"}
_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
_SHOWN = {"anthropic": "Anthropic", "bedrock": "Bedrock", "vertex": "Vertex AI"}


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
            calm = client.with_options(max_retries=0)  # the runtime retries: it knows the budget and the deadline
            self.clients = Clients(lambda: calm, ours=False)
        else:
            self.host = find_host(host or "anthropic")
            if self.host.adapter not in ("anthropic", "bedrock", "vertex"):
                raise ConfigurationError(f"host={host!r} does not serve Claude models over Anthropic's protocol")
            check_key(api_key, self.host.key)
            self.clients = Clients(lambda: _MAKERS[self.host.name](api_key, base_url, headers))
        first = self.clients.peek()
        kinds = type(first).__name__
        self.routed = ("Bedrock" in kinds and "Mantle" not in kinds) or "Vertex" in kinds
        """The client puts the model's name into the URL: it is not part of the body."""
        self.version = _VERSIONS.get(self.host.name, "")
        """The version of the interface, where it is part of the body."""
        self.vendor = _SHOWN.get(self.host.name, "Anthropic")
        url = str(first.base_url)
        self.billed = self.host.owns(url)
        names = ("api_key", "auth_token", "access_token", "aws_secret_key", "aws_session_token")
        secrets = [api_key, *[getattr(first, name, None) for name in names], *(headers or {}).values()]
        advice = key_advice(self.host, given=api_key is not None or client is not None)
        self.faults = Faults(f"{self.host.name}:{name} at {site(url)}", secrets, advice)


def _sdk(extra: str) -> Any:
    try:
        import anthropic
    except ImportError:
        raise ConfigurationError(f"Anthropic models need the anthropic package: {install_line(extra)}") from None
    return anthropic


def _options(sdk: ModuleType, base_url: str | None, headers: Mapping[str, str] | None) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "default_headers": headers,
        "max_retries": 0,  # the runtime retries: it knows the budget and the deadline
        "timeout": None,
        "http_client": sdk.DefaultAsyncHttpxClient(timeout=None),
    }


def _settled(client: ClaudeClient) -> ClaudeClient:
    check_url(str(client.base_url))
    return with_platform(client, "anthropic")


def _direct(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = _sdk("anthropic")
    try:
        client = sdk.AsyncAnthropic(api_key=key, **_options(sdk, base_url, {**_VERSION, **(headers or {})}))
    except sdk.AnthropicError as error:
        raise ConfigurationError(f"{_NO_KEY} ({error})") from None
    if client.api_key is None and client.auth_token is None and getattr(client, "credentials", None) is None:
        raise ConfigurationError(_NO_KEY)
    check_key(client.api_key, "ANTHROPIC_API_KEY")
    return _settled(client)


def _bedrock(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = _sdk("bedrock")
    _check_foreign("bedrock", key, base_url)
    region = setting("AWS_REGION") or setting("AWS_DEFAULT_REGION")
    try:
        client = sdk.AsyncAnthropicBedrock(
            api_key=key,
            aws_region=region or ("us-east-1" if base_url else None),  # your own address needs no region
            **_options(sdk, base_url, headers),
        )
    except ValueError as error:
        said = "" if "region" in str(error).lower() else f" ({error})"
        raise ConfigurationError(f"Bedrock needs a region: set the environment variable AWS_REGION{said}") from None
    check_key(client.api_key, "AWS_BEARER_TOKEN_BEDROCK")
    if client.api_key is None:
        from importlib.util import find_spec

        if find_spec("boto3") is None:
            raise ConfigurationError(
                "there is no key for Bedrock: set the environment variable AWS_BEARER_TOKEN_BEDROCK, or pass api_key=; "
                f"for AWS credentials (profiles, roles) {install_line('bedrock')}"
            )
    return _settled(client)


def _vertex(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = _sdk("vertex")
    _check_foreign("vertex", key, base_url)
    project = setting("ANTHROPIC_VERTEX_PROJECT_ID") or setting("GOOGLE_CLOUD_PROJECT")
    if project is None:
        raise ConfigurationError(
            "Vertex AI needs a project: set the environment variable GOOGLE_CLOUD_PROJECT "
            "(and GOOGLE_CLOUD_LOCATION, unless it is 'global')"
        )
    if key is None:
        from importlib.util import find_spec

        if find_spec("google") is None or find_spec("google.auth") is None:
            raise ConfigurationError(f"Vertex AI needs the google-auth package: {install_line('vertex')}")
    client = sdk.AsyncAnthropicVertex(
        region=setting("CLOUD_ML_REGION") or setting("GOOGLE_CLOUD_LOCATION") or "global",
        project_id=project,
        access_token=key,
        **_options(sdk, base_url, headers),
    )
    return _settled(client)


def _check_foreign(name: str, key: str | None, base_url: str | None) -> None:
    """Refuse to send the environment's credentials to an address that is not the cloud's."""
    host = HOSTS[name]
    if key is None and base_url is not None and not host.owns(base_url):
        raise ConfigurationError(
            f"credentials for {_SHOWN[name]} are not sent to another address ({site(base_url)}): pass api_key="
        )


_MAKERS = {"anthropic": _direct, "bedrock": _bedrock, "vertex": _vertex}
