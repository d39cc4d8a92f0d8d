"""The secrets of a server: from the environment or a file, never from the command line, which every user can read."""

from __future__ import annotations

import argparse
import os
import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

LAST_PORT = 65_535
TOKEN, VIEW_TOKEN = "GLIDEPATH_SERVE_TOKEN", "GLIDEPATH_SERVE_VIEW_TOKEN"
_LARGEST = 4096  # bytes of a token's file


class GivenSecrets(Value, frozen=True, kw_only=True):
    """The token and the view token that the operator gave; None for one that was not given."""

    token: str | None = None
    view: str | None = None

    def tokens(self) -> Any:
        """What `app` takes: a random token where none was given."""
        if self.view is None:
            return self.token
        import secrets

        return {self.token or secrets.token_urlsafe(32): "control", self.view: "view"}


def check_secrets(options: argparse.Namespace, world: CliContext, *, has_keys: bool = False) -> GivenSecrets:
    """The secrets; raises `ConfigurationError` for an address that needs more of them than there are.

    With keys of its own, a server can be reached from elsewhere without a token that somebody has chosen.
    """
    from glidepath.apps.server.locks import check_bind

    if not 0 <= options.port <= LAST_PORT:
        raise ConfigurationError(f"--port must be between 0 and {LAST_PORT}, not {options.port}")
    token = _read_secret(options, world, "token", TOKEN)
    view = _read_secret(options, world, "view_token", VIEW_TOKEN)
    check_tls(options)
    check_bind(
        options.host,
        token=has_keys or token is not None,
        tls=options.tls_cert is not None,
        behind_proxy=options.behind_proxy,
    )
    return GivenSecrets(token=token, view=view)


def _read_secret(options: argparse.Namespace, world: CliContext, name: str, variable: str) -> str | None:
    flag = f"--{name.replace('_', '-')}"
    if getattr(options, name) is not None:
        raise ConfigurationError(
            f"{flag} would show the secret to every user of this machine, who can read your command line: set "
            f"{variable}, or pass {flag}-file FILE"
        )
    path = getattr(options, f"{name}_file")
    if path is None:
        return world.environ.get(variable) or None
    return read_secret(f"{flag}-file", world.folder / Path(path).expanduser())


def read_secret(flag: str, path: Path) -> str:
    """The secret in a file; raises `ConfigurationError` for one that others can read."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise ConfigurationError(f"{flag}: {path} cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and os.name != "nt":
            raise ConfigurationError(f"{flag}: other users can read {path}: run chmod 600 {path}")
        secret = os.read(file, _LARGEST).decode("utf-8", "replace").strip()
    finally:
        os.close(file)
    if not secret:
        raise ConfigurationError(f"{flag}: {path} is empty: write the token into it")
    return secret


def check_tls(options: argparse.Namespace) -> None:
    """Raise `ConfigurationError` for a certificate without its key, or one that cannot be used."""
    if (options.tls_cert is None) != (options.tls_key is None):
        given, other = ("--tls-cert", "--tls-key") if options.tls_cert else ("--tls-key", "--tls-cert")
        raise ConfigurationError(f"{given} needs {other} as well")
    if options.tls_cert is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"--tls-cert and --tls-key cannot be used: {why}") from None
