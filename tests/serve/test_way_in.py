"""A whole server as an operator starts it: no secret on a command line or in a log, and a store of its own."""

import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from .live import HERE, free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CODE = re.compile(r"#code=([A-Za-z0-9_-]{43})")


class Operated:
    """`glidepath serve` with a data folder of its own, and what it said and left."""

    def __init__(self, folder, *flags, command=("serve",), **environ):
        self.folder, self.port = Path(folder), free_port()
        self.data = self.folder / "data"
        self.browser = self.folder / "browser"
        self.browser.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.argv.new"\nmv "$0.argv.new" "$0.argv"\n')
        self.browser.chmod(0o755)
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith("GLIDEPATH_")}
        self.environ |= {"PYTHONPATH": str(HERE), "XDG_DATA_HOME": str(self.data), "BROWSER": str(self.browser)}
        self.environ |= environ
        self.command = [*command, "--agent", "fleet_agents:worker", "--port", str(self.port), *flags]
        self.log = self.folder / "server.log"
        self.scheme, self.verify = "http", True

    def run(self, *words):
        command = [sys.executable, "-m", "glidepath", *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def get(self, path, secret):
        return httpx.get(f"{self.url}{path}", headers={"authorization": f"Bearer {secret}"}, verify=self.verify)

    def __enter__(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "glidepath", *self.command],
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5, verify=self.verify).status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
            assert self.process.poll() is None, self.log.read_text()
        raise AssertionError("the server did not come up")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def waited(path):
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.05)
    return path.read_text()


@pytest.mark.process
def test_the_browser_gets_a_file_of_its_owner_with_a_code_that_opens_once(tmp_path):
    with Operated(tmp_path, "--store", "none") as server:
        asked = waited(server.folder / "browser.argv").split()
        (page,) = (server.data / "glidepath").glob("open-deck-*.html")
        assert asked == [page.as_uri()]
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        first = CODE.search(page.read_text())[1]
        log = server.log.read_text()
        assert first not in log
        assert "token=" not in log
        assert page.as_uri() in log
        answer = httpx.post(f"{server.url}/api/unlock", json={"code": first})
        token = answer.json()["token"]
        assert server.get("/api/info", token).json()["role"] == "control"
        assert httpx.post(f"{server.url}/api/unlock", json={"code": first}).status_code == 401
        second = CODE.search(page.read_text())[1]
        assert second != first
        assert httpx.post(f"{server.url}/api/unlock", json={"code": second}).json()["token"] == token
        command_line = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode()
        assert token not in command_line
        assert token not in server.log.read_text()
    assert not page.exists()


@pytest.mark.process
def test_a_server_does_not_show_its_operators_chats(tmp_path):
    server = Operated(tmp_path, "--no-browser", GLIDEPATH_SERVE_TOKEN="t" * 20, GLIDEPATH_SERVE_VIEW_TOKEN="v" * 20)
    (tmp_path / "private.py").write_text(
        "from glidepath.testing import ScriptedModel, say\nm = ScriptedModel().forever(lambda _: say('noted'))\n"
    )
    server.run("run", "--name", "diary", "-m", "python:private:m", "--tools", "none", "My salary is 4711.")
    with server:
        for secret in ("v" * 20, "t" * 20):
            assert server.get("/api/runs", secret).json()["runs"] == []
        key = server.run("keys", "add", "web", "--role", "run")
        headers = {"authorization": f"Bearer {key}"}
        body = {"agent": "worker", "prompt": "hello"}
        assert httpx.post(f"{server.url}/api/runs", json=body, headers=headers).status_code == 201
        (card,) = server.get("/api/runs", "v" * 20).json()["runs"]
        assert card["who"] == "web"
        server.run("keys", "revoke", "web")
        assert server.get("/api/runs", key).status_code == 401  # while the server runs
    assert "diary" in server.run("sessions", "list")
    assert "hello" in server.run("sessions", "list", "--store", "serve")


@pytest.mark.process
def test_mcp_over_http_is_the_same_server(tmp_path):
    command = ("mcp", "serve", "--http")
    with Operated(tmp_path, command=command, GLIDEPATH_SERVE_TOKEN="t" * 20) as server:
        assert httpx.post(f"{server.url}/mcp", json={}).status_code == 401
        assert server.get("/api/info", "t" * 20).json()["agents"][0]["name"] == "worker"
        assert f"{server.port}/mcp" in server.log.read_text()
        assert not (server.folder / "browser.argv").exists()


@pytest.mark.process
def test_a_server_speaks_tls_with_a_certificate(tmp_path):
    cert, key = certificate(tmp_path)
    flags = ("--no-browser", "--tls-cert", str(cert), "--tls-key", str(key), "--store", "none")
    server = Operated(tmp_path, *flags, GLIDEPATH_SERVE_TOKEN="t" * 20)
    server.scheme, server.verify = "https", ssl.create_default_context(cafile=str(cert))
    with server:
        assert server.get("/api/info", "t" * 20).status_code == 200
        assert f"https://127.0.0.1:{server.port}/" in server.log.read_text()
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/healthz")


def certificate(folder):
    """A certificate for 127.0.0.1 and its key."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return cert_file, key_file


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing")
def test_chromium_opens_the_deck_from_the_file(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    with Operated(tmp_path, "--no-browser", "--store", "none") as server:
        (page,) = (server.data / "glidepath").glob("open-deck-*.html")
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            tab = browser.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("text=No runs yet")
            assert "code" not in tab.url
            assert "token" not in tab.url
            browser.close()
