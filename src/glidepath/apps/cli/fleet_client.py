"""Shared by the fleet commands."""

from __future__ import annotations

import argparse

from glidepath.apps.cli.cli_context import CliContext
from glidepath.values import ConfigurationError, parse_seconds


def add_store_flag(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Add the flag for the fleet's database; `again` after an action, where it leaves what was said before it."""
    text = "the fleet's PostgreSQL, postgresql://...; default: GLIDEPATH_STORE"
    parser.add_argument("--store", metavar="ADDRESS", default=argparse.SUPPRESS if again else None, help=text)
    text = "put what is stored through this: python:module:function"
    parser.add_argument("--redact", metavar="NAME", default=argparse.SUPPRESS if again else None, help=text)


def fleet_address(options: argparse.Namespace, world: CliContext) -> str:
    """The address of the fleet's database; raises `ConfigurationError` if it is missing or malformed."""
    address = options.store or world.environ.get("GLIDEPATH_STORE")
    if not address:
        raise ConfigurationError("a fleet needs a database: pass --store postgresql://..., or set GLIDEPATH_STORE")
    if not _has_readable_ports(address):
        raise ConfigurationError(
            "malformed address of the fleet's database: expected something like postgresql://user@host:5432/db"
        )
    return str(address)


def _has_readable_ports(address: str) -> bool:
    """Whether the ports of an address are numbers. The driver's own error might contain the password."""
    from urllib.parse import urlsplit

    try:
        hosts = urlsplit(address).netloc.rpartition("@")[2].split(",")
        ports = [int(port) for host in hosts if (port := host.rpartition("]")[2].partition(":")[2])]
    except ValueError:
        return False
    return all(0 < port < 65536 for port in ports)  # noqa: PLR2004 - the ports there are


def parse_duration(text: str) -> float:
    """A time as people write it, in seconds: 2, 2.5, 10s, 5m, 1h30m."""
    found = parse_seconds(text)
    if not isinstance(found, float):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 10s or 2m")
    return found
