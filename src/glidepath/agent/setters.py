"""Every setting as a method of a builder. Made by scripts/make_keywords.py from the declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Self

from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Limits
from glidepath.agent.said import Said
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
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
from glidepath.tools import Tool
from glidepath.tools.sources import ToolSource

__all__ = ["Setters"]


class Setters(Said):
    """One method for every setting. Each takes effect on this object and returns it."""

    def model(self, value: Model | str) -> Self:
        """An object with name and stream(request), or its name such as anthropic:claude-sonnet-4-5."""
        return self._set("model", value)

    def tools(self, value: Iterable[Tool | ToolSource | Callable[..., Any] | str]) -> Self:
        """Tool objects, functions, sources such as McpServer, or names of installed tools."""
        return self._list("tools", value)

    def tool_sources(self, value: Iterable[ToolSource]) -> Self:
        """Where MCP servers and other sources in tools end up; what they offer is known when a run starts."""
        return self._list("tool_sources", value)

    def system_prompt(self, value: str) -> Self:
        """What the model is told first."""
        return self._set("system_prompt", value)

    def limits(self, value: Limits) -> Self:
        """What one run may use, its descendants included."""
        return self._set_all("limits", value)

    def guardrails(self, value: GuardrailsConfig) -> Self:
        """Safety nets against loops, truncation and silence."""
        return self._set_all("guardrails", value)

    def texts(self, value: Texts) -> Self:
        """The exact words the runtime tells the model."""
        return self._set("texts", value)

    def constraints(self, value: Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]) -> Self:
        """Your own constraints, functions, or names of installed ones, asked after the built-in ones. They add up."""
        return self._add("constraints", value)

    def guards(self, value: Iterable[CallGuard | StopGuard | str]) -> Self:
        """Your own call and stop guards, or names of installed ones, asked after the built-in ones. They add up."""
        return self._add("guards", value)

    def replace_defaults(self, value: bool = True) -> Self:
        """Drop the built-in constraints; needs constraints."""
        return self._set("replace_defaults", value)

    def plugins(self, value: Iterable[Plugin | str]) -> Self:
        """Plugins, or names of installed ones, in calling order. They add up."""
        return self._add("plugins", value)

    def store(self, value: SessionStore | None) -> Self:
        """Where sessions are kept."""
        return self._set("store", value)

    def event_sink(self, value: Callable[[Event], Any] | None) -> Self:
        """A callable that sees every event first."""
        return self._set("event_sink", value)

    def default_execution_mode(self, value: ExecutionMode) -> Self:
        """Whether the calls of one reply run in parallel."""
        return self._set("default_execution_mode", value)

    def max_tool_calls_per_turn(self, value: int | None) -> Self:
        """Tool calls of one reply that are run."""
        return self._set("max_tool_calls_per_turn", value)

    def max_parallel_tools(self, value: int) -> Self:
        """Tool calls that run at the same time."""
        return self._set("max_parallel_tools", value)

    def max_image_bytes(self, value: int) -> Self:
        """Maximum bytes of one picture."""
        return self._set("max_image_bytes", value)

    def max_image_bytes_per_request(self, value: int) -> Self:
        """Maximum bytes of all pictures and files of a request; older ones are left out."""
        return self._set("max_image_bytes_per_request", value)

    def max_file_bytes(self, value: int) -> Self:
        """Maximum bytes of one document, recording or video."""
        return self._set("max_file_bytes", value)

    def tool_timeout(self, value: float | None) -> Self:
        """Seconds for one tool call."""
        return self._set("tool_timeout", value)

    def temperature(self, value: float | None) -> Self:
        """Passed to the model."""
        return self._set("temperature", value)

    def max_output_tokens(self, value: int | None) -> Self:
        """Output cap of one model call."""
        return self._set("max_output_tokens", value)

    def reasoning(self, value: str | None) -> Self:
        """How hard the model should think; passed to the model."""
        return self._set("reasoning", value)

    def tool_choice(self, value: str) -> Self:
        """Auto, required, none, or the name of a tool."""
        return self._set("tool_choice", value)

    def strict_tools(self, value: bool = True) -> Self:
        """Hold the model to the tools' schemas, where the provider can."""
        return self._set("strict_tools", value)

    def stop_sequences(self, value: Iterable[str]) -> Self:
        """Texts at which a reply stops; passed to the model."""
        return self._list("stop_sequences", value)

    def seed(self, value: int | None) -> Self:
        """Passed to the model."""
        return self._set("seed", value)

    def logprobs(self, value: int | None) -> Self:
        """Alternatives to report with each token of a reply, with their probabilities."""
        return self._set("logprobs", value)

    def extras(self, value: Mapping[str, Any] | None) -> Self:
        """Passed to the model's provider unchanged."""
        return self._set("extras", value)

    def max_output_tokens_recovery(self, value: MaxTokensRecovery | None) -> Self:
        """A MaxTokensRecovery: ask again for truncated replies with a larger cap. Needs `max_output_tokens`."""
        return self._set("max_output_tokens_recovery", value)

    def empty_outcome_retry_budget(self, value: int | None) -> Self:
        """How many stops without a tool call may be answered in a row."""
        return self._set("empty_outcome_retry_budget", value)

    def plain_text_terminal_fallback_tool(self, value: str | None) -> Self:
        """The tool that a plain-text stop counts as calling."""
        return self._set("plain_text_terminal_fallback_tool", value)

    def plain_text_terminal_fallback_eager(self, value: bool = True) -> Self:
        """Count it as a call of that tool at once. Needs `plain_text_terminal_fallback_tool`."""
        return self._set("plain_text_terminal_fallback_eager", value)

    def plain_text_terminal_fallback_eager_nudge(self, value: bool = True) -> Self:
        """Nudge first, at most twice. Needs `plain_text_terminal_fallback_eager`."""
        return self._set("plain_text_terminal_fallback_eager_nudge", value)

    def graceful_turn_limit_message_provider(self, value: Callable[[], str] | None) -> Self:
        """A function that returns the text of the wind-down notice."""
        return self._set("graceful_turn_limit_message_provider", value)

    def graceful_turn_limit_grace_provider(self, value: Callable[[], int] | None) -> Self:
        """A function that returns the grace, called at every turn. Needs `max_iterations`."""
        return self._set("graceful_turn_limit_grace_provider", value)

    def landing(self, value: str) -> Self:
        """What happens at a limit: withdraw the tools, steer, force the answer, or off."""
        return self._set("landing", value)

    def conversation_id(self, value: str | None) -> Self:
        """Given to hooks and events."""
        return self._set("conversation_id", value)

    def model_id(self, value: str | None) -> Self:
        """The model's name as hooks see it."""
        return self._set("model_id", value)

    def token_estimator(self, value: TokenEstimator | None) -> Self:
        """An object with estimate(text) -> int; None: by characters, over-estimating."""
        return self._set("token_estimator", value)

    def protocol_policy(self, value: ProtocolPolicy | None) -> Self:
        """A ProtocolPolicy: terminal tool names, alias repair, words for hidden tools."""
        return self._set("protocol_policy", value)

    def context_window(self, value: int | None) -> Self:
        """Tokens the model can read; 0 is off."""
        return self._set("context_window", value)

    def context_strategy(self, value: str | ContextStrategy) -> Self:
        """How a long transcript is made to fit: compact, sliding_window, summarize, none, or a ContextStrategy."""
        return self._set("context_strategy", value)

    def prices(self, value: Mapping[str, Any] | None) -> Self:
        """{model name: (input, output)} in dollars per million tokens."""
        return self._set("prices", value)

    def unpriced(self, value: str | None) -> Self:
        """Estimate:MODEL, the model whose price to use when none is known."""
        return self._set("unpriced", value)

    def unbounded(self, value: bool = True) -> Self:
        """Allow a run without any limit."""
        return self._set("unbounded", value)

    def min_output_tokens(self, value: int) -> Self:
        """An output cap is never lowered below this to make a call fit."""
        return self._set("min_output_tokens", value)

    def max_retries(self, value: int) -> Self:
        """Attempts after the first when a model call fails."""
        return self._set("max_retries", value)

    def fallback_models(self, value: Iterable[Model | str]) -> Self:
        """Models to fall back to, in order."""
        return self._list("fallback_models", value)

    def durability(self, value: str) -> Self:
        """When the store writes to disk. Needs `store`."""
        return self._set("durability", value)

    def output_type(self, value: object) -> Self:
        """The type of the final answer."""
        return self._set("output_type", value)

    def deps_type(self, value: object) -> Self:
        """The type of what is passed as run(deps=...)."""
        return self._set("deps_type", value)

    def deps_factory(self, value: Callable[[RunInfo], Any] | None) -> Self:
        """Makes the deps of a run that got none, for example in a worker: a plain function of RunInfo."""
        return self._set("deps_factory", value)

    def agent_name(self, value: str) -> Self:
        """The agent's name in events and breakdowns."""
        return self._set("agent_name", value)

    def connect_timeout(self, value: float | None) -> Self:
        """Seconds to connect to the provider."""
        return self._set("connect_timeout", value)

    def first_chunk_timeout(self, value: float | None) -> Self:
        """Seconds to the first piece of a reply."""
        return self._set("first_chunk_timeout", value)

    def stall_timeout(self, value: float | None) -> Self:
        """Seconds between two pieces of a reply."""
        return self._set("stall_timeout", value)

    def call_timeout(self, value: float | None) -> Self:
        """Seconds for one attempt at a model call."""
        return self._set("call_timeout", value)

    def hook_timeout(self, value: float) -> Self:
        """Seconds for one answer of an async hook."""
        return self._set("hook_timeout", value)

    def constraint_timeout(self, value: float) -> Self:
        """Seconds for one answer of a constraint."""
        return self._set("constraint_timeout", value)

    def kill_switch_grace(self, value: float) -> Self:
        """How many seconds a kill switch may be unreadable before it counts as thrown."""
        return self._set("kill_switch_grace", value)

    def thinking_tags(self, value: bool = True) -> Self:
        """Hide <think> and its synonyms from the visible text."""
        return self._set("thinking_tags", value)

    def max_iterations(self, value: int | None) -> Self:
        """Model turns, those of descendants included; at least 1."""
        return self._part("limits", "max_iterations", value)

    def max_tokens(self, value: int | None) -> Self:
        """Input and output together, descendants included."""
        return self._part("limits", "max_tokens", value)

    def max_cost(self, value: Decimal | str | float | None) -> Self:
        """Dollars, best as a str or Decimal, descendants included."""
        return self._part("limits", "max_cost", value)

    def timeout(self, value: float | None) -> Self:
        """Seconds for the whole run."""
        return self._part("limits", "timeout", value)

    def max_tool_calls(self, value: int | None) -> Self:
        """Tool calls in total."""
        return self._part("limits", "max_tool_calls", value)

    def max_depth(self, value: int) -> Self:
        """How deep agents may be spawned."""
        return self._part("limits", "max_depth", value)

    def max_descendants(self, value: int) -> Self:
        """How many agents may be spawned."""
        return self._part("limits", "max_descendants", value)

    def grace_iterations(self, value: int | None) -> Self:
        """Turns between notice and limit; None chooses, 0 sends no notice. Needs `max_iterations`."""
        return self._part("limits", "grace_iterations", value)

    def landing_tokens(self, value: int) -> Self:
        """Tokens kept back for the landing answer."""
        return self._part("limits", "landing_tokens", value)

    def landing_seconds(self, value: float) -> Self:
        """Seconds for the landing call; at most a quarter of timeout."""
        return self._part("limits", "landing_seconds", value)

    def scope(self, value: str) -> Self:
        """Whether the limits bound each run, or all runs of a session together."""
        return self._part("limits", "scope", value)

    def max_tokens_recoveries(self, value: int) -> Self:
        """Continuations of a truncated answer; 0 is off."""
        return self._part("guardrails", "max_tokens_recoveries", value)

    def max_repeated_tool_steps(self, value: int) -> Self:
        """Repeats of the same calls until the tools are withdrawn; 0 is off."""
        return self._part("guardrails", "max_repeated_tool_steps", value)

    def max_error_streak(self, value: int) -> Self:
        """Equal errors in a row until the tool is withdrawn; 0 is off."""
        return self._part("guardrails", "max_error_streak", value)

    def read_only_loop_threshold(self, value: int | None) -> Self:
        """Steps of read-only tools until a nudge; 8 is a good start."""
        return self._part("guardrails", "read_only_loop_threshold", value)

    def max_premature_end_recoveries(self, value: int) -> Self:
        """Re-prompts after an empty reply to a tool error; 0 is off."""
        return self._part("guardrails", "max_premature_end_recoveries", value)

    def max_empty_recoveries(self, value: int) -> Self:
        """Re-prompts after an empty answer; 0 is off."""
        return self._part("guardrails", "max_empty_recoveries", value)

    def reserve_tokens(self, value: int) -> Self:
        """Tokens left above the reserve at which the model is told to wrap up."""
        return self._part("guardrails", "reserve_tokens", value)

    def reserve_cost_fraction(self, value: Decimal | str | float) -> Self:
        """Share of the money at which the model is told to wrap up."""
        return self._part("guardrails", "reserve_cost_fraction", value)
