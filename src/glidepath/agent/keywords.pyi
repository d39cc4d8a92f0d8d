"""The keywords of `Agent(...)`, as a type for editors and checkers. Made by scripts/make_keywords.py."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from os import PathLike
from typing import Any, Required, TypedDict

from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Limits
from glidepath.agent.skills import AgentFile, Skill
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.guards.approvals import Rules
from glidepath.models import HostedTool
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    OutputContext,
    Plugin,
    PromptContext,
    ProtocolPolicy,
    ResourceConstraint,
    ResourceContext,
    RunInfo,
    SessionStore,
    StopGuard,
    TokenEstimator,
)
from glidepath.texts import Texts
from glidepath.tools import Tool
from glidepath.tools.sources import ToolSource

__all__ = ["AgentChanges", "AgentKeywords", "AgentSettings", "LimitKeywords"]

class _Rest(TypedDict, total=False):
    """Every setting but the model and the types of the output and of `deps`."""

    tools: Iterable[Tool | ToolSource | HostedTool | Callable[..., Any] | str]
    tool_sources: Iterable[ToolSource]
    hosted_tools: Iterable[HostedTool] | Mapping[str, Any]
    handoffs: Iterable[Agent[Any, Any] | str]
    skills: Iterable[Skill | str | PathLike[str]]
    agents: Iterable[AgentFile | str | PathLike[str]]
    system_prompt: str | Callable[[PromptContext[Any]], str | Awaitable[str]]
    limits: Limits
    guardrails: GuardrailsConfig
    texts: Texts
    constraints: Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]
    guards: Iterable[CallGuard | StopGuard | str]
    replace_defaults: bool
    plugins: Iterable[Plugin | str]
    approvals: Rules | None
    store: SessionStore | str | PathLike[str] | None
    event_sink: Callable[[Event], Any] | None
    default_execution_mode: ExecutionMode
    max_tool_calls_per_turn: int | str | None
    max_parallel_tools: int | str
    max_image_bytes: int | str
    max_image_bytes_per_request: int | str
    max_file_bytes: int | str
    tool_timeout: float | str | timedelta | None
    temperature: float | None
    max_output_tokens: int | str | None
    reasoning: str | None
    reasoning_tokens: int | str | None
    task_budget: bool
    tool_choice: str
    strict_tools: bool
    stop_sequences: Iterable[str]
    seed: int | str | None
    logprobs: int | str | None
    extras: Mapping[str, Any] | None
    max_output_tokens_recovery: MaxTokensRecovery | None
    empty_outcome_retry_budget: int | str | None
    plain_text_terminal_fallback_tool: str | None
    plain_text_terminal_fallback_eager: bool
    plain_text_terminal_fallback_eager_nudge: bool
    graceful_turn_limit_message_provider: Callable[[], str] | None
    graceful_turn_limit_grace_provider: Callable[[], int] | None
    landing: str
    conversation_id: str | None
    model_id: str | None
    token_estimator: TokenEstimator | None
    protocol_policy: ProtocolPolicy | None
    context_window: int | str | None
    context_strategy: str | ContextStrategy
    prices: Mapping[str, Any] | None
    unpriced: str | None
    unbounded: bool
    min_output_tokens: int | str
    max_retries: int | str
    fallback_models: Iterable[Model | str]
    durability: str
    output_retries: int | str
    output_validators: Iterable[Callable[[OutputContext[Any]], Any]]
    deps_factory: Callable[[RunInfo], Any] | None
    agent_name: str
    start_timeout: float | str | timedelta | None
    connect_timeout: float | str | timedelta | None
    first_chunk_timeout: float | str | timedelta | None
    stall_timeout: float | str | timedelta | None
    call_timeout: float | str | timedelta | None
    hook_timeout: float | str | timedelta
    constraint_timeout: float | str | timedelta
    kill_switch_grace: float | str | timedelta
    debug: bool
    thinking_tags: bool

class AgentChanges(_Rest, total=False):
    """What `agent.replace(...)` takes: any setting but `output_type`."""

    model: Model | str

class AgentSettings(_Rest, total=False):
    """What `Agent(model, ...)` takes beside its model."""

class AgentKeywords(_Rest, total=False):
    """What `Agent(...)` takes: the settings, of which only the model is needed."""

    model: Required[Model | str]

class LimitKeywords(TypedDict, total=False):
    """What `Limits(...)` takes."""

    max_iterations: int | str | None
    max_tokens: int | str | None
    max_cost: Decimal | str | float | None
    timeout: float | str | timedelta | None
    max_tool_calls: int | str | None
    max_depth: int | str
    max_descendants: int | str
    grace_iterations: int | str | None
    landing_tokens: int | str
    landing_seconds: float | str | timedelta
    scope: str
