"""glidepath: an agent runtime that always lands.

The names below are imported when they are first used, so that `import glidepath` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from glidepath._version import VERSION

if TYPE_CHECKING:
    from glidepath.agent import (
        Agent,
        AgentBuilder,
        AgentFile,
        Budget,
        ExecutionMode,
        Limits,
        LoopConfig,
        Skill,
        read_agents_md,
    )
    from glidepath.guards import GuardrailsConfig, MaxTokensRecovery, TokenScaling
    from glidepath.guards.approvals import Rules
    from glidepath.plugins import PluginNames
    from glidepath.run import INHERIT, CancelToken, answer, approve, deny
    from glidepath.sessions import Session
    from glidepath.spi import Plugin, ProtocolPolicy, ResourceConstraint, ResourceContext
    from glidepath.tools import Tool, ToolContext, ToolResult, tool
    from glidepath.values.errors import BuilderError, ConfigurationError, GlidepathError, ModelError, ToolError
    from glidepath.values.messages import Usage
    from glidepath.values.outcome import (
        AgentState,
        LoopOutcome,
        ResourceAction,
        ResourceValidation,
        RunResult,
        StopCause,
    )
    from glidepath.values.texts import Texts


__version__ = VERSION

__all__ = [
    "INHERIT",
    "Agent",
    "AgentBuilder",
    "AgentFile",
    "AgentState",
    "Budget",
    "BuilderError",
    "CancelToken",
    "ConfigurationError",
    "ExecutionMode",
    "GlidepathError",
    "GuardrailsConfig",
    "Limits",
    "LoopConfig",
    "LoopOutcome",
    "MaxTokensRecovery",
    "ModelError",
    "Plugin",
    "PluginNames",
    "ProtocolPolicy",
    "ResourceAction",
    "ResourceConstraint",
    "ResourceContext",
    "ResourceValidation",
    "Rules",
    "RunResult",
    "Session",
    "Skill",
    "StopCause",
    "Texts",
    "TokenScaling",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Usage",
    "answer",
    "approve",
    "deny",
    "read_agents_md",
    "tool",
]

_HOMES = {
    "glidepath.agent": (
        "Agent",
        "AgentBuilder",
        "AgentFile",
        "Budget",
        "ExecutionMode",
        "Limits",
        "LoopConfig",
        "Skill",
        "read_agents_md",
    ),
    "glidepath.errors": ("BuilderError", "ConfigurationError", "GlidepathError", "ModelError", "ToolError"),
    "glidepath.guards.approvals": ("Rules",),
    "glidepath.guards": ("GuardrailsConfig", "MaxTokensRecovery", "TokenScaling"),
    "glidepath.messages": ("Usage",),
    "glidepath.outcome": (
        "AgentState",
        "LoopOutcome",
        "ResourceAction",
        "ResourceValidation",
        "RunResult",
        "StopCause",
    ),
    "glidepath.plugins": ("PluginNames",),
    "glidepath.run": ("INHERIT", "CancelToken", "answer", "approve", "deny"),
    "glidepath.sessions": ("Session",),
    "glidepath.spi": ("Plugin", "ProtocolPolicy", "ResourceConstraint", "ResourceContext"),
    "glidepath.texts": ("Texts",),
    "glidepath.tools": ("Tool", "ToolContext", "ToolResult", "tool"),
}
_ELSEWHERE = {
    "glidepath.code": ("CodeMode",),
    "glidepath.constraints": ("KillSwitchConstraint",),
    "glidepath.evals": ("Case", "Dataset", "evaluate"),
    "glidepath.events": ("RunEnded", "StreamChunk", "ToolEnded", "ToolStarted"),
    "glidepath.gate": ("Gate",),
    "glidepath.mcp": ("McpServer",),
    "glidepath.messages": ("AssistantMessage", "FileBlock", "ImageBlock", "UserMessage"),
    "glidepath.models": ("AnthropicModel", "GoogleModel", "LocalModel", "OpenAIChatModel", "OpenAIResponsesModel"),
    "glidepath.observe": ("LogObserver",),
    "glidepath.provenance": ("Provenance",),
    "glidepath.sandbox": ("Sandbox",),
    "glidepath.sessions": ("MemoryStore", "PostgresStore", "SqliteStore"),
    "glidepath.teams": ("Team",),
    "glidepath.testing": ("ScriptedModel", "VirtualClock", "call", "say"),
}
"""Names that people look for here, by the module that has them."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    for home, names in _ELSEWHERE.items():
        if name in names:  # an ImportError, because `from glidepath import NAME` drops the text of an AttributeError
            raise ImportError(f"glidepath has no {name}: from {home} import {name}", name="glidepath")
    raise AttributeError(f"module 'glidepath' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
