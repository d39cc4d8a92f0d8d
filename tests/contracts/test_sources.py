"""Our source of tools keeps its contract."""

import json
import sys
from pathlib import Path

import pytest

from glidepath.conformance import ToolSourceContract
from glidepath.mcp import McpServer

FAKE = str(Path(__file__).parents[1] / "mcp_client" / "fake_server.py")


@pytest.mark.process
class TestMcpServer(ToolSourceContract):
    subject = McpServer
    answered = ("add", {"a": 2, "b": 3}, "5")
    slow = ("slow", {"steps": 100, "pause": 0.1})

    def make_source(self):
        setup = json.dumps({"tools": ["add", "slow"]})
        return McpServer("fake", command=sys.executable, args=["-S", FAKE, setup])

    def unreachable(self):
        return McpServer("fake", command="no-such-program-anywhere")
