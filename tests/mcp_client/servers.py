"""Servers and agents for the tests of this folder."""

import json
import sys
from pathlib import Path

from glidepath import Agent, Limits
from glidepath.mcp import McpServer
from glidepath.testing import ScriptedModel

FAKE = str(Path(__file__).with_name("fake_server.py"))
ERAS = ("legacy", "modern")


def fake(name="fake", *, setup=None, era="legacy", **settings):
    """A server of ours that does what `setup` says."""
    told = json.dumps({"era": era, **(setup or {})})
    return McpServer(name, command=sys.executable, args=["-S", FAKE, told], **settings)


def agent_with(turns, *tools, **settings):
    """An agent that has these tools and follows a script."""
    settings.setdefault("limits", Limits(max_iterations=20))
    return Agent(model=ScriptedModel(turns), tools=list(tools), **settings)


def results(result):
    """The results of a run's calls, in order."""
    return [message for message in result.messages if message.role == "tool_result"]


async def collect(agent, prompt="go", **keywords):
    """The result of a run, and its events."""
    events = []
    async with agent.stream(prompt, **keywords) as stream:
        async for event in stream:
            events.append(event)
    return stream.result, events
