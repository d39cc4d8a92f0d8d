"""The configuration of an agent: every setting, its default and its checks."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, get_origin

from glidepath._wire import Settings, settle_field
from glidepath.agent.limits import OTHER_LIMIT_NAMES, Limits, check_limits
from glidepath.agent.prices import checked_prices
from glidepath.constraints import FunctionConstraint
from glidepath.context import strategy
from glidepath.errors import ConfigurationError, close_to, readable, shown
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.outcome import ENDINGS, AgentState, LoopOutcome
from glidepath.plugins import PluginNames
from glidepath.plugins.lineup import Lineup
from glidepath.setting import FOREVER, LOWER, Declared, Passed, Setting, check_fields, check_text, with_settings
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    Plugin,
    ProtocolPolicy,
    ResourceConstraint,
    RunInfo,
    StopGuard,
    TokenEstimator,
)
from glidepath.texts import Texts
from glidepath.tools import Tool, tool
from glidepath.tools.sources import ToolSource, split_tools

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder

MOST_ITEMS = 100_000  # tools, constraints, plugins, fallback models
INSTALLED = ("plugins", "constraints", "guards", "tools")  # may be given by the name of what a package offers
LEAST_CHECK = 0.01  # seconds between two questions to a constraint on a clock
TOOL_CHOICES = ("auto", "required", "none")


class ExecutionMode(str, Enum):
    """Whether the calls of one reply run in parallel.

    AUTO: together when every one of them is `read_only`, `parallel_safe` or an agent as a tool, else one after the
    other in the order of the reply. PARALLEL: always together. SEQUENTIAL: never. An `exclusive` tool always runs
    alone.
    """

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"
    AUTO = "auto"


@with_settings
class LoopConfig(Settings, frozen=True, kw_only=True):
    """An agent's configuration: frozen, checked at construction, shared by all its runs.

    Raises `ConfigurationError` naming the setting. Lists and mappings are copied: changing yours later changes nothing.
    """

    # One line, one setting: everything about it is derived from that line. Annotations are evaluated here, not kept as
    # text: reading them would mean compiling each line whenever a program starts.
    # fmt: off
    model: Declared[Model | str, Setting("text", "which model, such as anthropic:claude-sonnet-4-5", flag="--model", metavar="NAME", see="[the README](../README.md#your-own-model)", checked=False, in_python="an object with name and stream(request), or its name such as anthropic:claude-sonnet-4-5")]
    tools: Declared[tuple[Tool, ...], Setting("names", "tools the model may call: read, list, grep, write, edit, shell, or installed ones", flag="--tools", metavar="NAMES", default=("read", "list", "grep"), found=("read", "list", "grep"), wider="Iterable[Tool | ToolSource | Callable[..., Any] | str]", in_python="Tool objects, functions, sources such as McpServer, or names of installed tools")] = ()
    tool_sources: Declared[tuple[ToolSource, ...], Setting("names", "where MCP servers and other sources in tools end up; what they offer is known when a run starts", python_only="Python objects; MCP servers go in [mcp.servers.NAME]", wider="Iterable[ToolSource]")] = ()
    system_prompt: Declared[str, Setting("text", "what the model is told first", flag="--system-prompt", metavar="TEXT", inherited=Passed.NO)] = ""
    limits: Declared[Limits, Setting("part", "what one run may use, its descendants included", python_only="the section [limits]", inherited=Passed.IN_PART, see="[Limits](#limits)")] = Limits()
    guardrails: Declared[GuardrailsConfig, Setting("part", "safety nets against loops, truncation and silence", python_only="the section [guardrails]", see="[GuardrailsConfig](#guardrailsconfig)")] = GuardrailsConfig()
    texts: Declared[Texts, Setting("table", "what the runtime tells the model, such as wind_down, landing, repetition: {name: text}", see="[the texts](the-landing.md#the-texts)", checked=False, in_python="the exact words the runtime tells the model")] = Texts()
    constraints: Declared[tuple[ResourceConstraint, ...], Setting("names", "constraints by their entry-point name, asked after the built-in ones", wider="Iterable[ResourceConstraint | Callable[[ResourceContext], Any] | str]", adds_up=True, in_python="your own constraints, functions, or names of installed ones, asked after the built-in ones")] = ()
    guards: Declared[tuple[CallGuard | StopGuard, ...], Setting("names", "call and stop guards by their entry-point name, asked after the built-in ones", wider="Iterable[CallGuard | StopGuard | str]", adds_up=True, in_python="your own call and stop guards, or names of installed ones, asked after the built-in ones", see="[your own guards](stuck-loops.md#your-own-guards)")] = ()
    replace_defaults: Declared[bool, Setting("bool", "drop the built-in constraints; needs constraints")] = False
    plugins: Declared[tuple[Plugin, ...], Setting("names", "plugins by their entry-point name, in calling order", inherited=Passed.AS_EACH_SAYS, wider="Iterable[Plugin | str]", adds_up=True, in_python="plugins, or names of installed ones, in calling order")] = ()
    store: Declared[Any, Setting("text?", "where sessions are kept: the path of a file, a postgresql:// address, default (in your data folder), or none", flag="--store", metavar="PATH", see="[sessions](sessions.md)", checked=False, in_python="where sessions are kept", wider="SessionStore | None")] = None
    event_sink: Declared[Callable[[Event], Any] | None, Setting("callable?", "a callable that sees every event first", python_only="a Python callable", inherited=Passed.NO)] = None
    default_execution_mode: Declared[ExecutionMode, Setting("choice", "whether the calls of one reply run in parallel", choices=("auto", "parallel", "sequential"), found=("auto", "sequential"), see="[several calls at once](writing-a-tool.md#several-calls-at-once)", checked=False)] = ExecutionMode.AUTO
    max_tool_calls_per_turn: Declared[int | None, Setting("int?", "tool calls of one reply that are run", found=LOWER)] = None
    max_parallel_tools: Declared[int, Setting("int", "tool calls that run at the same time", found=LOWER)] = 16
    max_image_bytes: Declared[int, Setting("int", "maximum bytes of one picture", found=LOWER, see="[pictures](context.md#pictures)")] = 5_000_000
    max_image_bytes_per_request: Declared[int, Setting("int", "maximum bytes of all pictures of a request", found=LOWER, in_python="maximum bytes of all pictures and files of a request; older ones are left out")] = 20_000_000
    max_file_bytes: Declared[int, Setting("int", "maximum bytes of one document, recording or video", found=LOWER, see="[files](choosing-a-model.md#files)")] = 10_000_000
    tool_timeout: Declared[float | None, Setting("seconds?", "time for one tool call", flag="--tool-timeout", metavar="TIME", found=LOWER, in_python="seconds for one tool call")] = None
    temperature: Declared[float | None, Setting("number?", "passed to the model", flag="--temperature", metavar="X")] = None
    max_output_tokens: Declared[int | None, Setting("int?", "output cap of one model call", flag="--max-output-tokens", metavar="N")] = None
    reasoning: Declared[str | None, Setting("text?", "how hard the model should think; passed to the model", flag="--reasoning", metavar="LEVEL")] = None
    tool_choice: Declared[str, Setting("text", "auto, required, none, or the name of a tool")] = "auto"
    strict_tools: Declared[bool, Setting("bool", "hold the model to the tools' schemas, where the provider can", see="[strict tools](choosing-a-model.md#strict-tools)")] = False
    stop_sequences: Declared[tuple[str, ...], Setting("names", "texts at which a reply stops; passed to the model", wider="Iterable[str]")] = ()
    seed: Declared[int | None, Setting("count?", "passed to the model", most=2**63 - 1)] = None
    logprobs: Declared[int | None, Setting("count?", "alternatives to report with each token of a reply, with their probabilities", see="[provider settings](choosing-a-model.md#provider-specific-settings)", most=20)] = None
    extras: Declared[Mapping[str, Any] | None, Setting("table", "passed to the model's provider unchanged")] = None
    max_output_tokens_recovery: Declared[MaxTokensRecovery | None, Setting("recovery", "ask again for truncated replies with a larger cap: max_attempts, scaling, ceiling", needs="max_output_tokens", in_python="a MaxTokensRecovery: ask again for truncated replies with a larger cap")] = None
    empty_outcome_retry_budget: Declared[int | None, Setting("count?", "how many stops without a tool call may be answered in a row", inherited=Passed.NO)] = None
    plain_text_terminal_fallback_tool: Declared[str | None, Setting("text?", "the tool that a plain-text stop counts as calling", see="[the policy](protocol-policy.md#plain-text-where-a-delivery-was-expected)")] = None
    plain_text_terminal_fallback_eager: Declared[bool, Setting("bool", "count it as a call of that tool at once", needs="plain_text_terminal_fallback_tool")] = False
    plain_text_terminal_fallback_eager_nudge: Declared[bool, Setting("bool", "nudge first, at most twice", needs="plain_text_terminal_fallback_eager")] = False
    graceful_turn_limit_message_provider: Declared[Callable[[], str] | None, Setting("callable?", "a function that returns the text of the wind-down notice", python_only="a Python callable")] = None
    graceful_turn_limit_grace_provider: Declared[Callable[[], int] | None, Setting("callable?", "a function that returns the grace, called at every turn", python_only="a Python callable", needs="max_iterations")] = None
    landing: Declared[str, Setting("choice", "what happens at a limit: withdraw the tools, steer, force the answer, or off", flag="--landing", choices=("withdraw", "steer", "force", "off"), see="[the landing](the-landing.md)")] = "withdraw"
    conversation_id: Declared[str | None, Setting("text?", "given to hooks and events", inherited=Passed.NO)] = None
    model_id: Declared[str | None, Setting("text?", "the model's name as hooks see it")] = None
    token_estimator: Declared[TokenEstimator | None, Setting("object?", "an object with estimate(text) -> int; None: by characters, over-estimating", python_only="a Python object")] = None
    protocol_policy: Declared[ProtocolPolicy | None, Setting("object?", "a ProtocolPolicy: terminal tool names, alias repair, words for hidden tools", python_only="a Python object")] = None
    context_window: Declared[int | None, Setting("int?", "tokens the model can read; 0 is off", flag="--context-window", seed="context_window", metavar="N", zero_is_off=True)] = None
    context_strategy: Declared[str | ContextStrategy, Setting("text", "how a long transcript is made to fit: compact, sliding_window, summarize or none", flag="--context-strategy", seed="context_strategy", metavar="NAME", see="[context](context.md)", checked=False, in_python="how a long transcript is made to fit: compact, sliding_window, summarize, none, or a ContextStrategy")] = "compact"
    prices: Declared[Mapping[str, Any] | None, Setting("prices", "dollars per million tokens: {model name: [input, output]}", in_python="{model name: (input, output)} in dollars per million tokens")] = None
    unpriced: Declared[str | None, Setting("text?", "estimate:MODEL, the model whose price to use when none is known")] = None
    unbounded: Declared[bool, Setting("bool", "allow a run without any limit")] = False
    min_output_tokens: Declared[int, Setting("int", "an output cap is never lowered below this to make a call fit")] = 256
    max_retries: Declared[int, Setting("count", "attempts after the first when a model call fails", flag="--max-retries", seed="max_retries", metavar="N", found=LOWER)] = 3
    fallback_models: Declared[tuple[Any, ...], Setting("names", "models to fall back to, in order", flag="--fallback-models", metavar="NAMES", wider="Iterable[Model | str]", see="[fallback models](retries-and-timeouts.md#fallback-models)")] = ()
    durability: Declared[str, Setting("choice", "when the store writes to disk", choices=("sync", "full"), needs="store")] = "sync"
    output_type: Declared[Any, Setting("object?", "the type of the final answer", python_only="a Python type", see="[structured output](structured-output.md)", in_python="the type of the final answer", wider="object")] = None
    deps_type: Declared[Any, Setting("object?", "the type of what is passed as run(deps=...)", python_only="a Python type", wider="object")] = None
    deps_factory: Declared[Callable[[RunInfo], Any] | None, Setting("callable?", "makes the deps of a run that got none, for example in a worker: a plain function of RunInfo", python_only="a Python callable")] = None
    agent_name: Declared[str, Setting("text", "the agent's name in events and breakdowns")] = "agent"
    start_timeout: Declared[float | None, Setting("seconds?", "time to wait for a shared budget before the run starts", see="[a shared budget](budgets.md#a-shared-budget)", in_python="seconds to wait for a shared budget before the run starts; None: as long as it takes")] = None
    connect_timeout: Declared[float | None, Setting("seconds?", "time to connect to the provider", see="[timeouts](retries-and-timeouts.md#timeouts)", in_python="seconds to connect to the provider")] = 10
    first_chunk_timeout: Declared[float | None, Setting("seconds?", "time to the first piece of a reply", in_python="seconds to the first piece of a reply")] = 120
    stall_timeout: Declared[float | None, Setting("seconds?", "time between two pieces of a reply", in_python="seconds between two pieces of a reply")] = 60
    call_timeout: Declared[float | None, Setting("seconds?", "time for one attempt at a model call", in_python="seconds for one attempt at a model call")] = None
    hook_timeout: Declared[float, Setting("seconds", "time for one answer of an async hook", in_python="seconds for one answer of an async hook")] = 5
    constraint_timeout: Declared[float, Setting("seconds", "time for one answer of a constraint", in_python="seconds for one answer of a constraint")] = 1
    kill_switch_grace: Declared[float, Setting("seconds", "how many seconds a kill switch may be unreadable before it counts as thrown", python_only="a kill switch is a Python object")] = 5
    debug: Declared[bool, Setting("bool", "log the text and the traceback of errors in your tools, hooks, constraints, observers and models", flag="--debug", see="[your own bugs](how-a-run-ends.md#your-own-bugs)")] = False
    thinking_tags: Declared[bool, Setting("bool", "hide <think> and its synonyms from the visible text")] = False
    # fmt: on

    def __post_init__(self) -> None:
        with readable():
            _normalize(self)
            check(self)

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a setting, with a suggestion."""
        return ConfigurationError(_unknown(name))

    def plugin_names(self) -> PluginNames:
        """The plugins behind each hook, in calling order."""
        return Lineup(self.plugins).names()

    def child_builder(self) -> "AgentBuilder":
        """A builder for a child's configuration: everything a child inherits, as each setting declares."""
        from glidepath.agent.builder import child_builder

        return child_builder(self)


FIELDS: tuple[str, ...] = LoopConfig.__struct_fields__
_TEXTS = ("system_prompt", "agent_name", "conversation_id", "model_id", "reasoning")


def make_config(**fields: Any) -> LoopConfig:
    """A `LoopConfig` from keyword arguments; raises `ConfigurationError` naming the field, also for a missing model."""
    if "model" not in fields:
        unknown = [name for name in fields if name not in FIELDS]
        raise ConfigurationError(_unknown(unknown[0]) if unknown else "model is required: pass model=...")
    return LoopConfig(**fields)


def _normalize(config: LoopConfig) -> None:
    """Normalize what was given: tuples of resolved objects, plain strings, copied mappings."""
    kept: dict[str, Any] = {
        name: _as_tuple(name, getattr(config, name))
        for name in ("tools", "tool_sources", "constraints", "guards", "plugins", "fallback_models", "stop_sequences")
    }
    for name in INSTALLED:
        kept[name] = with_installed(name, kept[name])
    items, sources = split_tools(kept["tools"])
    kept["tools"] = tuple(_as_tool(item) for item in items)
    kept["tool_sources"] = _checked_sources((*kept["tool_sources"], *sources))
    kept["constraints"] = tuple(_as_constraint(item) for item in kept["constraints"])
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


def _copied(value: object) -> Any:
    """A copy of plain containers, so that a configuration cannot be changed from outside; other objects are shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _as_model(model: object) -> Any:
    """The model itself, or the one a string such as `anthropic:claude-sonnet-4-5` names."""
    if not isinstance(model, str):
        return model
    from glidepath.models import resolve

    return resolve(model)


def _unknown(name: str) -> str:
    limits, guardrails = Limits.__struct_fields__, GuardrailsConfig.__struct_fields__
    meant = _OTHER_NAMES.get(name, name)
    close = meant if meant in (*FIELDS, *limits, *guardrails) else close_to(name, FIELDS)
    hint = f"; did you mean {close!r}?" if close else ""
    if name in _NOT_SETTINGS:
        hint = f"; {_NOT_SETTINGS[name]}"
    elif close in limits:
        hint = f"; it belongs to the limits: limits=Limits({close}=...)"
    elif close in guardrails:
        hint = f"; it belongs to the guardrails: guardrails=GuardrailsConfig({close}=...)"
    return f"there is no setting {name!r}{hint}"


_OTHER_NAMES = {  # what the same is called elsewhere
    "callbacks": "plugins",
    "checkpointer": "store",
    "hooks": "plugins",
    "instructions": "system_prompt",
    "llm": "model",
    "mcp_servers": "tools",
    "memory": "store",
    "middleware": "plugins",
    "name": "agent_name",
    "provider_extras": "extras",
    "response_format": "output_type",
    "response_model": "output_type",
    "result_type": "output_type",
    "role": "system_prompt",
    **OTHER_LIMIT_NAMES,
}
_FOR_A_RUN = "it belongs to a run: agent.run(prompt, {}=...)"
_FOR_THE_MODEL = "it belongs to the model: model=glidepath.models.OpenAIModel(name, {}=...)"
_NOT_SETTINGS = {  # what is passed elsewhere, and where
    **dict.fromkeys(("parent", "wallet"), _FOR_A_RUN.format("parent")),
    "api_key": _FOR_THE_MODEL.format("api_key"),
    "base_url": _FOR_THE_MODEL.format("base_url"),
    "budget": "an amount is limits=Limits(max_cost=...); a Budget belongs to a run: agent.run(prompt, parent=budget)",
    "cancel": _FOR_A_RUN.format("cancel"),
    "deps": _FOR_A_RUN.format("deps"),
    "handoffs": "pass other agents as tools: tools=[other.as_tool(name, description)]",
    "history": _FOR_A_RUN.format("session"),
    "messages": _FOR_A_RUN.format("session"),
    "model_settings": "temperature, max_output_tokens and the rest are settings of their own",
    "session": _FOR_A_RUN.format("session"),
    "stream": "a model has a stream method: pass it as model=; to stream a run, use agent.stream(prompt)",
    "verbose": "plugins=[glidepath.observe.LogObserver()] logs every event",
}


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} must be a list or tuple, such as {name}=[...], not {value!r:.100}")
    items = tuple(islice(value, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        raise ConfigurationError(f"{name} has more than {MOST_ITEMS} items, or never ends; pass a list or tuple")
    return items


def with_installed(field: str, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The items, those given by name found among what is installed."""
    if not any(isinstance(item, str) for item in items):
        return items
    from glidepath.agent.discovery import installed

    return tuple(installed(field, item) if isinstance(item, str) else item for item in items)


def _as_tool(item: object) -> Tool:
    if not isinstance(item, Tool) and callable(item) and not isinstance(item, type):
        item = tool(item)
    if isinstance(item, Tool):
        item._check_bound()  # noqa: SLF001 - said here, where a person reads it
        return item
    raise ConfigurationError(f"tools must be Tool objects, functions or sources such as McpServer, not {item!r:.100}")


def _as_constraint(item: object) -> Any:
    if isinstance(item, ResourceConstraint | type) or not callable(item):
        return item  # checked with the others
    return FunctionConstraint(item)


def _checked_sources(sources: tuple[Any, ...]) -> tuple[ToolSource, ...]:
    """The sources, each of which has its own name unless they are views of the same."""
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
            raise ConfigurationError(f"fallback_models[{number}] is already in use: a model cannot be its own fallback")
    _check_objects(config)
    check_fields(config)
    _check_tools(config)
    for number, word in enumerate(config.stop_sequences):
        check_text(f"stop_sequences[{number}]", word)
        if not word:
            raise ConfigurationError(f"stop_sequences[{number}] is empty: every reply would stop at once")
    for constraint in config.constraints:
        _check_constraint(constraint)
    for guard in config.guards:
        from glidepath.guards.own import check_guard

        check_guard(guard)
    Lineup(config.plugins)
    strategy(config.context_strategy)
    checked_prices(config.prices)
    if config.output_type is not None:
        from glidepath.tools.output import Output

        Output(config.output_type)
    _check_fallback_tool(config)


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


def _check_model(field: str, model: object) -> None:
    if isinstance(model, type) or not callable(getattr(model, "stream", None)):
        raise ConfigurationError(
            f"{field} must have a method stream(request), like glidepath.models.Model; got {model!r:.100}"
        )
    name = getattr(model, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{field}.name must be a non-empty str; {type(model).__name__} has {name!r}")
    window = getattr(model, "context_window", None)
    if window is not None and (type(window) is not int or window < 1):
        raise ConfigurationError(
            f"{field}.context_window must be a whole number of at least 1, or None; got {window!r:.100}"
        )


def _check_transactions(config: LoopConfig) -> None:
    """Raise `ConfigurationError` for a transactional tool whose effect could not be kept with its result."""
    name = next((one.name for one in config.tools if getattr(one, "transactional", False)), None)
    if name is None:
        return
    what = f"tool {name!r} is transactional: it changes the database of the store, so it needs store=PostgresStore(dsn)"
    if config.store is None:
        raise ConfigurationError(f"{what}, and there is no store")
    if getattr(config.store, "begin_transaction", None) is None:
        raise ConfigurationError(f"{what}, not {type(config.store).__name__}; or make it an ordinary tool")
    if config.durability not in ("sync", "full"):
        raise ConfigurationError(
            f"tool {name!r} is transactional: durability={config.durability!r} writes results later; use 'sync' or 'full'"
        )


def _check_objects(config: LoopConfig) -> None:
    if config.store is not None:
        from glidepath.spi import SessionStore
        from glidepath.spi.ports import offers

        if not offers(config.store, SessionStore):
            raise ConfigurationError(
                f"store must be a session store such as glidepath.sessions.SqliteStore(path), not {config.store!r:.100}"
            )
    _check_transactions(config)
    check_limits(config.limits)
    for field, kind in (
        ("guardrails", GuardrailsConfig),
        ("texts", Texts),
        ("default_execution_mode", ExecutionMode),
        ("protocol_policy", ProtocolPolicy),
    ):
        value = getattr(config, field)
        if not isinstance(value, kind) and not (value is None and kind is ProtocolPolicy):
            article = "an" if kind is ExecutionMode else "a"
            raise ConfigurationError(f"{field} must be {article} {kind.__name__}, not {value!r:.100}")
    for field, method in (("token_estimator", "estimate"), ("max_output_tokens_recovery", "next_cap")):
        value = getattr(config, field)
        if value is not None and (isinstance(value, type) or not callable(getattr(value, method, None))):
            raise ConfigurationError(f"{field} must be an object with a method {method}(), not {value!r:.100}")
    if config.deps_type is not None and not (isinstance(config.deps_type, type) or get_origin(config.deps_type)):
        raise ConfigurationError(f"deps_type must be a type, not {config.deps_type!r:.100}")
    if inspect.iscoroutinefunction(config.deps_factory):
        raise ConfigurationError("deps_factory must be a plain function, not async: it runs before the run does")
    if inspect.iscoroutinefunction(config.event_sink):
        raise ConfigurationError(
            "event_sink must be a plain function, not async: use a Plugin with an async event_observer"
        )


def _check_tools(config: LoopConfig) -> None:
    if not config.agent_name:
        raise ConfigurationError("agent_name must not be empty")
    names = [tool.name for tool in config.tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two tools are named {name!r}; give one of them another name")
    if config.tool_choice == "required" and not names and not config.tool_sources:
        raise ConfigurationError("tool_choice='required' needs tools, but there are none: pass tools=[...]")
    if config.tool_choice not in (*TOOL_CHOICES, *names) and not config.tool_sources:
        raise ConfigurationError(  # what sources offer is known when a run starts
            f"tool_choice must be auto, required, none or the name of a tool; got {config.tool_choice!r}"
        )


def _check_constraint(constraint: object) -> None:
    if not isinstance(constraint, ResourceConstraint):
        raise ConfigurationError(f"constraints must be ResourceConstraint objects, not {constraint!r:.100}")
    name: Any = constraint.name
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{type(constraint).__name__}.name must be a non-empty str, not {type(name).__name__}")
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
