"""The proxy of a sandbox: listed hosts, and nobody else, whatever is asked of it."""

import socket
import threading
from contextlib import suppress

import pytest

from glidepath.tools.sandbox import host_proxy
from glidepath.tools.sandbox.host_proxy import HostProxy, Listed


def asked(proxy, text):
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(5)
        one.connect(proxy.path)
        one.sendall(text)
        found = b""
        try:
            while chunk := one.recv(4096):
                found += chunk
        except TimeoutError:
            pass
        return found


@pytest.fixture
def echo():
    """A server that says what it was asked, and its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            with one:
                one.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + one.recv(4096))

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    listening.close()


@pytest.fixture
def made():
    proxies = []

    def make(*hosts):
        proxy = HostProxy(hosts)
        proxy.start()
        proxies.append(proxy)
        return proxy

    yield make
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize(
    ("entry", "host", "port", "fits"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "example.com.evil.org", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("[::1]:80", "::1", 80, True),
        ("10.0.0.1", "10.0.0.1", 80, True),
    ],
)
def test_an_entry_fits_exactly_what_it_says(entry, host, port, fits):
    assert Listed(entry).is_allowed(host, port) is fits


def test_a_listed_address_is_reached_by_both_ways(made, echo):
    proxy = made(f"127.0.0.1:{echo}")
    plain = asked(proxy, f"GET http://127.0.0.1:{echo}/path?q HTTP/1.1\r\nProxy-Authorization: x\r\n\r\n".encode())
    assert b"GET /path?q HTTP/1.1\r\n" in plain
    assert b"Proxy-Authorization" not in plain
    tunnel = asked(proxy, f"CONNECT 127.0.0.1:{echo} HTTP/1.1\r\n\r\nhello".encode())
    assert tunnel.startswith(b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert tunnel.endswith(b"hello")


@pytest.mark.parametrize(
    "request_line",
    [
        "CONNECT 127.0.0.1:1 HTTP/1.1",
        "CONNECT localhost:{port} HTTP/1.1",
        "CONNECT allowed@evil.example:{port} HTTP/1.1",
        "GET http://user@localhost:{port}/ HTTP/1.1",
        "CONNECT [::1]:{port} HTTP/1.1",
        "CONNECT 127.1:{port} HTTP/1.1",
        "CONNECT 2130706433:{port} HTTP/1.1",
    ],
)
def test_what_is_not_listed_is_refused_and_noted(made, echo, request_line):
    proxy = made(f"127.0.0.1:{echo}")
    answer = asked(proxy, f"{request_line.format(port=echo)}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert len(proxy.refused) == 1


def test_a_listed_name_that_leads_inward_is_refused(made, echo, monkeypatch):
    real = socket.getaddrinfo
    monkeypatch.setattr(host_proxy.socket, "getaddrinfo", lambda host, port, **more: real("127.0.0.1", port, **more))
    proxy = made(f"rebound.example:{echo}")
    assert asked(proxy, f"CONNECT rebound.example:{echo} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"CONNECT\r\n\r\n", b"CONNECT x:notaport HTTP/1.1\r\n\r\n", b"x" * 40_000],
    ids=["nothing", "empty", "binary", "half", "port", "long"],
)
def test_garbage_ends_its_connection_and_nothing_else(made, echo, garbage):
    proxy = made(f"127.0.0.1:{echo}")
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(proxy.path)
        with suppress(BrokenPipeError):
            one.sendall(garbage)
        one.shutdown(socket.SHUT_WR)
    assert asked(proxy, f"CONNECT 127.0.0.1:{echo} HTTP/1.1\r\n\r\nhi".encode()).endswith(b"hi")


@pytest.mark.parametrize("header", ["Host: inner.example", "HOST : inner.example", "host:inner.example\r\nHost: b"])
def test_the_host_header_names_the_listed_host_whatever_the_program_wrote(made, echo, header):
    proxy = made(f"127.0.0.1:{echo}")
    said = asked(proxy, f"GET http://127.0.0.1:{echo}/ HTTP/1.1\r\n{header}\r\nAccept: */*\r\n\r\n".encode())
    assert b"inner.example" not in said
    assert said.lower().count(b"\r\nhost") == 1
    assert f"Host: 127.0.0.1:{echo}".encode() in said
    assert b"Accept: */*" in said
