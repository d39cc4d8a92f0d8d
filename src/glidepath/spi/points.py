"""The list of extension points: the port of each, our implementations, and why some have none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from glidepath._wire import Value

__all__ = ["EXTENSION_POINTS", "TEXTBOOK", "VIEWS", "ExtensionPoint"]


class ExtensionPoint(Value, frozen=True, kw_only=True):
    """One thing that others can bring: its port as `module:name`, and implementations in this package."""

    name: str
    port: str
    implementations: tuple[str, ...] = ()


_HOOKS = "glidepath.spi:Plugin"

EXTENSION_POINTS: tuple[ExtensionPoint, ...] = (
    ExtensionPoint(
        name="model",
        port="glidepath.spi:Model",
        implementations=(
            "glidepath.testing:ScriptedModel",
            "glidepath.models.anthropic:AnthropicModel",
            "glidepath.models.google:GoogleModel",
        ),
    ),
    ExtensionPoint(
        name="token_estimator",
        port="glidepath.spi:TokenEstimator",
        implementations=("glidepath.context:CharEstimator",),
    ),
    ExtensionPoint(
        name="resource_constraint",
        port="glidepath.spi:ResourceConstraint",
        implementations=("glidepath.constraints:MaxIterationConstraint", "glidepath.constraints:KillSwitchConstraint"),
    ),
    ExtensionPoint(name="protocol_policy", port="glidepath.spi:ProtocolPolicy"),
    ExtensionPoint(
        name="context_strategy",
        port="glidepath.spi:ContextStrategy",
        implementations=("glidepath.context:Compact", "glidepath.context:SlidingWindow"),
    ),
    ExtensionPoint(
        name="call_guard",
        port="glidepath.spi:CallGuard",
        implementations=("glidepath.guards.repetition:RepetitionGuard", "glidepath.guards.streaks:ErrorStreakGuard"),
    ),
    ExtensionPoint(
        name="stop_guard",
        port="glidepath.spi:StopGuard",
        implementations=("glidepath.guards.stops:EmptyAnswerGuard", "glidepath.guards.stops:PrematureEndGuard"),
    ),
    ExtensionPoint(
        name="session_store",
        port="glidepath.spi:SessionStore",
        implementations=("glidepath.sessions:MemoryStore", "glidepath.sessions:SqliteStore"),
    ),
    ExtensionPoint(
        name="session_catalog",
        port="glidepath.spi:Catalog",
        implementations=("glidepath.sessions:MemoryStore", "glidepath.sessions:SqliteStore"),
    ),
    ExtensionPoint(
        name="session_excerpts",
        port="glidepath.spi:Excerpts",
        implementations=("glidepath.sessions:MemoryStore", "glidepath.sessions:SqliteStore"),
    ),
    ExtensionPoint(
        name="session_inbox",
        port="glidepath.spi.sessions:Inbox",
        implementations=("glidepath.sessions:MemoryStore", "glidepath.sessions:SqliteStore"),
    ),
    ExtensionPoint(
        name="wallet_store",
        port="glidepath.spi:WalletStore",
        implementations=("glidepath.sessions:MemoryStore", "glidepath.sessions:SqliteStore"),
    ),
    ExtensionPoint(
        name="team_coordinator",
        port="glidepath.teams.spi:TeamCoordinator",
        implementations=("glidepath.teams:DefaultTaskDispatchCoordinator", "glidepath.teams:ExpertTeamCoordinator"),
    ),
    ExtensionPoint(
        name="evaluation_strategy",
        port="glidepath.teams.spi:EvaluationStrategy",
        implementations=("glidepath.teams:SimpleEvaluationStrategy", "glidepath.teams:AgentEvaluationStrategy"),
    ),
    ExtensionPoint(
        name="before_tool_call",
        port=_HOOKS,
        implementations=("glidepath.plugins:ApprovalGate", "glidepath.provenance:Provenance"),
    ),
    ExtensionPoint(name="after_tool_call", port=_HOOKS),
    ExtensionPoint(name="context_transform", port=_HOOKS),
    ExtensionPoint(
        name="event_observer",
        port=_HOOKS,
        implementations=("glidepath.observe:LogObserver", "glidepath.testing.recorder:_Recording"),
    ),
    ExtensionPoint(
        name="steering",
        port=_HOOKS,
        implementations=("glidepath.plugins:ChannelSteering", "glidepath.teams.mailbox:TeamMailbox"),
    ),
    ExtensionPoint(name="follow_up", port=_HOOKS, implementations=("glidepath.plugins:ChannelSteering",)),
    ExtensionPoint(
        name="tool_gate",
        port=_HOOKS,
        implementations=("glidepath.plugins:OpeningGate", "glidepath.plugins:ToolListGate"),
    ),
    ExtensionPoint(name="context_overflow_recovery", port=_HOOKS),
    ExtensionPoint(
        name="tool_source", port="glidepath.tools.sources:ToolSource", implementations=("glidepath.mcp:McpServer",)
    ),
)
"""Every extension point. A hook of `Plugin` is one of its own."""

TEXTBOOK: Mapping[str, str] = MappingProxyType(
    {
        "token_estimator": "a real tokenizer belongs to a model family and brings a dependency; ours needs none",
        "protocol_policy": "it holds the tool vocabulary of one product, and this package names no tool",
        "after_tool_call": "what to hide or change in a result depends on the data; the guide shows a redaction",
        "context_transform": "what a model should see instead is the application's knowledge; shaping has its own port",
        "follow_up": "what to say to a finished run is the application's; the channel is the one general source",
        "context_overflow_recovery": "the built-in strategies are the default; use this if you can do better",
        "tool_source": "MCP is the protocol everybody speaks; another source brings its own protocol",
    }
)
"""Extension points with fewer than two implementations here, each with its reason."""

VIEWS: tuple[str, ...] = ("Meters", "ToolTraits")
"""Protocols of `spi` that are not extension points: views of ours that others read and never implement."""
