"""Upstreams: where calls may go, with which credentials, over TLS and proxies."""

import asyncio
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest

from glidepath.apps.gate import Upstream
from glidepath.apps.gate.upstream_client import UpstreamClient, UpstreamError, _find_proxy, is_bypassed, strip_query
from glidepath.apps.gate.upstreams import KeyReference, read_upstreams
from glidepath.errors import ConfigurationError

from .plain import RawUpstream


@pytest.mark.parametrize(
    ("url", "path", "address"),
    [
        ("https://api.openai.com/v1/", "/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "/v1/responses", "https://api.openai.com/v1/responses"),
        ("https://openrouter.ai/api/v1", "/v1/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://h.example/paas/v4", "/v1/chat/completions", "https://h.example/paas/v4/chat/completions"),
        (
            "https://g.example/v1beta",
            "/v1beta/models/m:generateContent",
            "https://g.example/v1beta/models/m:generateContent",
        ),
    ],
)
def test_the_address_of_a_call(url, path, address):
    assert Upstream("x", "openai", url).address(path) == address


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "file:///etc/passwd"},
        {"url": "https://"},
        {"url": "https://a b"},
        {"url": "https://h.example:99999"},
        {"url": "https://user@h.example"},
        {"url": "https://h.example/?key=1"},
        {"url": "http://h.example", "mode": "passthrough"},
        {"url": "http://h.example", "key": "env:K"},
        {"mode": "open"},
        {"dialect": "cohere"},
        {"key": "sk-itself"},
        {"key": "env:"},
        {"key": "env:K", "mode": "passthrough"},
        {"auth": "basic"},
        {"connect_timeout": 0},
        {"connect_timeout": "5"},
        {"client_key": "k.pem"},
    ],
)
def test_a_wrong_upstream_is_refused(fields):
    with pytest.raises(ConfigurationError, match="upstream 'x': "):
        Upstream(**{"name": "x", "dialect": "openai", "url": "https://h.example", **fields})


def test_upstreams_are_given_in_four_ways():
    one = Upstream("a", "openai", "https://h.example")
    assert read_upstreams(one) == (one,)
    assert [each.dialect for each in read_upstreams("https://h.example")] == ["anthropic", "openai", "gemini"]
    assert read_upstreams({"gemini": "https://h.example"})[0].serves("gemini")
    with pytest.raises(ConfigurationError, match="two upstreams are named 'a'"):
        read_upstreams([one, one])
    with pytest.raises(ConfigurationError, match="upstream must be"):
        read_upstreams(7)


def test_a_key_in_a_file_is_read_again_when_it_was_rotated(tmp_path, monkeypatch):
    file = tmp_path / "key"
    file.write_text("sk-old\n")
    file.chmod(0o600)
    key = KeyReference(Upstream("x", "openai", "https://h.example", key=f"file:{file}"), {})
    assert key.read() == "sk-old"
    file.write_text("sk-new\n")
    assert key.read() == "sk-old"  # believed for a second
    later = time.monotonic() + 2
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert key.read() == "sk-new"


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [(0o644, "sk", "chmod 600"), (0o600, "", "is empty"), (0o600, "a\nb", "one line"), (None, "", "cannot be read")],
)
def test_the_file_of_a_key_must_be_private_and_hold_one(mode, text, words, tmp_path):
    file = tmp_path / "key"
    if mode is not None:
        file.write_text(text)
        file.chmod(mode)
    key = KeyReference(Upstream("x", "openai", "https://h.example", key=f"file:{file}"), {})
    with pytest.raises(ConfigurationError, match=words):
        key.read()


@pytest.mark.parametrize(
    ("host", "rules", "bypassed"),
    [
        ("api.example.com", "example.com", True),
        ("api.example.com", ".example.com", True),
        ("badexample.com", "example.com", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "192.168.0.0/16, 127.0.0.1", False),
        ("h.example", "*", True),
        ("h.example", "", False),
        ("h.example", "h.example:443", True),
    ],
)
def test_no_proxy_is_understood(host, rules, bypassed):
    assert is_bypassed(host, rules) is bypassed


def test_proxies_come_from_the_environment():
    secure, plain = Upstream("x", "openai", "https://h.example"), Upstream("x", "openai", "http://127.0.0.1:1")
    assert _find_proxy(secure, {"HTTPS_PROXY": "http://p:8"}) == "http://p:8"
    assert _find_proxy(secure, {"https_proxy": "p:8", "HTTPS_PROXY": "http://q:8"}) == "http://p:8"
    assert _find_proxy(secure, {"ALL_PROXY": "http://p:8"}) == "http://p:8"
    assert _find_proxy(secure, {"HTTP_PROXY": "http://p:8"}) is None
    assert _find_proxy(plain, {"HTTP_PROXY": "http://p:8", "NO_PROXY": "127.0.0.1"}) is None


def test_only_the_named_parameter_leaves_a_query():
    assert strip_query(b"alt=sse&key=a%20b&x=1&monkey=2", b"key") == b"alt=sse&x=1&monkey=2"
    assert strip_query(b"key=1", b"key") == b""


def certificates(folder):
    """A certificate authority, a server's certificate by it, and a client's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    made = {}

    def make(name, issuer=None):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
        builder = builder.issuer_name(subject if issuer is None else issuer[1].subject)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        if issuer is None:
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[0].public_key())
            builder = builder.add_extension(authority, critical=False)
        certificate = builder.sign(key if issuer is None else issuer[0], hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        made[name] = (key, certificate)
        return made[name]

    authority = make("ca")
    make("localhost", authority)
    make("client", authority)


class SecureUpstream(RawUpstream):
    """The same over TLS; `asks` for a certificate of the client's."""

    def __init__(self, folder, *, asks=False):
        super().__init__()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "localhost.pem", folder / "localhost.key")
        if asks:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(folder / "ca.pem")

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self


def call(upstream, environ=()):
    async def run():
        client = UpstreamClient([upstream], dict(environ))
        try:
            reply = await client.send("POST", upstream, "/v1/messages", b"", [], b"{}")
            return reply.status, await reply.read_whole(1000)
        finally:
            await client.close()

    return run()


def test_tls_is_checked_with_the_authority_that_was_named_and_cannot_be_turned_off(tmp_path):
    certificates(tmp_path)

    async def play():
        async with SecureUpstream(tmp_path) as server:
            url = f"https://localhost:{server.port}"
            trusted = Upstream("x", "anthropic", url, ca_file=str(tmp_path / "ca.pem"))
            assert (await call(trusted))[0] == 200
            with pytest.raises(UpstreamError, match="certificate that cannot be trusted"):
                await call(Upstream("x", "anthropic", url))
            other = Upstream("x", "anthropic", f"https://127.0.0.1:{server.port}", ca_file=str(tmp_path / "ca.pem"))
            with pytest.raises(UpstreamError, match="certificate that cannot be trusted"):
                await call(other)

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_client_certificate_is_shown_where_one_is_asked_for(tmp_path):
    certificates(tmp_path)

    async def play():
        async with SecureUpstream(tmp_path, asks=True) as server:
            fields = {"url": f"https://localhost:{server.port}", "ca_file": str(tmp_path / "ca.pem")}
            own = {"client_cert": str(tmp_path / "client.pem"), "client_key": str(tmp_path / "client.key")}
            assert (await call(Upstream("x", "anthropic", **fields, **own)))[0] == 200
            with pytest.raises(UpstreamError):
                await call(Upstream("x", "anthropic", **fields))

    asyncio.run(asyncio.wait_for(play(), 30))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        UpstreamClient([Upstream("x", "anthropic", "https://a.example", ca_file=str(tmp_path / "none.pem"))], {})


def test_the_authority_may_come_from_ssl_cert_file(tmp_path, monkeypatch):
    certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    async def play():
        async with SecureUpstream(tmp_path) as server:
            return await call(Upstream("x", "anthropic", f"https://localhost:{server.port}"))

    assert asyncio.run(asyncio.wait_for(play(), 30))[0] == 200


def test_a_proxy_is_asked_to_connect_and_gets_no_credentials(tmp_path):
    certificates(tmp_path)
    asked = []

    async def tunnel(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        host, _, port = head.split(b" ")[1].decode().partition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source, target):
            while data := await source.read(4096):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def play():
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        async with SecureUpstream(tmp_path) as server:
            upstream = Upstream(
                "x", "anthropic", f"https://localhost:{server.port}", key="env:K", ca_file=str(tmp_path / "ca.pem")
            )
            found = await call(upstream, {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "K": "sk-secret"})
            proxy.close()
            return found, server.heads[0], server.port

    found, head, port = asyncio.run(asyncio.wait_for(play(), 30))
    assert found[0] == 200
    assert asked[0].startswith(f"CONNECT localhost:{port} ".encode())
    assert b"sk-secret" not in asked[0]
    assert b"x-api-key: sk-secret" in head


def test_an_address_that_accepts_nothing_is_given_up_in_time():
    async def play():
        upstream = Upstream("x", "anthropic", "https://localhost:1", connect_timeout=0.5)
        began = time.monotonic()
        with pytest.raises(UpstreamError, match="cannot be reached"):
            await call(upstream)
        return time.monotonic() - began

    assert asyncio.run(play()) < 5
