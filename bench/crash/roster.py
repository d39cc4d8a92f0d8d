"""Who is crashed, how, and inside which limits: the agents, the specimens, and the cells that cannot be run."""

from dataclasses import dataclass, replace

from fly import limit_of
from install import installed_version, is_installed
from table import AGENTS, NO_CHILDREN, Agent

import glidepath
from glidepath.apps.gate.wind_tunnel import SCENARIOS, Scenario

CALLS = 8
"""Model calls that a run may make."""
SECONDS = 30
"""Seconds that a run may take from its first call on."""
SEED = 0
OURS = "glidepath"
TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "gemini-cli": "Gemini CLI",
    "langgraph/chat": "LangGraph",
    "openai-agents/responses": "OpenAI Agents",
    "pydantic-ai/chat": "Pydantic AI",
    "vercel-ai/chat": "Vercel AI SDK",
    "smolagents": "smolagents",
    OURS: "glidepath",
}
LEFT_OUT = ("overloaded", "slow-first-byte", "missing-usage", "huge-reply")
"""Scenarios that go as another one does: the table has twenty."""
SPECIMENS = {name: one for name, one in SCENARIOS.items() if name not in LEFT_OUT}
CONTROL = Scenario(name="control", does="Nothing goes wrong: three calls, then the answer.", good="", script="honest")
MODES = ("bare", "gate")
CANNOT = {"sub-agents": "spawn", "ignores-orders": "stubborn", "endless-calls": "loop", "same-call": "same"}
"""Specimens that a program may be unable to express, by the behavior that its row of the table names."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a cell, the same bare and behind the gate."""

    tokens: int
    calls: int = CALLS
    seconds: int = SECONDS


def find_agent(name: str) -> Agent:
    """The agent as its makers ship it; ours has its limits in its program."""
    if name != OURS:
        agent = AGENTS[name]
        return replace(agent, env={**agent.env, "AS_SHIPPED": "1"})
    tokens = str(find_bounds(OURS, "").tokens)
    command = ("@BIN@/python", "@PROGRAMS@/use_glidepath.py", tokens, str(CALLS), str(SECONDS), "@TASK@")
    return Agent(OURS, OURS, "openai-chat", command, cannot={"spawn": NO_CHILDREN})


def find_bounds(name: str, specimen: str) -> Bounds:
    """Room for a dozen calls of the program."""
    return Bounds(limit_of(name, "spawn" if specimen == "sub-agents" else ""))


def find_release(name: str) -> str:
    """The installed release of an agent; nothing where it is missing."""
    if name == OURS:
        return glidepath.__version__
    program = AGENTS[name].program
    return installed_version(program) if is_installed(program) else ""


def why_not(name: str, specimen: str) -> str:
    """Why a cell cannot be run; known before anything runs."""
    return find_agent(name).cannot.get(CANNOT.get(specimen, ""), "")
