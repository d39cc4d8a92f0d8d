"""The configuration of an agent: every knob, its default, and what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, get_origin

from glidepath._wire import Settings, settle_field
from glidepath.agent.discovery import GROUPS, installed
from glidepath.agent.equipment import split_tools
from glidepath.agent.limits import FOREVER, OTHER_LIMIT_NAMES, Limits, checked_int, checked_seconds
from glidepath.agent.prices import checked_prices
from glidepath.context import strategy
from glidepath.errors import ConfigurationError, readable, shown
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.outcome import ENDINGS, AgentState, LoopOutcome
from glidepath.plugins import PluginNames
from glidepath.plugins.lineup import Lineup
from glidepath.spi import Model, Plugin, ProtocolPolicy, ResourceConstraint, RunInfo, SessionStore, TokenEstimator
from glidepath.texts import Texts
from glidepath.tools import Output, Tool, tool
from glidepath.tools.sources import ToolSource

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder

__all__ = ["ExecutionMode", "LoopConfig"]

MOST_ITEMS = 100_000  # tools, constraints, plugins, fallback models
LEAST_CHECK = 0.01  # seconds between two questions to a constraint on a clock
LANDINGS = ("withdraw", "steer", "force", "off")
TOOL_CHOICES = ("auto", "required", "none")
DURABILITIES = ("sync", "full", "async", "exit")


class ExecutionMode(str, Enum):
    """Whether the calls of one reply run side by side.

    AUTO: together when every one of them is `read_only`, `parallel_safe` or an agent as a tool, else one after the
    other in the order of the reply. PARALLEL: always together. SEQUENTIAL: never. An `exclusive` tool always runs
    alone.
    """

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"
    AUTO = "auto"


class LoopConfig(Settings, frozen=True, kw_only=True):
    """An agent's configuration: frozen, checked at construction, shared by all its runs.

    Raises `ConfigurationError` naming the setting. Lists and mappings are copied: changing yours later changes nothing.
    """

    model: Model | str
    tools: tuple[Tool, ...] = ()
    tool_sources: tuple[ToolSource, ...] = ()
    system_prompt: str = ""
    limits: Limits = Limits()
    guardrails: GuardrailsConfig = GuardrailsConfig()
    texts: Texts = Texts()
    constraints: tuple[ResourceConstraint, ...] = ()
    replace_defaults: bool = False
    plugins: tuple[Plugin, ...] = ()
    store: Any = None
    event_sink: Callable[[Event], Any] | None = None
    default_execution_mode: ExecutionMode = ExecutionMode.AUTO
    max_tool_calls_per_turn: int | None = None
    max_parallel_tools: int = 16
    max_image_bytes: int = 5_000_000
    max_image_bytes_per_request: int = 20_000_000
    max_file_bytes: int = 10_000_000
    tool_timeout: float | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    reasoning: str | None = None
    tool_choice: str = "auto"
    strict_tools: bool = False
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    extras: Mapping[str, Any] | None = None
    max_output_tokens_recovery: MaxTokensRecovery | None = None
    empty_outcome_retry_budget: int | None = None
    plain_text_terminal_fallback_tool: str | None = None
    plain_text_terminal_fallback_eager: bool = False
    plain_text_terminal_fallback_eager_nudge: bool = False
    graceful_turn_limit_message_provider: Callable[[], str] | None = None
    graceful_turn_limit_grace_provider: Callable[[], int] | None = None
    landing: str = "withdraw"
    conversation_id: str | None = None
    model_id: str | None = None
    token_estimator: TokenEstimator | None = None
    protocol_policy: ProtocolPolicy | None = None
    context_window: int | None = None
    context_strategy: str = "compact"
    prices: Mapping[str, Any] | None = None
    unpriced: str | None = None
    unbounded: bool = False
    min_output_tokens: int = 256
    max_retries: int = 3
    fallback_models: tuple[Any, ...] = ()
    durability: str = "sync"
    output_type: Any = None
    deps_type: Any = None
    deps_factory: Callable[[RunInfo], Any] | None = None
    agent_name: str = "agent"
    connect_timeout: float | None = 10
    first_chunk_timeout: float | None = 120
    stall_timeout: float | None = 60
    call_timeout: float | None = None
    hook_timeout: float = 5
    constraint_timeout: float = 1
    kill_switch_grace: float = 5
    thinking_tags: bool = False

    def __post_init__(self) -> None:
        with readable():
            _normalize(self)
            check(self)

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a setting, with the setting that was meant."""
        return ConfigurationError(_unknown(name))

    def plugin_names(self) -> PluginNames:
        """The plugins behind each hook, in calling order."""
        return Lineup(self.plugins).names()

    def child_builder(self) -> AgentBuilder:
        """A builder for a child's configuration: all but what is this agent's own; `INHERITANCE` has the table."""
        from glidepath.agent.builder import child_builder

        return child_builder(self)


MOST_LOGPROBS = 20  # alternatives for a token that vendors name
FIELDS: tuple[str, ...] = LoopConfig.__struct_fields__
_TEXTS = ("system_prompt", "agent_name", "conversation_id", "model_id", "reasoning")
_FLAGS = (
    "replace_defaults",
    "unbounded",
    "thinking_tags",
    "strict_tools",
    "plain_text_terminal_fallback_eager",
    "plain_text_terminal_fallback_eager_nudge",
)


def make_config(**fields: Any) -> LoopConfig:
    """A `LoopConfig` from keyword arguments; raises `ConfigurationError` naming the field, also for a missing model."""
    if "model" not in fields:
        unknown = [name for name in fields if name not in FIELDS]
        raise ConfigurationError(_unknown(unknown[0]) if unknown else "model is required: pass model=...")
    return LoopConfig(**fields)


def _normalize(config: LoopConfig) -> None:
    """What was given, as the runtime keeps it: tuples of resolved objects, plain texts, mappings of its own."""
    kept: dict[str, Any] = {
        name: _as_tuple(name, getattr(config, name))
        for name in ("tools", "tool_sources", "constraints", "plugins", "fallback_models", "stop_sequences")
    }
    for name in GROUPS:
        kept[name] = with_installed(name, kept[name])
    items, sources = split_tools(kept["tools"])
    kept["tools"] = tuple(_as_tool(item) for item in items)
    kept["tool_sources"] = _checked_sources((*kept["tool_sources"], *sources))
    kept["model"] = _as_model(config.model)
    kept["fallback_models"] = tuple(_as_model(item) for item in kept["fallback_models"])
    for name in _TEXTS:
        if isinstance(given := getattr(config, name), str):
            kept[name] = str.__str__(given)  # of a subclass, the text
    for name in ("extras", "prices"):
        kept[name] = _copied(getattr(config, name))
    for name, value in kept.items():
        if value is not getattr(config, name):
            settle_field(config, name, value)


def _copied(value: Any) -> Any:
    """A copy of plain containers, so that nobody changes a configuration from outside; other objects stay."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _as_model(model: Any) -> Any:
    """The model itself, or the one a string such as `anthropic:claude-sonnet-4-5` names."""
    if not isinstance(model, str):
        return model
    from glidepath.models import resolve

    return resolve(model)


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # only needed when something is wrong

    limits, guardrails = Limits.__struct_fields__, GuardrailsConfig.__struct_fields__
    meant = _OTHER_NAMES.get(name, name)
    close = [meant] if meant in (*FIELDS, *limits, *guardrails) else get_close_matches(name, FIELDS, n=1)
    hint = ""
    if close and close[0] in limits:
        hint = f"; it belongs to the limits: limits=Limits({close[0]}=...)"
    elif close and close[0] in guardrails:
        hint = f"; it belongs to the guardrails: guardrails=GuardrailsConfig({close[0]}=...)"
    elif close:
        hint = f"; did you mean {close[0]!r}?"
    return f"there is no setting {name!r}{hint}"


_OTHER_NAMES = {  # what the same is called elsewhere
    "instructions": "system_prompt",
    "name": "agent_name",
    "provider_extras": "extras",
    "stream": "model",
    **OTHER_LIMIT_NAMES,
}


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} must be a list or tuple, not {value!r:.100}")
    items = tuple(islice(value, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        raise ConfigurationError(f"{name} has more than {MOST_ITEMS} items, or no end; pass a list or tuple")
    return items


def with_installed(field: str, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The items, those given by name found among what is installed."""
    if not any(isinstance(item, str) for item in items):
        return items
    return tuple(installed(field, item) if isinstance(item, str) else item for item in items)


def _as_tool(item: Any) -> Tool:
    if isinstance(item, Tool):
        return item
    if callable(item) and not isinstance(item, type):
        made: Tool = tool(item)
        return made
    raise ConfigurationError(f"tools must be Tool objects, functions or sources such as McpServer, not {item!r:.100}")


def _checked_sources(sources: tuple[Any, ...]) -> tuple[ToolSource, ...]:
    """The sources, each of which has a name of its own unless they are views of the same."""
    items, named = split_tools(sources)
    if items:
        raise ConfigurationError(f"tool_sources must be sources such as McpServer(...), not {items[0]!r:.100}")
    origins: dict[str, object] = {}
    for source in named:
        if origins.setdefault(source.name, source.origin) != source.origin:
            raise ConfigurationError(f"two sources of tools are named {source.name!r}; give one of them another name")
    return named


def check(config: LoopConfig) -> None:
    """Raise `ConfigurationError` for the first thing that is wrong."""
    _check_model("model", config.model)
    for number, model in enumerate(config.fallback_models):
        _check_model(f"fallback_models[{number}]", model)
        if any(model is other for other in (config.model, *config.fallback_models[:number])):
            raise ConfigurationError(f"fallback_models[{number}] is in use already: a model cannot stand in for itself")
    _check_types(config)
    Lineup(config.plugins)
    strategy(config.context_strategy)
    checked_prices(config.prices)
    if config.output_type is not None:
        Output(config.output_type)
    _check_fallback_tool(config)
    names = [tool.name for tool in config.tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two tools are named {name!r}; give one of them another name")
    for field in ("max_tool_calls_per_turn", "max_output_tokens", "context_window"):
        checked_int(field, getattr(config, field))
    checked_int("empty_outcome_retry_budget", config.empty_outcome_retry_budget, least=0)
    for field, least in (
        ("max_parallel_tools", 1),
        ("max_image_bytes", 1),
        ("max_image_bytes_per_request", 1),
        ("max_file_bytes", 1),
        ("min_output_tokens", 1),
        ("max_retries", 0),
    ):
        if getattr(config, field) is None:
            raise ConfigurationError(f"{field} must be a whole number, not None")
        checked_int(field, getattr(config, field), least=least)
    for field in ("tool_timeout", "connect_timeout", "first_chunk_timeout", "stall_timeout", "call_timeout"):
        checked_seconds(field, getattr(config, field))
    for field in ("hook_timeout", "constraint_timeout", "kill_switch_grace"):
        if getattr(config, field) is None:
            raise ConfigurationError(
                f"{field} must be a number of seconds, not None: a guard that hangs must be stopped"
            )
        checked_seconds(field, getattr(config, field))


def terminal_tools(config: LoopConfig) -> frozenset[str]:
    """The tools whose success ends the run."""
    named: Any = () if config.protocol_policy is None else config.protocol_policy.terminal_tool_names
    if isinstance(named, str) or not isinstance(named, Collection) or not all(isinstance(name, str) for name in named):
        raise ConfigurationError(f"protocol_policy.terminal_tool_names must be a set of names, not {named!r:.100}")
    return frozenset({tool.name for tool in config.tools if tool.terminal} | set(named))


def _check_fallback_tool(config: LoopConfig) -> None:
    name, terminal = config.plain_text_terminal_fallback_tool, terminal_tools(config)
    if name is not None and (name not in terminal or name not in {tool.name for tool in config.tools}):
        raise ConfigurationError(
            f"plain_text_terminal_fallback_tool={name!r:.100} must be the name of one of the tools, and that tool must "
            "end the run: give it terminal=True, or name it in protocol_policy.terminal_tool_names"
        )


def _check_model(field: str, model: Any) -> None:
    if isinstance(model, type) or not callable(getattr(model, "stream", None)):
        raise ConfigurationError(
            f"{field} must have a method stream(request), like glidepath.models.Model; got {model!r:.100}"
        )
    if not isinstance(getattr(model, "name", None), str) or not model.name:
        raise ConfigurationError(
            f"{field}.name must be a non-empty str; {type(model).__name__} has {getattr(model, 'name', None)!r}"
        )
    window = getattr(model, "context_window", None)
    if window is not None and (type(window) is not int or window < 1):
        raise ConfigurationError(
            f"{field}.context_window must be a whole number of at least 1, or None; got {window!r:.100}"
        )


def _check_types(config: LoopConfig) -> None:
    if config.store is not None and (isinstance(config.store, type) or not isinstance(config.store, SessionStore)):
        raise ConfigurationError(
            f"store must be a session store such as glidepath.sessions.SqliteStore(path), not {config.store!r:.100}"
        )
    for field, kind in (("limits", Limits), ("guardrails", GuardrailsConfig), ("texts", Texts)):
        if not isinstance(getattr(config, field), kind):
            raise ConfigurationError(f"{field} must be a {kind.__name__}, not {getattr(config, field)!r:.100}")
    for field in _FLAGS:
        if not isinstance(getattr(config, field), bool):
            raise ConfigurationError(f"{field} must be True or False, not {getattr(config, field)!r:.100}")
    for field in ("system_prompt", "agent_name"):
        _check_text(field, getattr(config, field))
    if not config.agent_name:
        raise ConfigurationError("agent_name must not be empty")
    for field, allowed in (("landing", LANDINGS), ("tool_choice", None)):
        value = getattr(config, field)
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            raise ConfigurationError(f"{field} must be one of {', '.join(allowed or TOOL_CHOICES)}; got {value!r}")
    known = {*TOOL_CHOICES, *[item.name for item in config.tools]}
    if config.tool_choice not in known and not config.tool_sources:  # what sources offer is known when a run starts
        raise ConfigurationError(
            f"tool_choice must be auto, required, none or the name of a tool; got {config.tool_choice!r}"
        )
    if not isinstance(config.default_execution_mode, ExecutionMode):
        raise ConfigurationError(
            f"default_execution_mode must be an ExecutionMode, not {config.default_execution_mode!r}"
        )
    _check_temperature(config.temperature)
    _check_sampling(config)
    _check_parts(config)
    for constraint in config.constraints:
        _check_constraint(constraint)
    if config.deps_type is not None and not (isinstance(config.deps_type, type) or get_origin(config.deps_type)):
        raise ConfigurationError(f"deps_type must be a type, not {config.deps_type!r:.100}")
    if inspect.iscoroutinefunction(config.deps_factory):
        raise ConfigurationError("deps_factory must be a plain function, not async: it runs before the run does")
    for field in (
        "deps_factory",
        "event_sink",
        "graceful_turn_limit_message_provider",
        "graceful_turn_limit_grace_provider",
    ):
        if getattr(config, field) is not None and not callable(getattr(config, field)):
            raise ConfigurationError(f"{field} must be callable, not {getattr(config, field)!r:.100}")


def _check_constraint(constraint: Any) -> None:
    if not isinstance(constraint, ResourceConstraint):
        raise ConfigurationError(f"constraints must be ResourceConstraint objects, not {constraint!r:.100}")
    name: Any = constraint.name
    if not isinstance(name, str) or not name:
        raise ConfigurationError(
            f"{type(constraint).__name__}.name must be a str that is not empty, not {type(name).__name__}"
        )
    every: Any = constraint.check_every
    number = isinstance(every, int | float) and not isinstance(every, bool)
    if every is not None and (not number or not LEAST_CHECK <= every < FOREVER):
        raise ConfigurationError(
            f"{type(constraint).__name__}.check_every must be None or a number of seconds of at least {LEAST_CHECK}; "
            f"got {shown(every, 100)}"
        )
    state: Any = constraint.state
    limit_state = isinstance(state, AgentState) and state is not AgentState.COMPLETED
    if not limit_state or (state, LoopOutcome.WRAPPED_UP) not in ENDINGS:
        raise ConfigurationError(
            f"{type(constraint).__name__}.state must be a state that a limit can end a run in, such as "
            f"AgentState.BUDGET_EXCEEDED; got {state!r:.100}"
        )


def _check_parts(config: LoopConfig) -> None:
    if inspect.iscoroutinefunction(config.event_sink):
        raise ConfigurationError(
            "event_sink must be a plain function, not async: use a Plugin with an async event_observer"
        )
    for field in ("reasoning", "conversation_id", "model_id"):
        value = getattr(config, field)
        if value is not None:
            _check_text(field, value)
    if config.durability not in DURABILITIES:
        raise ConfigurationError(f"durability must be one of {', '.join(DURABILITIES)}; got {config.durability!r:.100}")
    if config.extras is not None and not isinstance(config.extras, Mapping):
        raise ConfigurationError(f"extras must be a mapping, not {config.extras!r:.100}")
    if config.protocol_policy is not None and not isinstance(config.protocol_policy, ProtocolPolicy):
        raise ConfigurationError(
            f"protocol_policy must be a ProtocolPolicy object, not {config.protocol_policy!r:.100}"
        )
    for field, method in (("token_estimator", "estimate"), ("max_output_tokens_recovery", "next_cap")):
        value = getattr(config, field)
        if value is not None and (isinstance(value, type) or not callable(getattr(value, method, None))):
            raise ConfigurationError(f"{field} must be an object with a method {method}(), not {value!r:.100}")


def _check_temperature(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and (not number or not 0 <= value < FOREVER):  # NaN is not, either
        raise ConfigurationError(f"temperature must be a finite number of at least 0, not {shown(value, 100)}")


def _check_sampling(config: LoopConfig) -> None:
    for number, word in enumerate(config.stop_sequences):
        _check_text(f"stop_sequences[{number}]", word)
        if not word:
            raise ConfigurationError(f"stop_sequences[{number}] is empty: every reply would stop at once")
    logprobs: Any = config.logprobs
    if logprobs is not None and (type(logprobs) is not int or not 0 <= logprobs <= MOST_LOGPROBS):
        raise ConfigurationError(
            f"logprobs must be a whole number from 0 to {MOST_LOGPROBS}, or None; got {shown(logprobs, 100)}"
        )
    seed: Any = config.seed
    if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 63):
        raise ConfigurationError(f"seed must be a whole number of at least 0, or None; got {shown(seed, 100)}")


def _check_text(field: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"{field} must be a str, not {type(value).__name__}")
    check_sendable(field, value)


def check_sendable(field: str, text: str) -> None:
    """Refuse text that no store and no provider takes."""
    if "\0" in text:
        raise ConfigurationError(f"{field} contains a NUL character; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = error.start
        raise ConfigurationError(
            f"{field} has a lone surrogate at position {where}; remove it, or decode it properly"
        ) from None
