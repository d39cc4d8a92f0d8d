"""Every setting as a method: the fields of `LoopConfig`, of `Limits` and of `GuardrailsConfig`, one each.

The methods are written out, so that an editor and a type checker see them. A test compares them with the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Self

from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Limits
from glidepath.errors import BuilderError
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.spi import Model, Plugin, ProtocolPolicy, ResourceConstraint, RunInfo, TokenEstimator
from glidepath.texts import Texts
from glidepath.tools import Tool
from glidepath.tools.sources import ToolSource

__all__ = ["Knobs"]


class Knobs:
    """One method for every setting. Each takes effect on this object and returns it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._parts: dict[str, dict[str, Any]] = {"limits": {}, "guardrails": {}}

    def _set(self, field: str, value: Any) -> Self:
        self._values[field] = value
        return self

    def _set_all(self, field: str, value: Any) -> Self:
        said = self._parts[field]
        if said:
            first = next(iter(said))
            raise BuilderError(f"{field}(...) would undo {first}({said[first]!r}): call {field}() before {first}()")
        return self._set(field, value)

    def _part(self, field: str, name: str, value: Any) -> Self:
        self._parts[field][name] = value
        return self

    def _list(self, field: str, value: Any) -> Self:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise BuilderError(f"{field} must be a list or tuple, not {value!r:.100}")
        return self._set(field, tuple(value))

    def _add(self, field: str, value: Any) -> Self:
        before = self._values.get(field, ())
        self._list(field, value)
        return self._set(field, (*before, *self._values[field]))

    # --- the fields of LoopConfig ---

    def model(self, value: Model | str) -> Self:
        """The model to ask: an object with `name` and `stream(request)`."""
        return self._set("model", value)

    def tools(self, value: Iterable[Tool | ToolSource | Callable[..., Any] | str]) -> Self:
        """The tools: `Tool` objects, functions, sources, or names of installed ones. The last call counts."""
        return self._list("tools", value)

    def tool_sources(self, value: Iterable[ToolSource]) -> Self:
        """Sources of tools, such as MCP servers, beside those in `tools`. The last call counts."""
        return self._list("tool_sources", value)

    def system_prompt(self, value: str) -> Self:
        """What the model is told first."""
        return self._set("system_prompt", value)

    def limits(self, value: Limits) -> Self:
        """What a run may use, all at once. Say single limits afterwards, with their own methods."""
        return self._set_all("limits", value)

    def guardrails(self, value: GuardrailsConfig) -> Self:
        """The guardrails, all at once. Say single ones afterwards, with their own methods."""
        return self._set_all("guardrails", value)

    def texts(self, value: Texts) -> Self:
        """What the runtime tells the model, word for word."""
        return self._set("texts", value)

    def constraints(self, value: Iterable[ResourceConstraint | str]) -> Self:
        """More constraints: objects, or names of installed ones. They add up, as guards do."""
        return self._add("constraints", value)

    def replace_defaults(self, value: bool = True) -> Self:
        """Drop the built-in constraints."""
        return self._set("replace_defaults", value)

    def plugins(self, value: Iterable[Plugin | str]) -> Self:
        """More plugins: objects, or names of installed ones. They add up, as guards do."""
        return self._add("plugins", value)

    def store(self, value: Any) -> Self:
        """Where sessions are kept."""
        return self._set("store", value)

    def event_sink(self, value: Callable[[Event], Any] | None) -> Self:
        """A callable that sees every event first."""
        return self._set("event_sink", value)

    def default_execution_mode(self, value: ExecutionMode) -> Self:
        """Whether the calls of one reply run side by side."""
        return self._set("default_execution_mode", value)

    def max_tool_calls_per_turn(self, value: int | None) -> Self:
        """Calls of one reply beyond this are skipped with a result that says so."""
        return self._set("max_tool_calls_per_turn", value)

    def max_image_bytes(self, value: int) -> Self:
        """Bytes of one picture at most; a larger one is refused before the call."""
        return self._set("max_image_bytes", value)

    def max_image_bytes_per_request(self, value: int) -> Self:
        """Bytes of all pictures of a request at most; older ones are left out of the view."""
        return self._set("max_image_bytes_per_request", value)

    def max_file_bytes(self, value: int) -> Self:
        """Bytes of one document, recording or video at most; a larger one is refused before the call."""
        return self._set("max_file_bytes", value)

    def max_parallel_tools(self, value: int) -> Self:
        """Calls that run at the same time."""
        return self._set("max_parallel_tools", value)

    def tool_timeout(self, value: float | None) -> Self:
        """Seconds for one tool call."""
        return self._set("tool_timeout", value)

    def temperature(self, value: float | None) -> Self:
        """Passed to the model."""
        return self._set("temperature", value)

    def max_output_tokens(self, value: int | None) -> Self:
        """The output cap of one call; sent to the model when set."""
        return self._set("max_output_tokens", value)

    def reasoning(self, value: str | None) -> Self:
        """Passed to the model."""
        return self._set("reasoning", value)

    def tool_choice(self, value: str) -> Self:
        """`auto`, `required`, `none` or the name of a tool; passed to the model."""
        return self._set("tool_choice", value)

    def strict_tools(self, value: bool = True) -> Self:
        """Hold the model to the tools' schemas, where the provider can."""
        return self._set("strict_tools", value)

    def stop_sequences(self, value: Iterable[str]) -> Self:
        """Texts at which a reply stops; passed to the model."""
        return self._set("stop_sequences", value)

    def seed(self, value: int | None) -> Self:
        """Passed to the model."""
        return self._set("seed", value)

    def logprobs(self, value: int | None) -> Self:
        """How many alternatives the model names beside each token; None asks for no probabilities."""
        return self._set("logprobs", value)

    def extras(self, value: Mapping[str, Any] | None) -> Self:
        """A mapping passed to the model as it is."""
        return self._set("extras", value)

    def max_output_tokens_recovery(self, value: MaxTokensRecovery | None) -> Self:
        """Ask again for truncated replies with a larger cap. Needs `max_output_tokens`."""
        return self._set("max_output_tokens_recovery", value)

    def empty_outcome_retry_budget(self, value: int | None) -> Self:
        """Stops without a tool call that may be answered in a row; None is off, 0 fails the first."""
        return self._set("empty_outcome_retry_budget", value)

    def plain_text_terminal_fallback_tool(self, value: str | None) -> Self:
        """The terminal tool that a plain-text stop becomes a result of."""
        return self._set("plain_text_terminal_fallback_tool", value)

    def plain_text_terminal_fallback_eager(self, value: bool = True) -> Self:
        """Do so at the first plain-text stop. Needs `plain_text_terminal_fallback_tool`."""
        return self._set("plain_text_terminal_fallback_eager", value)

    def plain_text_terminal_fallback_eager_nudge(self, value: bool = True) -> Self:
        """Ask for the tool before that. Needs `plain_text_terminal_fallback_eager`."""
        return self._set("plain_text_terminal_fallback_eager_nudge", value)

    def graceful_turn_limit_message_provider(self, value: Callable[[], str] | None) -> Self:
        """A function that gives the words of the wind-down notice."""
        return self._set("graceful_turn_limit_message_provider", value)

    def graceful_turn_limit_grace_provider(self, value: Callable[[], int] | None) -> Self:
        """A function that gives the grace, asked at every turn. Needs `max_iterations`."""
        return self._set("graceful_turn_limit_grace_provider", value)

    def landing(self, value: str) -> Self:
        """`withdraw`, `steer`, `force` or `off`; see the landing."""
        return self._set("landing", value)

    def conversation_id(self, value: str | None) -> Self:
        """Given to hooks and `RunStarted`."""
        return self._set("conversation_id", value)

    def model_id(self, value: str | None) -> Self:
        """Given to context transforms; None: the model's name."""
        return self._set("model_id", value)

    def token_estimator(self, value: TokenEstimator | None) -> Self:
        """An object with `estimate(text) -> int`; None: by characters, over-estimating."""
        return self._set("token_estimator", value)

    def protocol_policy(self, value: ProtocolPolicy | None) -> Self:
        """A `ProtocolPolicy`: terminal tool names, alias repair, words for hidden tools."""
        return self._set("protocol_policy", value)

    def context_window(self, value: int | None) -> Self:
        """Tokens the model can read; None: the model's own, else the context is shaped only on overflow."""
        return self._set("context_window", value)

    def context_strategy(self, value: str) -> Self:
        """`compact`, `summarize`, `sliding_window` or `none`."""
        return self._set("context_strategy", value)

    def prices(self, value: Mapping[str, Any] | None) -> Self:
        """`{model name: (input, output)}` in dollars per million tokens."""
        return self._set("prices", value)

    def unpriced(self, value: str | None) -> Self:
        """`'estimate:<model>'`: whose price to use when none is known."""
        return self._set("unpriced", value)

    def unbounded(self, value: bool = True) -> Self:
        """Allow a root run without any limit."""
        return self._set("unbounded", value)

    def min_output_tokens(self, value: int) -> Self:
        """An output cap is never lowered below this to make a call fit."""
        return self._set("min_output_tokens", value)

    def max_retries(self, value: int) -> Self:
        """Attempts after the first."""
        return self._set("max_retries", value)

    def fallback_models(self, value: Iterable[Any]) -> Self:
        """The models to ask when the first cannot answer, in order."""
        return self._list("fallback_models", value)

    def durability(self, value: str) -> Self:
        """How safely a session is kept: `sync`, `full`, `async` or `exit`. Needs `store`."""
        return self._set("durability", value)

    def output_type(self, value: Any) -> Self:
        """The type of the final answer, as `RunResult.output` holds it."""
        return self._set("output_type", value)

    def deps_type(self, value: Any) -> Self:
        """The type of what is passed as `run(deps=...)`."""
        return self._set("deps_type", value)

    def deps_factory(self, value: Callable[[RunInfo], Any] | None) -> Self:
        """Makes the `deps` of a run that was given none, such as one in a worker; a plain function of `RunInfo`."""
        return self._set("deps_factory", value)

    def agent_name(self, value: str) -> Self:
        """Who the agent is in events, breakdowns and contexts."""
        return self._set("agent_name", value)

    def connect_timeout(self, value: float | None) -> Self:
        """Seconds; see timeouts."""
        return self._set("connect_timeout", value)

    def first_chunk_timeout(self, value: float | None) -> Self:
        """Seconds to the first delta."""
        return self._set("first_chunk_timeout", value)

    def stall_timeout(self, value: float | None) -> Self:
        """Seconds between deltas."""
        return self._set("stall_timeout", value)

    def call_timeout(self, value: float | None) -> Self:
        """Seconds for one attempt."""
        return self._set("call_timeout", value)

    def hook_timeout(self, value: float) -> Self:
        """Seconds for one answer of an async hook."""
        return self._set("hook_timeout", value)

    def constraint_timeout(self, value: float) -> Self:
        """Seconds for one answer of a constraint."""
        return self._set("constraint_timeout", value)

    def kill_switch_grace(self, value: float) -> Self:
        """Seconds for which a kill switch may be unreadable before it counts as thrown."""
        return self._set("kill_switch_grace", value)

    def thinking_tags(self, value: bool = True) -> Self:
        """Filter `<think>` and its synonyms from the visible text."""
        return self._set("thinking_tags", value)

    # --- the fields of Limits ---

    def max_iterations(self, value: int | None) -> Self:
        """Model turns, those of descendants included; at least 1."""
        return self._part("limits", "max_iterations", value)

    def max_tokens(self, value: int | None) -> Self:
        """Input and output together, descendants included."""
        return self._part("limits", "max_tokens", value)

    def max_cost(self, value: Decimal | str | int | None) -> Self:
        """Dollars as str, Decimal or int, descendants included."""
        return self._part("limits", "max_cost", value)

    def timeout(self, value: float | None) -> Self:
        """Seconds for the whole run."""
        return self._part("limits", "timeout", value)

    def max_tool_calls(self, value: int | None) -> Self:
        """Tool calls, descendants included."""
        return self._part("limits", "max_tool_calls", value)

    def max_depth(self, value: int) -> Self:
        """How deep below this run agents may be spawned."""
        return self._part("limits", "max_depth", value)

    def max_descendants(self, value: int) -> Self:
        """How many agents the tree below this run may have."""
        return self._part("limits", "max_descendants", value)

    def grace_iterations(self, value: int | None) -> Self:
        """Turns between notice and limit; None chooses, 0 sends no notice. Needs `max_iterations`."""
        return self._part("limits", "grace_iterations", value)

    def landing_tokens(self, value: int) -> Self:
        """Least landing reserve."""
        return self._part("limits", "landing_tokens", value)

    def landing_seconds(self, value: float) -> Self:
        """Time for the landing call; at most a quarter of `timeout`."""
        return self._part("limits", "landing_seconds", value)

    def scope(self, value: str) -> Self:
        """Whether the limits bound each "run", or the whole "session"."""
        return self._part("limits", "scope", value)

    # --- the fields of GuardrailsConfig ---

    def max_tokens_recoveries(self, value: int) -> Self:
        """Continuations of a truncated answer."""
        return self._part("guardrails", "max_tokens_recoveries", value)

    def max_repeated_tool_steps(self, value: int) -> Self:
        """Repeats until the tools are withdrawn."""
        return self._part("guardrails", "max_repeated_tool_steps", value)

    def max_error_streak(self, value: int) -> Self:
        """Equal errors in a row until the tool is withdrawn."""
        return self._part("guardrails", "max_error_streak", value)

    def read_only_loop_threshold(self, value: int | None) -> Self:
        """Steps of read-only tools until a nudge; 8 is a good start."""
        return self._part("guardrails", "read_only_loop_threshold", value)

    def max_premature_end_recoveries(self, value: int) -> Self:
        """Re-prompts after an empty end behind a tool error."""
        return self._part("guardrails", "max_premature_end_recoveries", value)

    def max_empty_recoveries(self, value: int) -> Self:
        """Re-prompts after an empty answer, then the run fails."""
        return self._part("guardrails", "max_empty_recoveries", value)

    def reserve_tokens(self, value: int) -> Self:
        """`near_budget()` when this many tokens are left above the reserve."""
        return self._part("guardrails", "reserve_tokens", value)

    def reserve_cost_fraction(self, value: Decimal | str | float) -> Self:
        """`near_budget()` when this share of the money is left above the reserve."""
        return self._part("guardrails", "reserve_cost_fraction", value)
