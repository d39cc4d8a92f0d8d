"""The keywords of `Agent(...)`, as a type for editors and checkers. Made by scripts/make_keywords.py."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Required, TypedDict

from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Budget, Limits
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.run import CancelToken, Decision, Inherit
from glidepath.sessions import Session
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    Plugin,
    ProtocolPolicy,
    ResourceConstraint,
    ResourceContext,
    RunInfo,
    SessionStore,
    StopGuard,
    TokenEstimator,
)
from glidepath.texts import Texts
from glidepath.tools import Tool, ToolContext
from glidepath.tools.sources import ToolSource

__all__ = ["AgentChanges", "AgentKeywords", "ResumeKeywords", "RunKeywords"]

class _Rest(TypedDict, total=False):
    """Every setting but the model and the types of the output and of `deps`."""

    tools: Iterable[Tool | ToolSource | Callable[..., Any] | str]
    tool_sources: Iterable[ToolSource]
    system_prompt: str
    limits: Limits
    guardrails: GuardrailsConfig
    texts: Texts
    constraints: Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]
    guards: Iterable[CallGuard | StopGuard | str]
    replace_defaults: bool
    plugins: Iterable[Plugin | str]
    store: SessionStore | None
    event_sink: Callable[[Event], Any] | None
    default_execution_mode: ExecutionMode
    max_tool_calls_per_turn: int | None
    max_parallel_tools: int
    max_image_bytes: int
    max_image_bytes_per_request: int
    max_file_bytes: int
    tool_timeout: float | None
    temperature: float | None
    max_output_tokens: int | None
    reasoning: str | None
    tool_choice: str
    strict_tools: bool
    stop_sequences: Iterable[str]
    seed: int | None
    logprobs: int | None
    extras: Mapping[str, Any] | None
    max_output_tokens_recovery: MaxTokensRecovery | None
    empty_outcome_retry_budget: int | None
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
    context_window: int | None
    context_strategy: str | ContextStrategy
    prices: Mapping[str, Any] | None
    unpriced: str | None
    unbounded: bool
    min_output_tokens: int
    max_retries: int
    fallback_models: Iterable[Model | str]
    durability: str
    deps_factory: Callable[[RunInfo], Any] | None
    agent_name: str
    connect_timeout: float | None
    first_chunk_timeout: float | None
    stall_timeout: float | None
    call_timeout: float | None
    hook_timeout: float
    constraint_timeout: float
    kill_switch_grace: float
    thinking_tags: bool

class AgentChanges(_Rest, total=False):
    """What `agent.replace(...)` takes: any setting but `output_type`."""

    model: Model | str

class AgentKeywords(_Rest, total=False):
    """What `Agent(...)` takes: the settings, of which only the model is needed."""

    model: Required[Model | str]

class RunKeywords(TypedDict, total=False):
    """What `run_sync` takes, as `run` does."""

    session: str | Session | None
    cancel: CancelToken | None
    parent: Budget | ToolContext | Inherit | None
    deps: Any
    limits: Limits | None
    system_prompt: str | None
    model: Model | str | None
    extras: Mapping[str, Any] | None
    tool_choice: str | None
    metadata: Mapping[str, str] | None
    user: str | None

class ResumeKeywords(TypedDict, total=False):
    """What `resume_sync` takes, as `resume` does."""

    decisions: Mapping[str, Decision] | None
    limits: Limits | None
    cancel: CancelToken | None
    parent: Budget | None
    deps: Any
    system_prompt: str | None
    model: Model | str | None
    extras: Mapping[str, Any] | None
    tool_choice: str | None
    metadata: Mapping[str, str] | None
    user: str | None
    accept_repair: bool
