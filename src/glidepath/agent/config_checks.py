"""What is checked about a configuration, and what happens to what was given: tuples, tools, copied mappings."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, get_origin
from weakref import WeakSet

from glidepath._wire import settle_field
from glidepath.agent.limits import check_limits
from glidepath.agent.prices import check_prices
from glidepath.guards import GuardrailsConfig
from glidepath.guards.constraints import FunctionConstraint
from glidepath.kernel import strategy
from glidepath.plugins import HookTable
from glidepath.spi import (
    ProtocolPolicy,
    ResourceConstraint,
)
from glidepath.tools import Tool, ToolSource, tool
from glidepath.tools.sources import split_tools
from glidepath.values import (
    ENDINGS,
    FOREVER,
    AgentState,
    ConfigurationError,
    LoopOutcome,
    Texts,
    check_fields,
    check_text,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig

MOST_ITEMS = 100_000  # tools, constraints, plugins, fallback models
INSTALLED = ("plugins", "constraints", "guards", "tools")  # may be given by the name of what a package offers
LEAST_CHECK = 0.01  # seconds between two questions to a constraint on a clock
TOOL_CHOICES = ("auto", "required", "none")
MADE_FROM_FILES: WeakSet[Tool] = WeakSet()
"""The tools of skills and of agents from files: a changed configuration leaves them, and makes its own."""
BODIES_FROM_FILES: WeakSet[Any] = WeakSet()
"""Their functions: a copy of such a tool, with recorded answers for example, stays in place of a new one."""
_TEXTS = ("system_prompt", "agent_name", "conversation_id", "model_id", "reasoning")


def normalize(config: LoopConfig) -> None:
    """Normalize what was given: tuples of resolved objects, plain strings, copied mappings."""
    kept: dict[str, Any] = {
        name: _as_tuple(name, getattr(config, name))
        for name in (
            "tools",
            "tool_sources",
            "skills",
            "agents",
            "constraints",
            "guards",
            "plugins",
            "fallback_models",
            "stop_sequences",
            "output_validators",
            "handoffs",
        )
    }
    for name in INSTALLED:
        kept[name] = resolve_installed(name, kept[name])
    hosted = config.hosted_tools
    if hosted or any(is_hosted_item(item) for item in kept["tools"]):
        kept.update(_split_hosted(hosted, kept["tools"]))
    items, sources = split_tools(kept["tools"])
    kept["tools"] = tuple(_as_tool(item) for item in items)
    kept["tool_sources"] = _check_sources((*kept["tool_sources"], *sources))
    kept["constraints"] = tuple(_as_constraint(item) for item in kept["constraints"])
    kept["model"] = _as_model(config.model)
    kept["fallback_models"] = tuple(_as_model(item) for item in kept["fallback_models"])
    for name in _TEXTS:
        if isinstance(given := getattr(config, name), str):
            kept[name] = str.__str__(given)  # of a subclass, the text
    for name in ("extras", "prices"):
        kept[name] = _copy_containers(getattr(config, name))
    if kept["skills"] or kept["agents"] or any(one in MADE_FROM_FILES for one in kept["tools"]):
        from glidepath.agent.skills import normalize_files  # few agents have any

        kept.update(normalize_files(kept))
    for name, value in kept.items():
        if value is not getattr(config, name):
            settle_field(config, name, value)


def is_hosted_item(item: object) -> bool:
    """Whether a tool is one of a provider, told apart without loading what describes those."""
    return getattr(item, "NAME", None) is not None and getattr(item, "result_tokens", None) is not None


def _split_hosted(given: object, tools: tuple[Any, ...]) -> dict[str, Any]:
    """The hosted tools of both places in one, and the other tools."""
    from glidepath.spi import as_hosted_tools, is_hosted  # few agents have any

    found = [item for item in tools if is_hosted(item)]
    own = as_hosted_tools(given)
    return {
        "hosted_tools": as_hosted_tools((*own, *[one for one in found if one not in own])),
        "tools": tuple([item for item in tools if not is_hosted(item)]),
    }


def _check_reasoning_tokens(config: LoopConfig) -> None:
    tokens: Any = config.reasoning_tokens
    if config.reasoning == "none":
        raise ConfigurationError(f"reasoning='none' and reasoning_tokens={tokens} contradict each other; remove one")
    if config.max_output_tokens is not None and tokens >= config.max_output_tokens:
        raise ConfigurationError(
            f"reasoning_tokens={tokens} leaves nothing to answer with: max_output_tokens={config.max_output_tokens} "
            "holds for thoughts and answer together; raise it, or lower reasoning_tokens"
        )
    for model in (config.model, *config.fallback_models):
        least: Any = getattr(model, "least_reasoning_tokens", 1)
        if least is None and config.reasoning is None:
            raise ConfigurationError(
                f"reasoning_tokens: model {model.name!r:.80} takes a level, not a number of tokens; "
                "pass reasoning='low', 'medium' or 'high' for it"
            )
        if type(least) is int and tokens < least:
            raise ConfigurationError(f"reasoning_tokens={tokens}: model {model.name!r:.80} takes at least {least}")


def _check_hosted(config: LoopConfig) -> None:
    """Raise `ConfigurationError` for a hosted tool that a model of this agent does not have."""
    named = [
        ("model", config.model),
        *[(f"fallback_models[{at}]", one) for at, one in enumerate(config.fallback_models)],
    ]
    for field, model in named:
        explain: Any = getattr(model, "explain_no_hosted", None)
        for one in config.hosted_tools:
            why = explain(one, config.tools) if callable(explain) else "its adapter knows no hosted tools"
            if why is not None:
                raise ConfigurationError(
                    f"{field}={model.name!r:.80} cannot offer {one.NAME}: {why}; leave it out, or use another model"
                )
    taken = {tool.name for tool in config.tools} & {one.NAME for one in config.hosted_tools}
    if taken:
        raise ConfigurationError(f"tool {min(taken)!r} has the name of a hosted tool; give it another name")


def add_agents_from_files(config: LoopConfig) -> None:
    """Give a configuration that is otherwise complete the tools that hand tasks to its agents from files."""
    from glidepath.agent.skills import make_agent_tools

    settle_field(config, "tools", (*config.tools, *make_agent_tools(config)))


def _copy_containers(value: object) -> Any:
    """A copy of plain containers, so that a configuration cannot be changed from outside; other objects are shared."""
    if isinstance(value, dict):
        return {key: _copy_containers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy_containers(item) for item in value]
    return value


def _as_model(model: object) -> Any:
    """The model itself, or the one a string such as `anthropic:claude-sonnet-4-5` names."""
    if not isinstance(model, str):
        return model
    from glidepath.models import resolve

    return resolve(model)


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} must be a list or tuple, such as {name}=[...], not {value!r:.100}")
    items = tuple(islice(value, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        raise ConfigurationError(f"{name} has more than {MOST_ITEMS} items, or never ends; pass a list or tuple")
    return items


def resolve_installed(field: str, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The items, those given by name found among what is installed."""
    if not any(isinstance(item, str) for item in items):
        return items
    from glidepath.agent.discovery import load_installed

    return tuple(load_installed(field, item) if isinstance(item, str) else item for item in items)


def _as_tool(item: object) -> Tool:
    if hasattr(item, "as_tool"):
        raise ConfigurationError(
            f"tools: {item!r:.100} is an agent; pass agent.as_tool(name, description), or handoffs=[agent] to hand over"
        )
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


def _check_sources(sources: tuple[Any, ...]) -> tuple[ToolSource, ...]:
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
    _check_system_prompt(config)
    if config.handoffs:
        from glidepath.agent.roster import check_handoffs

        check_handoffs(config)
    check_fields(config)
    _check_tools(config)
    if config.hosted_tools:
        _check_hosted(config)
    if config.reasoning_tokens is not None:
        _check_reasoning_tokens(config)
    for number, word in enumerate(config.stop_sequences):
        check_text(f"stop_sequences[{number}]", word)
        if not word:
            raise ConfigurationError(f"stop_sequences[{number}] is empty: every reply would stop at once")
    for constraint in config.constraints:
        _check_constraint(constraint)
    for guard in config.guards:
        from glidepath.guards.own import check_guard

        check_guard(guard)
    HookTable(config.plugins)
    strategy(config.context_strategy)
    check_prices(config.prices)
    if config.output_type is not None:
        from glidepath.tools import Output

        Output(config.output_type)
    for number, one in enumerate(config.output_validators):
        if not callable(one) or isinstance(one, type):
            raise ConfigurationError(
                f"output_validators[{number}] must be a function that takes an OutputContext, not {one!r:.100}"
            )
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
        said = f"durability={config.durability!r} writes results later; use 'sync' or 'full'"
        raise ConfigurationError(f"tool {name!r} is transactional: {said}")


def _check_objects(config: LoopConfig) -> None:
    from glidepath.agent.config import ExecutionMode  # there by now: it imports this module

    if config.store is not None:
        from glidepath.sessions import as_store

        settle_field(config, "store", as_store("store", config.store))
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
    if config.approvals is not None:
        from glidepath.guards.approvals import Rules

        if not isinstance(config.approvals, Rules):
            raise ConfigurationError(f"approvals must be Rules(allow=[...], ...), not {short_repr(config.approvals)}")
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


def _check_system_prompt(config: LoopConfig) -> None:
    prompt: Any = config.system_prompt
    if not callable(prompt):
        check_text("system_prompt", prompt)
    elif isinstance(prompt, type):
        raise ConfigurationError(
            f"system_prompt must be a str, or a function that returns one for a PromptContext, not {prompt!r:.100}"
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
            f"got {short_repr(every, 100)}"
        )
    state: Any = constraint.state
    limit_state = isinstance(state, AgentState) and state is not AgentState.COMPLETED
    if not limit_state or (state, LoopOutcome.WRAPPED_UP) not in ENDINGS:
        raise ConfigurationError(
            f"{type(constraint).__name__}.state must be a state that a limit can end a run in, such as "
            f"AgentState.BUDGET_EXCEEDED; got {state!r:.100}"
        )
