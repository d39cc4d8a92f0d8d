"""Clients for models in a vendor's cloud: Claude on Bedrock and Vertex AI, OpenAI's on Azure, others on Bedrock."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from glidepath.models.anthropic_client import SHOWN, claude_sdk, prepare_client
from glidepath.models.checks import check_key, check_url, displayable_address
from glidepath.models.clients import sdk_options
from glidepath.models.hosts import HOSTS, find_key, read_variable
from glidepath.values import ConfigurationError, install_line


def _bedrock(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = claude_sdk("bedrock")
    _check_address_is_the_clouds("bedrock", key, base_url)
    region = read_variable("AWS_REGION") or read_variable("AWS_DEFAULT_REGION")
    try:
        client = sdk.AsyncAnthropicBedrock(
            api_key=key,
            aws_region=region or ("us-east-1" if base_url else None),  # your own address needs no region
            base_url=base_url,
            **sdk_options(sdk, headers),
        )
    except ValueError as error:
        said = "" if "region" in str(error).lower() else f" ({error})"
        raise ConfigurationError(f"Bedrock needs a region: set the environment variable AWS_REGION{said}") from None
    check_key(client.api_key, "AWS_BEARER_TOKEN_BEDROCK")
    if client.api_key is None and find_spec("boto3") is None:
        raise ConfigurationError(
            "there is no key for Bedrock: set the environment variable AWS_BEARER_TOKEN_BEDROCK, or pass api_key=; "
            f"for AWS credentials (profiles, roles) {install_line('bedrock')}"
        )
    return prepare_client(client)


def _vertex(key: str | None, base_url: str | None, headers: Mapping[str, str] | None) -> Any:
    sdk = claude_sdk("vertex")
    _check_address_is_the_clouds("vertex", key, base_url)
    project = read_variable("ANTHROPIC_VERTEX_PROJECT_ID") or read_variable("GOOGLE_CLOUD_PROJECT")
    if project is None:
        raise ConfigurationError(
            "Vertex AI needs a project: set the environment variable GOOGLE_CLOUD_PROJECT "
            "(and GOOGLE_CLOUD_LOCATION, unless it is 'global')"
        )
    if key is None and (find_spec("google") is None or find_spec("google.auth") is None):
        raise ConfigurationError(f"Vertex AI needs the google-auth package: {install_line('vertex')}")
    client = sdk.AsyncAnthropicVertex(
        region=read_variable("CLOUD_ML_REGION") or read_variable("GOOGLE_CLOUD_LOCATION") or "global",
        project_id=project,
        access_token=key,
        base_url=base_url,
        **sdk_options(sdk, headers),
    )
    return prepare_client(client)


def _check_address_is_the_clouds(name: str, key: str | None, base_url: str | None) -> None:
    """Refuse to send the environment's credentials to an address that is not the cloud's."""
    host = HOSTS[name]
    if key is None and base_url is not None and not host.is_own_address(base_url):
        raise ConfigurationError(
            f"credentials for {SHOWN[name]} are not sent to another address ({displayable_address(base_url)}): "
            "pass api_key="
        )


CLAUDE = {"bedrock": _bedrock, "vertex": _vertex}


def azure_client(openai: ModuleType, key: str | None, base_url: str | None, options: dict[str, Any]) -> Any:
    """Azure by OPENAI_API_VERSION where that is set, else by its version-free address (/openai/v1)."""
    host = HOSTS["azure"]
    endpoint = (base_url or read_variable("AZURE_OPENAI_ENDPOINT") or "").rstrip("/")
    if not endpoint:
        raise ConfigurationError(
            "Azure needs the address of your resource: set the environment variable AZURE_OPENAI_ENDPOINT to "
            "https://RESOURCE.openai.azure.com, or write azure:DEPLOYMENT@ADDRESS"
        )
    check_url(endpoint)
    token = None
    if key is None and base_url is None:
        key = read_variable(host.key)  # both the endpoint and the key come from the user's environment
        token = None if key else read_variable("AZURE_OPENAI_AD_TOKEN")
    if key is None and token is None:
        key = find_key(host, endpoint, None)
    version = read_variable("OPENAI_API_VERSION")
    if version is not None:
        made = {"azure_endpoint": endpoint.removesuffix("/openai/v1"), "api_version": version}
        return openai.AsyncAzureOpenAI(api_key=key, azure_ad_token=token, **made, **options)
    address = endpoint if endpoint.endswith("/openai/v1") else f"{endpoint}/openai/v1"
    return openai.AsyncOpenAI(api_key=key or token, base_url=address, **options)


def mantle_address() -> str:
    """Where Bedrock serves models other than Claude, by chat completions."""
    region = read_variable("AWS_REGION") or read_variable("AWS_DEFAULT_REGION")
    if region is None:
        raise ConfigurationError("Bedrock needs a region: set the environment variable AWS_REGION")
    return f"https://bedrock-mantle.{region}.api.aws/v1"
