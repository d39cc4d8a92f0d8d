"""The way out for a sandbox with a list of hosts: our HTTP proxy, on a socket that only its bridge has.

It connects to listed hosts and to nobody else. Names are resolved here, outside, and a name that leads to this machine
or to a private network is refused unless it was listed as an address or as `localhost`: a name server could send the
sandbox anywhere otherwise.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glidepath.values import ConfigurationError, is_public, read_address

MOST_CONNECTIONS = 64
MOST_HEADER = 16_384
PATIENCE = 15.0  # seconds to connect, and for a header to come
_DEFAULT_PORTS = (80, 443)
_MOST_PORT = 65_535


class Listed:
    """One entry of a list of hosts: a name, `*.name`, or an address, with a port or without."""

    def __init__(self, text: str) -> None:
        if "://" in text:
            scheme = text.partition("://")[0]
            raise ConfigurationError(f"network={text!r:.80} is a URL; write its host alone, without '{scheme:.20}://'")
        host = text
        ports: tuple[int, ...] = _DEFAULT_PORTS
        if text.startswith("["):
            host, _, rest = text[1:].partition("]")
            ports = (_port(text, rest[1:]),) if rest else ports
        elif text.count(":") == 1:
            host, _, rest = text.partition(":")
            ports = (_port(text, rest),)
        self.suffix = host.startswith("*.")
        self.host = host.removeprefix("*.").rstrip(".").lower()
        self.ports = ports
        self.inward = self.host == "localhost" or _address(self.host) is not None
        if not self.host or any(one in self.host for one in "/*@ \t\n\\") or "\0" in self.host:
            raise ConfigurationError(
                f"network={text!r:.80} is not a host; write 'example.com', '*.example.com', 'example.com:8443' or an "
                "address"
            )

    def is_allowed(self, host: str, port: int) -> bool:
        """True when the sandbox may go there."""
        host = host.rstrip(".").lower()
        mine = host.endswith(f".{self.host}") if self.suffix else host == self.host
        return mine and port in self.ports


def _port(text: str, digits: str) -> int:
    if not digits.isdigit() or not 0 < int(digits) <= _MOST_PORT:
        raise ConfigurationError(
            f"network={text!r:.80}: {digits!r:.20} is not a port; use a number from 1 to {_MOST_PORT}"
        )
    return int(digits)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def parse_hosts(hosts: Sequence[str]) -> tuple[Listed, ...]:
    """The entries of a list; raises `ConfigurationError` for a malformed one."""
    return tuple(Listed(host) for host in hosts)


class SandboxDoor:
    """A way out of one sandbox, on a socket that only its bridge has: from `start` to `close`, on its own threads."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="glidepath-proxy-")
        self.path = str(Path(self._folder.name) / "proxy")
        self._listener = socket.socket(socket.AF_UNIX)
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._closed = False

    def start(self) -> None:
        """Listen."""
        self._listener.bind(self.path)
        Path(self.path).chmod(0o600)
        self._listener.listen(MOST_CONNECTIONS)
        threading.Thread(target=self._serve, name="glidepath-sandbox-proxy", daemon=True).start()

    def close(self) -> None:
        """Cut every connection, and listen no more."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._folder.cleanup()

    def _serve(self) -> None:
        while not self._closed:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                inner.close()
                continue
            threading.Thread(target=self._handle_connection, args=(inner,), daemon=True).start()

    def _handle_connection(self, inner: socket.socket) -> None:
        self._open.add(inner)
        outer: socket.socket | None = None
        try:
            inner.settimeout(PATIENCE)
            outer = self._connect_outward(inner)
            if outer is not None:
                self._open.add(outer)
                back = threading.Thread(target=_copy, args=(outer, inner), daemon=True)
                back.start()
                _copy(inner, outer)
                back.join()
        except (OSError, ValueError):
            return
        finally:
            self._slots.release()
            for one in (inner, outer):
                if one is not None:
                    self._open.discard(one)
                    one.close()

    def _connect_outward(self, inner: socket.socket) -> socket.socket | None:
        """Where what comes from inside goes; None when it may not go anywhere."""
        raise NotImplementedError


class PortDoor(SandboxDoor):
    """Leads to one port of this machine's loopback address and nowhere else."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def _connect_outward(self, inner: socket.socket) -> socket.socket | None:
        outer = _open_connection("127.0.0.1", self._port, inward=True)
        for one in (inner, outer):
            if one is not None:
                one.settimeout(None)
        return outer


class HostProxy(SandboxDoor):
    """An HTTP proxy that connects to the listed hosts."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = parse_hosts(hosts)
        super().__init__()
        self.refused: list[str] = []
        """Where the sandbox wanted to go and may not."""

    def _connect_outward(self, inner: socket.socket) -> socket.socket | None:
        """A connection to where the header says, and the answer to it; None when it may not be made."""
        header = _header(inner)
        if header is None:
            return None
        head, rest = header
        lines = head.split(b"\r\n")
        method, target, *_ = lines[0].decode("ascii", "replace").split(" ")
        tunnel = method == "CONNECT"
        authority = target if tunnel else target.removeprefix("http://").split("/", 1)[0]
        if not tunnel and not target.startswith("http://"):
            _refuse(inner, 400, "this is a proxy: ask for an http:// address")
            return None
        host, port = _split(authority, 443 if tunnel else 80)
        entry = next((one for one in self._hosts if one.is_allowed(host, port)), None)
        if entry is None:
            self.refused.append(f"{host}:{port}"[:200])
            _refuse(inner, 403, f"{host[:100]}:{port} is not among the hosts of this sandbox")
            return None
        outer = _open_connection(host, port, inward=entry.inward)
        if outer is None:
            _refuse(inner, 502, f"{host[:100]}:{port} cannot be reached")
            return None
        for one in (inner, outer):
            one.settimeout(None)
        if tunnel:
            inner.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            outer.sendall(rest)
        else:
            # Its own Host could name another site of the same server, which is not in the list.
            kept = [line for line in lines[1:] if not line.lower().startswith((b"proxy-", b"connection:", b"host"))]
            kept.insert(0, b"Host: " + authority.rpartition("@")[2].encode("ascii", "replace"))
            path = "/" + target.removeprefix("http://").partition("/")[2]
            first = f"{method} {path} HTTP/1.1".encode("ascii", "replace")
            # One request a connection: the next one may be for another host.
            outer.sendall(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + rest)
        return outer


def _header(inner: socket.socket) -> tuple[bytes, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = inner.recv(4096)
        if not chunk or len(data) > MOST_HEADER:
            return None
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _split(authority: str, default: int) -> tuple[str, int]:
    authority = authority.rpartition("@")[2]
    if authority.startswith("["):
        host, _, rest = authority[1:].partition("]")
        return host, int(rest[1:] or default)
    host, _, port = authority.partition(":")
    return host, int(port or default)


def _refuse(inner: socket.socket, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} glidepath\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    inner.sendall(head.encode() + body)


def _open_connection(host: str, port: int, *, inward: bool) -> socket.socket | None:
    """A connection to one of the host's addresses, each of which is looked at first."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        if not inward and not is_public(read_address(str(address[0]))):
            continue
        outer = socket.socket(family, kind, protocol)
        try:
            outer.settimeout(PATIENCE)
            outer.connect(address)
        except OSError:
            outer.close()
            continue
        return outer
    return None


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def free_port() -> int:
    """A port for the bridge; inside it has its own network, where every port is free."""
    return 3128 + os.getpid() % 1000
