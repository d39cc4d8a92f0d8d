"""`glidepath gate serve` and `gate env`: a process of its own, with keys from a file and from a store."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from .test_run import Provider, environment

pytestmark = pytest.mark.process
ANN = "ann-has-a-key-of-her-own"
CARL = "carl-has-a-key-of-his-own"


class Served:
    """A gate that serves, from a gate.toml in a folder."""

    def __init__(self, folder, provider, more="", store="none"):
        self.folder = folder
        self.store = store
        path = folder / "gate.toml"
        path.write_text(
            f'[upstreams.claude]\ndialect = "anthropic"\nurl = "{provider.url}"\nkey = "env:REAL_KEY"\n'
            f'[keys.ann]\nkey = "env:ANN_KEY"\nmodels = ["claude-*"]\n{more}'
        )
        path.chmod(0o600)
        self.environ = environment(
            XDG_DATA_HOME=str(folder / "data"), HOME=str(folder), REAL_KEY="sk-real", ANN_KEY=ANN
        )

    def command(self, *words):
        return [sys.executable, "-m", "glidepath", "gate", *words]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command("serve", "--config", "gate.toml", "--port", "0", "--store", self.store),
            cwd=self.folder,
            env=self.environ,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = self.process.stderr.readline()
        assert "The gate is at http://127.0.0.1:" in line, line + self.process.stderr.read()
        self.url = line.split("The gate is at ")[1].split(";")[0]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)
        self.process.stderr.close()

    def env(self, *words):
        return subprocess.run(
            self.command("env", *words), cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )

    def ask(self, key=ANN, model="claude-sonnet-4-5", path="/run-1", url=None):
        body = {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        request = urllib.request.Request(
            f"{url or self.url}{path}/v1/messages", json.dumps(body).encode(), {"x-api-key": key}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def test_keys_of_the_file_are_let_in_and_their_models_hold(provider, tmp_path):
    with Served(tmp_path, provider) as gate:
        assert gate.ask()[0] == 200
        assert gate.ask(key="somebody-else-entirely")[0] == 401
        status, error = gate.ask(model="gpt-5")
        assert (status, "not allowed" in error["error"]["message"]) == (403, True)
    headers = {name.lower(): value for name, value in provider.seen[0][0].items()}
    assert headers["x-api-key"] == "sk-real"
    assert len(provider.seen) == 1


def test_two_gates_on_one_store_hold_a_share_of_a_window_together(provider, tmp_path):
    more = 'window = "max"\nshare = 0.25\n[windows.max]\nper = "5h"\nmax_tokens = 4_000\n'
    with Served(tmp_path, provider, more, "kept") as one, Served(tmp_path, provider, more, "kept") as other:
        for number in range(20):
            for gate in (one, other):
                status, reply = gate.ask(path=f"/run-{number}")
                assert (status, reply["stop_reason"]) == (200, "end_turn")
    assert 10 <= len(provider.seen) <= 20  # 50 tokens each, of 1,000


def test_a_user_with_two_keys_at_two_gates_has_one_budget(provider, tmp_path):
    digest = hashlib.sha256(CARL.encode()).hexdigest()
    more = f'max_tokens = 5_000\n[keys.carl]\ndigest = "{digest}"\nmax_tokens = 300\n[users.dora]\nmax_tokens = 1_000\n'
    models = {ANN: "claude-sonnet-4-5", CARL: "claude-opus-4-5"}
    with Served(tmp_path, provider, more, "kept") as one, Served(tmp_path, provider, more, "kept") as other:
        calls = [(gate, key, n) for n in range(10) for gate in (one, other) for key in models]
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda call: call[0].ask(call[1], models[call[1]], f"/dora/run-{call[2]}"), calls))
    assert {status for status, _ in told} == {200}
    used = Counter(body["model"] for _, body in provider.seen)  # 50 tokens each
    assert 2 <= used[models[CARL]] <= 6, "his key bounds whoever comes with it"
    assert 10 <= used.total() <= 20, "she has 1,000 tokens, whichever key she comes with"


def test_it_has_the_deck_and_shows_its_runs_there(provider, tmp_path):
    served = Served(tmp_path, provider)
    token = served.environ["GLIDEPATH_SERVE_TOKEN"] = "a-token-of-the-operator"
    with served as gate:
        assert gate.ask()[0] == 200
        assert gate.ask(path="/gate/run-2")[0] == 200  # the same gate: where `glidepath serve` has it
        assert gate.ask(path="", key=token)[0] == 401

        def look(secret):
            headers = {"authorization": f"Bearer {secret}"}
            with urllib.request.urlopen(urllib.request.Request(f"{gate.url}/api/runs", headers=headers)) as reply:
                return json.load(reply)["runs"]

        found = look(token)
        assert {card["session_id"] for card in found} == {"gate:ann:run-1", "gate:ann:run-2"}
        assert all(card["foreign"] and card["who"] == "ann" for card in found)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            look(ANN)
        head = urllib.request.Request(gate.url, method="HEAD")
        assert urllib.request.urlopen(head).status == 200


def test_gate_env_points_a_shell_of_the_same_user_at_it(provider, tmp_path):
    with Served(tmp_path, provider) as gate:
        shown = gate.env("--line", "bob/run-7")
        assert shown.returncode == 0, shown.stderr
        script = f"{shown.stdout}\nenv"
        told = subprocess.run(["sh", "-c", script], env={}, capture_output=True, text=True, check=True).stdout
        found = dict(line.partition("=")[::2] for line in told.splitlines())
        assert found["ANTHROPIC_BASE_URL"] == f"{gate.url}/bob/run-7"
        assert found["GLIDEPATH_GATE_URL"] == found["ANTHROPIC_BASE_URL"]
        assert "OPENAI_BASE_URL" not in found
        assert gate.ask(key=found["ANTHROPIC_API_KEY"], url=found["ANTHROPIC_BASE_URL"], path="")[0] == 200
        [note] = (tmp_path / "data").rglob("gate-*.json")
        assert note.stat().st_mode & 0o077 == 0
    assert list((tmp_path / "data").rglob("gate-*.json")) == []
    gone = gate.env()
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "no gate of yours runs" in gone.stderr


def test_sigterm_lets_calls_finish(provider, tmp_path):
    slow = threading.Event()

    class Slow(Provider):
        def parse_request(self):
            slow.set()
            time.sleep(1.5)
            return super().parse_request()

    provider.RequestHandlerClass = Slow
    with Served(tmp_path, provider) as gate:
        found = []
        asking = threading.Thread(target=lambda: found.append(gate.ask()))
        asking.start()
        assert slow.wait(10)
        os.kill(gate.process.pid, signal.SIGTERM)
        asking.join(20)
        gate.process.wait(20)
    assert found[0][0] == 200


def test_the_server_of_agents_has_a_gate_under_its_own_path(provider, tmp_path):
    gate = Served(tmp_path, provider)
    (tmp_path / "own.py").write_text(
        "from glidepath import Agent, testing\nagent = Agent(model=testing.ScriptedModel([]))\n"
    )
    token = "a-token-of-the-operator"
    flags = ["--agent", "own:agent", "--gate", "gate.toml", "--port", "0", "--no-browser", "--store", "none"]
    process = subprocess.Popen(
        [sys.executable, "-m", "glidepath", "serve", *flags],
        cwd=tmp_path,
        env={**gate.environ, "GLIDEPATH_SERVE_TOKEN": token},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        url = ""
        while "A gate for other agents: " not in url:
            url = process.stderr.readline()
            assert url, "it ended"
        url = url.split("agents: ")[1].split(",")[0]
        assert url.endswith("/gate")
        base = url.removesuffix("/gate")
        for _ in range(100):
            try:
                urllib.request.urlopen(f"{base}/readyz", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        assert gate.ask(url=url)[0] == 200
        assert gate.ask(key=token, url=url)[0] == 200
        assert gate.ask(key="somebody-else-entirely", url=url)[0] == 401
        assert gate.ask(url=base, path="")[0] in (401, 404, 405)  # /v1/* are our own agents
        request = urllib.request.Request(f"{base}/api/runs", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert reply.status == 200
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--config", "none.toml"], "cannot be read"),
        (["--config", "gate.toml", "--host", "0.0.0.0"], "--behind-proxy"),
        (["--config", "gate.toml", "--port", "99999"], "--port"),
        (["--config", "gate.toml", "--tls-cert", "x"], "--tls-key"),
        ([], "--config"),
    ],
)
def test_a_gate_that_cannot_serve_says_why(provider, tmp_path, words, says):
    gate = Served(tmp_path, provider)
    done = subprocess.run(
        gate.command("serve", *words), cwd=tmp_path, env=gate.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert says in done.stderr
