"""Another program behind `glidepath gate serve`, in a real browser: tree and gauges live, landed, raised, stopped."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import anthropic
import pytest
from tests.gate.foreign import fly_anthropic

from .conftest import CONTROL, Server, free_port

KEY = "gate-key-of-the-browser-0123"
CONFIG = """
[upstreams.claude]
dialect = "anthropic"
url = "{url}"
key = "env:UP"

[limits]
max_tokens = {limit}

[keys.ann]
key = "env:ANN"
"""


class Gate(Server):
    """`glidepath gate serve` before a scripted provider whose model never stops."""

    def __init__(self, folder):
        self.folder, self.port, self.limit = folder, free_port(), 400_000
        upstream = [sys.executable, "-m", "glidepath.testing.upstream", "--behavior", "loop", "--pace", "0.02"]
        self.provider = subprocess.Popen(upstream, stdout=subprocess.PIPE, text=True)
        url = next(word for word in self.provider.stdout.readline().split() if word.startswith("http"))
        (folder / "gate.toml").write_text(CONFIG.format(url=url, limit=self.limit))
        (folder / "gate.toml").chmod(0o600)
        self.start()

    def start(self):
        env = os.environ | {"UP": "sk-x", "ANN": KEY, "GLIDEPATH_SERVE_TOKEN": CONTROL, "HOME": str(self.folder)}
        flags = ["--config", "gate.toml", "--port", str(self.port), "--store", "kept.db"]
        command = [sys.executable, "-m", "glidepath", "gate", "serve", *flags]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)
        self.until(self.alive, "the gate to answer")

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        self.provider.terminate()
        self.provider.wait(10)
        self.provider.stdout.close()

    def work(self, name, **headers):
        """A program that knows nothing of glidepath, in a thread of its own, until its model answers."""
        found = []
        named = {one.replace("_", "-"): value for one, value in headers.items()}

        def fly():
            url = f"{self.base}/{name}"
            with contextlib.suppress(anthropic.PermissionDeniedError):  # the call after a stop
                found.append(asyncio.run(fly_anthropic(url, KEY, headers=named, most=400, task=f"Tidy up {name}.")))

        thread = threading.Thread(target=fly)
        thread.start()
        return thread, found

    def turns(self, name):
        def found():
            try:
                return self.detail(f"gate:ann:{name}")["turn"] >= 3
            except urllib.error.HTTPError:  # it has not called yet
                return False

        return self.until(found, f"{name} to work")


@pytest.fixture(scope="module")
def gate(built, tmp_path_factory):
    found = Gate(tmp_path_factory.mktemp("gate"))
    yield found
    found.close()


def test_a_foreign_run_is_live_with_its_tree_and_gauges_and_is_landed_by_keyboard(deck, gate):
    main = {"x_claude_code_session_id": "s-1"}
    thread, found = gate.work("attic", **main)
    gate.turns("attic")
    child, _ = gate.work("attic", **main, x_claude_code_agent_id="a-1")
    tab = deck(server=gate)
    tab.page.wait_for_selector("text=Tidy up attic.")
    gate.until(lambda: gate.detail("gate:ann:attic")["children"], "the sub-agent")
    tab.open("gate:ann:attic")
    tab.page.wait_for_selector("[data-gauge=tokens] [role=meter]")
    tab.page.wait_for_selector("text=claude-code/a-1")
    spans = gate.ask("/api/runs/gate:ann:attic/timeline")["spans"]
    call = next(span for span in spans if span["kind"] == "model" and "ended" in span)
    request = gate.ask(f"/api/runs/gate:ann:attic/request?at={call['started']!r}")
    assert (request["note"], request["messages"][0]["text"]) == ("", "Tidy up attic.")
    assert request["tools"]
    assert request["parameters"]["max_tokens"] > 0
    first = gate.detail("gate:ann:attic")["turn"]
    gate.until(lambda: gate.detail("gate:ann:attic")["turn"] > first + 2, "more turns")
    tab.press("l")
    tab.fill(reason="enough for today")
    tab.confirm()
    tab.said("Land")
    thread.join(30)
    child.join(30)
    assert found[0].text.startswith("SCRIPTED-ANSWER after")
    assert ("land", "enough for today") in [control[:2] for control in gate.controls("gate:ann:attic")]


def test_limits_are_raised_and_the_run_is_stopped_in_the_deck(deck, gate):
    thread, _ = gate.work("cellar")
    gate.turns("cellar")
    gate.ask("/api/runs/gate:ann:cellar/limits", {"limits": {"max_tokens": 900_000}, "reason": "go on"})
    tab = deck(server=gate)
    tab.open("gate:ann:cellar")
    tab.page.wait_for_selector("[data-gauge=tokens] [role=meter][aria-valuemax='900000']")
    tab.press("x")
    tab.fill(reason="wrong cellar")
    tab.confirm()
    tab.said("stopped in")
    thread.join(30)
    detail = gate.detail("gate:ann:cellar")
    assert (detail["state"], detail["outcome"], detail["limits"]["tokens"]) == ("ended", "cancelled", 900_000)
    assert not thread.is_alive()


def test_the_page_and_the_gate_share_one_address(gate):
    with urllib.request.urlopen(f"{gate.base}/", timeout=5) as reply:
        assert b"<html" in reply.read()
