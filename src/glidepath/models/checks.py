"""Checks on names, keys, addresses and headers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from glidepath.values import ConfigurationError


def check_name(name: object) -> str:
    """The name of a model; raises `ConfigurationError` if it is not one."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigurationError(f"the name of a model must be a printable, non-empty str, not {name!r:.100}")
    return name


def check_compaction(tokens: object, least: int) -> int | None:
    """From how many tokens of input on the vendor compacts; raises `ConfigurationError`, None is never."""
    if tokens is None:
        return None
    if type(tokens) is not int or tokens < least:
        raise ConfigurationError(f"compaction={tokens!r:.80} must be a whole number of tokens of at least {least}")
    return tokens


def check_key(key: object, variable: str) -> None:
    """Reject a key that cannot be sent, without showing it."""
    if key is None:
        return
    if not isinstance(key, str):
        raise ConfigurationError(f"api_key must be a str, not {type(key).__name__}")
    if not key.strip():
        raise ConfigurationError(f"the key is empty: set {variable}, or pass api_key=")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError(f"the key contains spaces or invalid characters: check {variable} or api_key=")


def check_url(url: object) -> None:
    """Reject malformed URLs and URLs that contain a password."""
    if url is None:
        return
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        _ = parts and parts.port  # reading it checks it
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("base_url must be a URL such as http://localhost:11434/v1")
    if parts.username or parts.password:
        raise ConfigurationError("base_url must not contain a user name or password: pass api_key= or headers= instead")


def check_headers(headers: object) -> None:
    """Reject headers that cannot be sent, without showing their values."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers must map names to values, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not name.isascii() or not name.isprintable() or not name.strip():
            raise ConfigurationError(f"headers: {name!r:.60} is not a header name")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ConfigurationError(f"headers: the value of {name!r:.60} must be printable ASCII text")


def is_vendor_address(url: str, host: str) -> bool:
    """Whether an address is the vendor's own, where the reported usage is what is billed."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    return parts.scheme == "https" and (name == host or (host.startswith(".") and name.endswith(host)))


def displayable_address(url: str) -> str:
    """The address as it may be shown: scheme, host and port."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"
