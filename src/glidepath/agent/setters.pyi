"""Every setting as a method of a builder. Made by scripts/make_keywords.py from the declarations."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from os import PathLike
from typing import Any, Self

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

__all__ = ["Setters"]

class Setters:
    """One method for every setting. Each takes effect on this object and returns it."""

    _values: dict[str, Any]
    _parts: dict[str, dict[str, Any]]
    def _set(self, field: str, value: object) -> Self: ...
    def _add(self, field: str, value: object) -> Self: ...
    def model(self, value: Model | str) -> Self:
        """An object with name and stream(request), or its name such as anthropic:claude-sonnet-4-5."""
    def tools(self, value: Iterable[Tool | ToolSource | HostedTool | Callable[..., Any] | str]) -> Self:
        """Tool objects, functions, sources such as McpServer, hosted tools, or names of installed tools."""
    def tool_sources(self, value: Iterable[ToolSource]) -> Self:
        """Where MCP servers and other sources in tools end up; what they offer is known when a run starts."""
    def hosted_tools(self, value: Iterable[HostedTool] | Mapping[str, Any]) -> Self:
        """Tools that run at the model's provider, such as WebSearch(max_uses=5); in tools they are found, too."""
    def handoffs(self, value: Iterable[Agent[Any, Any] | str]) -> Self:
        """Agents, or names of agents that take part, to which the conversation may be handed over."""
    def skills(self, value: Iterable[Skill | str | PathLike[str]]) -> Self:
        """Skill objects, and folders of skills."""
    def agents(self, value: Iterable[AgentFile | str | PathLike[str]]) -> Self:
        """AgentFile objects, and paths of agent files."""
    def system_prompt(self, value: str | Callable[[PromptContext[Any]], str | Awaitable[str]]) -> Self:
        """What the model is told first, or a function of the run's context that writes it."""
    def limits(self, value: Limits) -> Self:
        """What one run may use, its descendants included."""
    def guardrails(self, value: GuardrailsConfig) -> Self:
        """Safety nets against loops, truncation and silence."""
    def texts(self, value: Texts) -> Self:
        """The exact words the runtime tells the model."""
    def constraints(self, value: Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]) -> Self:
        """Your own constraints, functions, or names of installed ones, asked after the built-in ones. They add up."""
    def guards(self, value: Iterable[CallGuard | StopGuard | str]) -> Self:
        """Your own call and stop guards, or names of installed ones, asked after the built-in ones. They add up."""
    def replace_defaults(self, value: bool = ...) -> Self:
        """Drop the built-in constraints; needs constraints."""
    def plugins(self, value: Iterable[Plugin | str]) -> Self:
        """Plugins, or names of installed ones, in calling order. They add up."""
    def approvals(self, value: Rules | None) -> Self:
        """Rules about which calls run without asking, which ask a person, and which never run."""
    def store(self, value: SessionStore | str | PathLike[str] | None) -> Self:
        """Where sessions are kept: a store, or the path of a SQLite file such as `'sessions.db'`."""
    def event_sink(self, value: Callable[[Event], Any] | None) -> Self:
        """A callable that sees every event first."""
    def default_execution_mode(self, value: ExecutionMode) -> Self:
        """Whether the calls of one reply run in parallel."""
    def max_tool_calls_per_turn(self, value: int | str | None) -> Self:
        """Tool calls of one reply that are run."""
    def max_parallel_tools(self, value: int | str) -> Self:
        """Tool calls that run at the same time."""
    def max_image_bytes(self, value: int | str) -> Self:
        """Maximum bytes of one picture."""
    def max_image_bytes_per_request(self, value: int | str) -> Self:
        """Maximum bytes of all pictures and files of a request; older ones are left out."""
    def max_file_bytes(self, value: int | str) -> Self:
        """Maximum bytes of one document, recording or video."""
    def tool_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds for one tool call."""
    def temperature(self, value: float | None) -> Self:
        """Passed to the model."""
    def max_output_tokens(self, value: int | str | None) -> Self:
        """Output cap of one model call."""
    def reasoning(self, value: str | None) -> Self:
        """How hard the model should think; passed to the model."""
    def reasoning_tokens(self, value: int | str | None) -> Self:
        """How many tokens the model may think, where it takes a number."""
    def task_budget(self, value: bool = ...) -> Self:
        """Tell the model how many tokens its run has left, where its provider takes that."""
    def tool_choice(self, value: str) -> Self:
        """Auto, required, none, or the name of a tool."""
    def strict_tools(self, value: bool = ...) -> Self:
        """Hold the model to the tools' schemas, where the provider can."""
    def stop_sequences(self, value: Iterable[str]) -> Self:
        """Texts at which a reply stops; passed to the model."""
    def seed(self, value: int | str | None) -> Self:
        """Passed to the model."""
    def logprobs(self, value: int | str | None) -> Self:
        """Alternatives to report with each token of a reply, with their probabilities."""
    def extras(self, value: Mapping[str, Any] | None) -> Self:
        """Passed to the model's provider unchanged."""
    def max_output_tokens_recovery(self, value: MaxTokensRecovery | None) -> Self:
        """A MaxTokensRecovery: ask again for truncated replies with a larger cap. Needs `max_output_tokens`."""
    def empty_outcome_retry_budget(self, value: int | str | None) -> Self:
        """How many stops without a tool call may be answered in a row."""
    def plain_text_terminal_fallback_tool(self, value: str | None) -> Self:
        """The tool that a plain-text stop counts as calling."""
    def plain_text_terminal_fallback_eager(self, value: bool = ...) -> Self:
        """Count it as a call of that tool at once. Needs `plain_text_terminal_fallback_tool`."""
    def plain_text_terminal_fallback_eager_nudge(self, value: bool = ...) -> Self:
        """Nudge first, at most twice. Needs `plain_text_terminal_fallback_eager`."""
    def graceful_turn_limit_message_provider(self, value: Callable[[], str] | None) -> Self:
        """A function that returns the text of the wind-down notice."""
    def graceful_turn_limit_grace_provider(self, value: Callable[[], int] | None) -> Self:
        """A function that returns the grace, called at every turn. Needs `max_iterations`."""
    def landing(self, value: str) -> Self:
        """What happens at a limit: withdraw the tools, steer, force the answer, or off."""
    def conversation_id(self, value: str | None) -> Self:
        """Given to hooks and events."""
    def model_id(self, value: str | None) -> Self:
        """The model's name as hooks see it."""
    def token_estimator(self, value: TokenEstimator | None) -> Self:
        """An object with estimate(text) -> int; None: by characters, over-estimating."""
    def protocol_policy(self, value: ProtocolPolicy | None) -> Self:
        """A ProtocolPolicy: terminal tool names, alias repair, words for hidden tools."""
    def context_window(self, value: int | str | None) -> Self:
        """Tokens the model can read; 0 is off."""
    def context_strategy(self, value: str | ContextStrategy) -> Self:
        """How a long transcript is made to fit: compact, clear, sliding_window, summarize, none, a ContextStrategy."""
    def prices(self, value: Mapping[str, Any] | None) -> Self:
        """{model name: (input, output)} in dollars per million tokens."""
    def unpriced(self, value: str | None) -> Self:
        """Estimate:MODEL, the model whose price to use when none is known."""
    def unbounded(self, value: bool = ...) -> Self:
        """Allow a run without any limit."""
    def min_output_tokens(self, value: int | str) -> Self:
        """An output cap is never lowered below this to make a call fit."""
    def max_retries(self, value: int | str) -> Self:
        """Attempts after the first when a model call fails."""
    def fallback_models(self, value: Iterable[Model | str]) -> Self:
        """Models to fall back to, in order."""
    def durability(self, value: str) -> Self:
        """When the store writes to disk. Needs `store`."""
    def output_type(self, value: object) -> Self:
        """The type of the final answer."""
    def output_retries(self, value: int | str) -> Self:
        """How often in a row the model may be asked for another answer than one that does not do."""
    def output_validators(self, value: Iterable[Callable[[OutputContext[Any]], Any]]) -> Self:
        """Functions that see a typed answer: they change it, or raise AskAgain. They add up. Needs `output_type`."""
    def deps_type(self, value: object) -> Self:
        """The type of what is passed as run(deps=...)."""
    def deps_factory(self, value: Callable[[RunInfo], Any] | None) -> Self:
        """Makes the deps of a run that got none, for example in a worker: a plain function of RunInfo."""
    def agent_name(self, value: str) -> Self:
        """The agent's name in events and breakdowns."""
    def start_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds to wait for a shared budget before the run starts; None: as long as it takes."""
    def connect_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds to connect to the provider."""
    def first_chunk_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds to the first piece of a reply."""
    def stall_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds between two pieces of a reply."""
    def call_timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds for one attempt at a model call."""
    def hook_timeout(self, value: float | str | timedelta) -> Self:
        """Seconds for one answer of an async hook."""
    def constraint_timeout(self, value: float | str | timedelta) -> Self:
        """Seconds for one answer of a constraint."""
    def kill_switch_grace(self, value: float | str | timedelta) -> Self:
        """How many seconds a kill switch may be unreadable before it counts as thrown."""
    def debug(self, value: bool = ...) -> Self:
        """Log the text and the traceback of errors in your tools, hooks, constraints, observers and models."""
    def thinking_tags(self, value: bool = ...) -> Self:
        """Hide <think> and its synonyms from the visible text."""
    def max_iterations(self, value: int | str | None) -> Self:
        """Model turns, those of descendants included; at least 1."""
    def max_tokens(self, value: int | str | None) -> Self:
        """Input and output together, descendants included."""
    def max_cost(self, value: Decimal | str | float | None) -> Self:
        """Dollars, best as a str or Decimal, descendants included."""
    def timeout(self, value: float | str | timedelta | None) -> Self:
        """Seconds for the whole run."""
    def max_tool_calls(self, value: int | str | None) -> Self:
        """Tool calls in total."""
    def max_depth(self, value: int | str) -> Self:
        """How deep agents may be spawned."""
    def max_descendants(self, value: int | str) -> Self:
        """How many agents may be spawned."""
    def grace_iterations(self, value: int | str | None) -> Self:
        """Turns between notice and limit; None chooses, 0 sends no notice. Needs `max_iterations`."""
    def landing_tokens(self, value: int | str) -> Self:
        """Tokens kept back for the landing answer."""
    def landing_seconds(self, value: float | str | timedelta) -> Self:
        """Seconds for the landing call; at most a quarter of timeout."""
    def scope(self, value: str) -> Self:
        """Whether the limits bound each run, or all runs of a session together."""
    def max_tokens_recoveries(self, value: int | str) -> Self:
        """Continuations of a truncated answer; 0 is off."""
    def max_repeated_tool_steps(self, value: int | str) -> Self:
        """Repeats of the same calls until the tools are withdrawn; 0 is off."""
    def max_error_streak(self, value: int | str) -> Self:
        """Equal errors in a row until the tool is withdrawn; 0 is off."""
    def read_only_loop_threshold(self, value: int | str | None) -> Self:
        """Steps of read-only tools until a nudge; 8 is a good start."""
    def max_premature_end_recoveries(self, value: int | str) -> Self:
        """Re-prompts after an empty reply to a tool error; 0 is off."""
    def max_empty_recoveries(self, value: int | str) -> Self:
        """Re-prompts after an empty answer; 0 is off."""
    def reserve_tokens(self, value: int | str) -> Self:
        """Tokens left above the reserve at which the model is told to wrap up."""
    def reserve_cost_fraction(self, value: Decimal | str | float) -> Self:
        """Share of the money at which the model is told to wrap up."""
