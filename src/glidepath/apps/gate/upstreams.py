"""Where the gate sends calls: an address, the dialect it speaks, and whose credentials go there."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from glidepath._wire import Value, settle_field
from glidepath.apps.server.locks import is_loopback
from glidepath.values import ConfigurationError, close_to

DIALECTS = ("anthropic", "openai", "openai-chat", "openai-responses", "gemini")
MODES = ("passthrough", "swap")
VENDORS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
"""The vendors' own addresses, for a gate that is told no other."""
CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"x-goog-api-key"))
"""Headers that say who calls, in any dialect."""

_VERSION = re.compile(r"/(v\d+[a-z]*\d*)\Z")
_KEY_HEADERS = {"anthropic": b"x-api-key", "gemini": b"x-goog-api-key"}
_FRESH = 1.0  # seconds for which the file of a key is believed
_LARGEST_KEY = 16_384  # bytes


class Upstream(Value, frozen=True):
    """One provider behind the gate.

    `mode` says whose credentials go there: `passthrough` sends the client's own, to this host only; `swap` replaces the
    gate's key by `key`, which is a reference: `env:NAME` or `file:PATH`. `auth="bearer"` sends a key as a bearer token
    where the dialect would use another header. Times are seconds. Certificates are PEM files; they are always checked.
    """

    name: str
    dialect: str
    url: str
    mode: str = "swap"
    key: str | None = None
    auth: str | None = None
    connect_timeout: float = 10.0
    first_byte_timeout: float = 600.0
    idle_timeout: float = 300.0
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    def __post_init__(self) -> None:
        _check_choice(self, "dialect", self.dialect, DIALECTS)
        _check_choice(self, "mode", self.mode, MODES)
        _check_choice(self, "auth", self.auth, (None, "bearer"))
        settle_field(self, "url", _check_url(self))
        _check_key(self)
        for field in ("connect_timeout", "first_byte_timeout", "idle_timeout"):
            seconds = getattr(self, field)
            if not isinstance(seconds, (int, float)) or not 0 < seconds <= 86_400:  # noqa: PLR2004 - a day
                raise _wrong(self, field, f"must be seconds, more than 0 and at most a day, not {seconds!r:.60}")
        if self.client_key is not None and self.client_cert is None:
            raise _wrong(self, "client_key", "needs client_cert as well")

    @property
    def host(self) -> str:
        """The host it is at."""
        return urlsplit(self.url).hostname or ""

    def serves(self, dialect: str) -> bool:
        """True when requests of this dialect can go there; `openai` takes both of OpenAI's."""
        return dialect == self.dialect or dialect.partition("-")[0] == self.dialect

    def address(self, path: str) -> str:
        """The whole address for a path that begins with /v1 or /v1beta; a version in our own URL takes its place."""
        if _VERSION.search(self.url) is None:
            return self.url + path
        return self.url + path[path.index("/", 1) :]

    def key_header(self, secret: str) -> tuple[bytes, bytes]:
        """The header that carries the provider's key."""
        header = None if self.auth == "bearer" else _KEY_HEADERS.get(self.dialect)
        return (header, secret.encode()) if header else (b"authorization", b"Bearer " + secret.encode())


def _wrong(upstream: Upstream, field: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"upstream {upstream.name!r:.60}: {field} {why}")


def _check_choice(upstream: Upstream, field: str, value: object, known: Sequence[str | None]) -> None:
    if value in known:
        return
    names = [one for one in known if one is not None]
    meant = close_to(str(value), names)
    hint = f"; did you mean {meant!r}?" if meant else ""
    raise _wrong(upstream, field, f"{value!r:.60} is not one of {', '.join(names)}{hint}")


def _check_url(upstream: Upstream) -> str:
    """The URL without a slash at its end, and without a version that the client's own path brings along."""
    try:
        parts = urlsplit(upstream.url)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        raise _wrong(upstream, "url", f"{upstream.url!r:.80} is not an address") from None
    example = "write it as https://host or http://127.0.0.1:PORT, with a path if it has one"
    if parts.scheme not in ("http", "https") or not host or port == 0 or not upstream.url.isascii():
        raise _wrong(upstream, "url", f"{upstream.url!r:.80} is not an http or https address: {example}")
    if parts.username is not None or parts.query or parts.fragment or any(one <= " " for one in upstream.url):
        raise _wrong(upstream, "url", f"must have no user name, query or fragment: {example}")
    if parts.scheme == "http" and not is_loopback(host) and (upstream.mode == "passthrough" or upstream.key):
        raise _wrong(
            upstream,
            "url",
            f"{upstream.url!r:.80} would send credentials in the clear: use https, or a loopback address",
        )
    url = upstream.url.rstrip("/")
    return re.sub(r"/v1(beta|alpha)?\Z", "", url)


def _check_key(upstream: Upstream) -> None:
    if upstream.key is None:
        return
    if upstream.mode == "passthrough":
        raise _wrong(upstream, "key", "is for mode 'swap': in passthrough the client's own credentials are sent")
    kind, _, name = upstream.key.partition(":") if isinstance(upstream.key, str) else ("", "", "")
    if kind not in ("env", "file") or not name:
        raise _wrong(upstream, "key", "must be a reference, not the key itself: write env:NAME or file:PATH")


class KeyReference:
    """A provider's key, read where its reference says; a file is read again when it changes."""

    def __init__(self, upstream: Upstream, environ: Mapping[str, str]) -> None:
        self._upstream = upstream
        self._environ = environ
        self._looked = -_FRESH
        self._stamp: tuple[int, int] | None = None
        self._secret = ""

    def read(self) -> str | None:
        """The key; None for an upstream that needs none. Raises `ConfigurationError`."""
        if self._upstream.key is None:
            return None
        kind, _, name = self._upstream.key.partition(":")
        if kind == "env":
            secret = self._environ.get(name, "").strip()
            if not secret:
                raise _wrong(self._upstream, "key", f"env:{name}: there is no such variable: export {name}=...")
            return _check_secret(self._upstream, secret)
        now = time.monotonic()
        if now - self._looked >= _FRESH:
            self._read_file(Path(name).expanduser())
            self._looked = now
        return self._secret

    def _read_file(self, path: Path) -> None:
        try:
            file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                found = os.fstat(file)
                if not stat.S_ISREG(found.st_mode):
                    raise _wrong(self._upstream, "key", f"file:{path} is not a file")
                if found.st_mode & 0o077 and os.name != "nt":
                    raise _wrong(self._upstream, "key", f"file:{path} can be read by others: run chmod 600 {path}")
                stamp = (found.st_mtime_ns, found.st_ino)
                if stamp == self._stamp:
                    return
                secret = os.read(file, _LARGEST_KEY).decode("utf-8", "replace").strip()
            finally:
                os.close(file)
        except OSError as error:
            raise _wrong(self._upstream, "key", f"file:{path} cannot be read: {error.strerror}") from None
        if not secret:
            raise _wrong(self._upstream, "key", f"file:{path} is empty: write the provider's key into it")
        self._secret, self._stamp = _check_secret(self._upstream, secret), stamp


def _check_secret(upstream: Upstream, secret: str) -> str:
    if not secret.isascii() or not secret.isprintable():
        raise _wrong(
            upstream, "key", f"{upstream.key} has characters that no key has: it must be one line of plain text"
        )
    return secret


def read_upstreams(given: object) -> tuple[Upstream, ...]:
    """What a caller gave for `upstream`: a URL for every dialect, a mapping of dialects to URLs, or `Upstream`s."""
    if isinstance(given, Upstream):
        return (given,)
    if isinstance(given, str):
        return tuple([Upstream(dialect, dialect, given) for dialect in VENDORS])
    if isinstance(given, Mapping):
        return tuple([Upstream(str(dialect), str(dialect), url) for dialect, url in given.items()])
    if isinstance(given, Sequence) and given and all(isinstance(one, Upstream) for one in given):
        found = tuple(given)
        names = [one.name for one in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"two upstreams are named {twice!r:.60}: give each its own name")
        return found
    raise ConfigurationError(
        f"upstream must be a URL, a mapping such as {{'anthropic': URL}}, or Upstream objects, not {given!r:.80}"
    )
