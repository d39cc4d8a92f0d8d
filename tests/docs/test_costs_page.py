"""What the page about costs says about this release and about its peers is so."""

import importlib.util
import re
import subprocess

import pytest
from tests.extension_points import EXTENSION_POINTS

from glidepath.models import HOSTS
from glidepath.outcome import LoopOutcome
from glidepath.spi import HOOKS
from glidepath.values import stability_of

from .pages import ROOT
from .test_surface import load

TEXT = (ROOT / "docs" / "what-it-costs.md").read_text(encoding="utf-8")
PEERS = {  # environment: what the page says is in it
    "langgraph_wire": [
        "langgraph.graph:StateGraph",
        "langgraph.store",
        "langgraph.cache",
        "langchain_core.vectorstores",
    ],
    "openai_agents": [
        "agents.voice",
        "agents.realtime",
        *(f"agents:{name}" for name in ("handoff", "WebSearchTool", "FileSearchTool", "ComputerTool")),
    ],
    "pydantic_ai_wire": ["pydantic_ai.durable_exec"],
}
LOOK = """
import importlib, importlib.util, sys
for path in sys.argv[1:]:
    module, _, name = path.partition(":")
    assert getattr(importlib.import_module(module), name) if name else importlib.util.find_spec(module), path
"""
COUNT = "import pkgutil, pydantic_ai.providers as p; print(len([*pkgutil.iter_modules(p.__path__)]))"


def test_the_figures_about_this_release_are_right():
    marks = [load(point.port) for point in EXTENSION_POINTS if point.name not in HOOKS]
    assert all(stability_of(port).level == "experimental" for port in marks)
    chat = sum(host.adapter == "chat" for host in HOSTS.values())
    assert f"All {len(EXTENSION_POINTS)} extension points" in TEXT
    assert f"{len(HOSTS)} prefixes for model strings, {chat} of them" in TEXT
    assert len(LoopOutcome) == 6
    assert "six outcomes" in TEXT


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("environment", PEERS)
def test_the_peers_have_what_the_page_says(environment):
    spec = importlib.util.spec_from_file_location("environments", ROOT / "bench" / "peers" / "environments.py")
    environments = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environments)
    python = environments.make_environment(ROOT / "build" / "peers", environment)
    done = subprocess.run([python, "-c", LOOK, *PEERS[environment]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if environment == "pydantic_ai_wire":
        count = subprocess.run([python, "-c", COUNT], capture_output=True, text=True, check=True).stdout.strip()
        assert re.search(rf"modules for {count}\b", TEXT)
