"""The extension points, for the tests and pages that look at each: its port, our implementations, and why some have
fewer than two."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from glidepath.values import Value


class ExtensionPoint(Value, frozen=True, kw_only=True):
    """One thing that others can implement: its port as `module:name`, and the implementations in this package."""

    name: str
    port: str
    implementations: tuple[str, ...] = ()


_POINTS: Mapping[str, tuple[str, ...]] = {  # in `glidepath`: the port first, then our implementations
    "model": ("spi:Model", "testing:ScriptedModel", "models.anthropic:AnthropicModel", "models.google:GoogleModel"),
    "token_estimator": ("spi:TokenEstimator", "context:CharEstimator"),
    "resource_constraint": (
        "spi:ResourceConstraint",
        "constraints:MaxIterationConstraint",
        "constraints:KillSwitchConstraint",
    ),
    "protocol_policy": ("spi:ProtocolPolicy",),
    "context_strategy": ("spi:ContextStrategy", "context:Compact", "context:SlidingWindow"),
    "call_guard": ("spi:CallGuard", "guards.repetition:RepetitionGuard", "guards.streaks:ErrorStreakGuard"),
    "stop_guard": ("spi:StopGuard", "guards.stops:EmptyAnswerGuard", "guards.stops:PrematureEndGuard"),
    "session_store": ("spi:SessionStore", "sessions:MemoryStore", "sessions:SqliteStore"),
    "session_catalog": ("spi:Catalog", "sessions:MemoryStore", "sessions:SqliteStore"),
    "session_excerpts": ("spi:Excerpts", "sessions:MemoryStore", "sessions:SqliteStore"),
    "session_inbox": ("spi.sessions:Inbox", "sessions:MemoryStore", "sessions:SqliteStore"),
    "wallet_store": ("spi:WalletStore", "sessions:MemoryStore", "sessions:SqliteStore"),
    "team_coordinator": (
        "teams.spi:TeamCoordinator",
        "teams:DefaultTaskDispatchCoordinator",
        "teams:ExpertTeamCoordinator",
    ),
    "evaluation_strategy": (
        "teams.spi:EvaluationStrategy",
        "teams:SimpleEvaluationStrategy",
        "teams:AgentEvaluationStrategy",
    ),
    "before_tool_call": ("spi:Plugin", "plugins:ApprovalGate", "provenance:Provenance"),
    "after_tool_call": ("spi:Plugin",),
    "context_transform": ("spi:Plugin",),
    "event_observer": ("spi:Plugin", "observe:LogObserver", "testing.recorder:_Recording"),
    "steering": ("spi:Plugin", "plugins:ChannelSteering", "teams.mailbox:TeamMailbox"),
    "follow_up": ("spi:Plugin", "plugins:ChannelSteering"),
    "tool_gate": ("spi:Plugin", "plugins:OpeningGate", "plugins:ToolListGate"),
    "context_overflow_recovery": ("spi:Plugin",),
    "tool_source": ("tools.sources:ToolSource", "mcp:McpServer"),
}

EXTENSION_POINTS: tuple[ExtensionPoint, ...] = tuple(
    ExtensionPoint(
        name=name,
        port=f"glidepath.{port}",
        implementations=tuple(f"glidepath.{one}" for one in implementations),
    )
    for name, (port, *implementations) in _POINTS.items()
)
"""Every extension point. Each hook of `Plugin` counts as one."""

TEXTBOOK: Mapping[str, str] = MappingProxyType(
    {
        "token_estimator": "a real tokenizer belongs to a model family and brings a dependency; ours needs none",
        "protocol_policy": "it holds the tool vocabulary of one product, and this package names no tool",
        "after_tool_call": "what to hide or change in a result depends on the data; the guide shows a redaction",
        "context_transform": "only the application knows what a model should see instead; shaping has its own port",
        "follow_up": "what to say to a finished run is up to the application; the channel is the one general source",
        "context_overflow_recovery": "the built-in strategies are the default; use this if you can do better",
        "tool_source": "MCP is the protocol everybody speaks; another source brings its own protocol",
    }
)
"""Extension points with fewer than two implementations here, each with its reason."""

VIEWS: tuple[str, ...] = ("Meters", "ToolTraits")
"""Protocols of `spi` that are not extension points: others read them and never implement them."""
