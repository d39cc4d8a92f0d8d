"""Where a server may listen, under which names, and which pages of other origins may call it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from glidepath.values import ConfigurationError

__all__ = ["check_bind", "check_origins", "host_of", "is_loopback", "parse_hosts"]

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:\[\]@/?#\\]+?)\.?(?::\d{0,5})?\Z")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?\Z")
_LAST_PORT = 65535


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host.lower() in ("localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, *, token: bool, tls: bool, behind_proxy: bool) -> None:
    """Raise `ConfigurationError` for an address that other machines reach without a secret or in the clear."""
    if is_loopback(host):
        return
    if not token:
        raise ConfigurationError(
            f"--host {host} can be reached from other machines, so a token is needed: set GLIDEPATH_SERVE_TOKEN, "
            "or pass --token-file FILE"
        )
    if not tls and not behind_proxy:
        raise ConfigurationError(
            f"--host {host} can be reached from other machines, and tokens would be sent in the clear: pass --tls-cert "
            "and --tls-key, or --behind-proxy if a proxy in front of it speaks TLS"
        )


def parse_hosts(extra: Sequence[str] | str = ()) -> frozenset[str]:
    """The host names that a request may name, in lower case, without a port."""
    if isinstance(extra, str):
        extra = (extra,)
    hosts = {host_of(f"[{one}]" if str(one).count(":") > 1 and "[" not in str(one) else str(one)) for one in extra}
    if "" in hosts:
        raise ConfigurationError(
            f"allowed-host: one of {', '.join(map(str, extra))} is not a host name; write it without scheme and path, "
            "such as deck.example.com"
        )
    return frozenset({"localhost", "127.0.0.1", "[::1]", *hosts})


def host_of(value: str) -> str:
    """The host of a Host header, without its port; empty for what is not a host and perhaps a port."""
    found = _HOST.match(value.strip().lower())
    return "" if found is None else found["name"]


def check_origins(origins: Sequence[str] | str = ()) -> frozenset[str]:
    """These origins, exactly as browsers write them; raises `ConfigurationError` for a pattern or an address."""
    given = (origins,) if isinstance(origins, str) else tuple(origins)
    for one in given:
        found = _ORIGIN.match(one) if isinstance(one, str) else None
        if found is None:
            raise ConfigurationError(
                f"allow-origin {one!r:.80} is not an origin: write scheme, host and port as the browser sends them, "
                "such as http://localhost:5173 or https://app.example.com, without a path; there are no patterns"
            )
        scheme, port = found["scheme"], found["port"]
        if port is not None and (port != str(int(port)) or not 1 <= int(port) <= _LAST_PORT):  # no browser sends it
            raise ConfigurationError(f"allow-origin {one!r:.80} has no port from 1 to 65535, so it would never match")
        if port == {"http": "80", "https": "443"}[scheme]:
            raise ConfigurationError(
                f"allow-origin {one!r:.80} would never match: browsers leave {scheme} port {port} out; so do it too"
            )
    return frozenset(given)
