"""Turns a configuration into a plan: what was left open gets its default here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from glidepath import _wire
from glidepath.agent.config import LoopConfig
from glidepath.agent.config_checks import terminal_tools
from glidepath.agent.limits import Limits
from glidepath.agent.route import add_fallback_route, facts_of, output_limit_of, window_of
from glidepath.guards import GracefulTurnLimit, GuardrailsConfig
from glidepath.guards.constraints import DefaultResourceConstraint, KillSwitchConstraint, make_limit_constraints
from glidepath.guards.guard_set import GuardSet
from glidepath.kernel import CharEstimator, make_sizer, repair, strategy
from glidepath.kernel.context import guard_estimate
from glidepath.plugins import HookTable
from glidepath.run import Caps, Patience, Plan
from glidepath.spi import Plugin, ProtocolPolicy
from glidepath.tools import Output, Tool
from glidepath.values import (
    ConfigurationError,
    close_to,
    dollars,
    pluralize,
    settings_of,
    share_of,
    translate_read_errors,
)


@translate_read_errors()
def assemble(
    config: LoopConfig,
    inherited: tuple[Plugin, ...] = (),
    told: set[str] | None = None,
    behind: tuple[Tool, ...] = (),
) -> Plan:
    """The plan of a configuration; raises `ConfigurationError` for problems between parts.

    `inherited` are the plugins a child gets from its parent, beside its own; `told` is what the agent's log has been
    told already; `behind` are tools that can be called and are not shown (see `many_tools`).
    """
    model: Any = config.model
    estimator = config.token_estimator or CharEstimator()
    estimate = guard_estimate(estimator.estimate)
    policy = _policy(config, behind)
    output = None if config.output_type is None else Output(config.output_type)
    texts = config.texts
    told_first = config.system_prompt
    system_prompt = _append_format(told_first if isinstance(told_first, str) else "", output)
    landing_notice = _append_format_reminder(texts.fill("landing"), output)
    system_tokens = estimate(system_prompt) + _size_schema(output, estimate)
    tools = _tool_parts(config, behind)
    specs = tools["specs"]
    plan = Plan(
        config=config,
        **facts_of(model, config),
        model_id=config.model_id or model.name,
        route=None,
        position=0,
        system_prompt=system_prompt,
        **tools,
        fixed_tokens=system_tokens + (estimate(_wire.encode(specs).decode()) if specs else 0),
        landing_fixed_tokens=system_tokens,
        **_limit_parts(config),
        patience=_make_patience(config),
        notice=_make_notice_provider(config, output),
        landing_notice=landing_notice,
        landing_notice_tokens=estimate(landing_notice) + 8,
        estimator=estimator,
        size_of=make_sizer(estimator, estimate),
        measures_replies=type(estimator) is CharEstimator,
        strategy=strategy(config.context_strategy, estimate=estimate),
        repair=partial(repair, texts=texts),
        context_window=window_of(config, model),
        max_output_tokens=config.max_output_tokens,
        first_output_tokens=config.max_output_tokens or output_limit_of(model),
        extras=None if config.extras is None else _wire.freeze(dict(config.extras)),
        told=set() if told is None else told,
        policy=policy,
        plain_policy=type(policy).normalize_tool_calls is ProtocolPolicy.normalize_tool_calls,
        output=output,
        **_judging_parts(config),
        lineup=HookTable(_list_plugins(config), inherited),
    )
    _check_fits(plan)
    return add_fallback_route(plan, config)


def _find_roster(config: LoopConfig) -> dict[str, LoopConfig] | None:
    """The agents that may come to speak in its runs; None, as nearly always, when there is no other."""
    if not config.handoffs:
        return None
    from glidepath.agent.roster import collect_roster

    return collect_roster(config)


def _policy(config: LoopConfig, behind: tuple[Tool, ...]) -> ProtocolPolicy:
    policy = config.protocol_policy or ProtocolPolicy()
    if behind:
        from glidepath.agent.many_tools import wrap_policy  # only where there are many

        policy = wrap_policy(policy, {tool.name: tool for tool in behind})
    return policy


def _tool_parts(config: LoopConfig, behind: tuple[Tool, ...]) -> dict[str, Any]:
    """What a plan knows about the tools: those that are shown, those that are found, those of programs."""
    hands = hands_of(config.tools)
    shown = config.tools
    if config.handoffs:
        from glidepath.agent.roster import make_transfer_tools

        shown = (*shown, *make_transfer_tools(config))
    if any(one.background for one in shown):
        from glidepath.kernel.tool_calls.background_calls import COLLECT, make_background_tools

        if any(one.name == COLLECT for one in shown):
            raise ConfigurationError(
                f"tool {COLLECT!r} has the name of the tool that collects results from the background; rename it"
            )
        shown = make_background_tools(shown)
    tools = (*shown, *behind, *hands)
    if config.handoffs and len({one.name for one in tools}) < len(tools):
        raise ConfigurationError("a tool has the name of a hand-off, such as transfer_to_NAME; give it another name")
    return {
        "tools": {tool.name: tool for tool in tools},
        "tool_names": frozenset([tool.name for tool in tools] + [one.NAME for one in config.hosted_tools]),
        "roster": _find_roster(config),
        "behind": frozenset(tool.name for tool in behind),
        "hands": frozenset(tool.name for tool in hands),
        "specs": tuple(tool.spec for tool in shown),
        "terminal_tools": terminal_tools(config),
        "reviewer": _find_reviewer(config),
        "may_ask": any(tool.requires_approval or tool.asks_back or tool.max_calls for tool in tools),
        "deps_needed": _collect_deps_types(config, tools),
    }


def change_tools(plan: Plan, tools: tuple[Tool, ...], behind: tuple[Tool, ...] = ()) -> Plan:
    """The plan of a run in flight with other tools, and nothing else changed; raises `ConfigurationError`."""
    config = _wire.replace(plan.config, tools=tools)
    parts = _tool_parts(config, behind)
    estimate = guard_estimate(plan.estimator.estimate)
    size, before = [estimate(_wire.encode(specs).decode()) if specs else 0 for specs in (parts["specs"], plan.specs)]
    policy = _policy(config, behind)
    return _wire.replace(
        plan,
        **{**parts, "roster": plan.roster, "reviewer": plan.reviewer},
        config=config,
        policy=policy,
        plain_policy=type(policy).normalize_tool_calls is ProtocolPolicy.normalize_tool_calls,
        fixed_tokens=plan.fixed_tokens - before + size,
    )


def _limit_parts(config: LoopConfig) -> dict[str, Any]:
    """What a plan knows about the limits."""
    limits, soft_limit = config.limits, _make_soft_limit(config)
    return {
        "caps": _make_own_caps(config),
        "timeout": None if config.replace_defaults else limits.timeout,
        "landing_time": limits.landing_time,
        "bounded": config.unbounded or (bool(config.constraints) if config.replace_defaults else limits.bounded),
        "soft_limit": soft_limit,
        "soft_turns": None if soft_limit is None else soft_limit.earliest(),
        "near_money": _compute_money_margin(config),
    }


def _judging_parts(config: LoopConfig) -> dict[str, Any]:
    """Whom a plan asks whether a run may continue: constraints, ours first, and guards."""
    ours = _make_limit_constraints(config)
    metered = tuple(one for one in ours if one.metered)
    asked = (*(one for one in ours if not one.metered), *config.constraints)
    parts = tuple(_expand_composites(asked))
    constraints = (*metered, *parts)
    guards = GuardSet(config.guardrails, config.texts, config.guards)
    return {
        "constraints": constraints,
        "metered": metered,
        "asked": parts,
        "custom": asked,
        "clocked": tuple(one for one in constraints if one.check_every is not None),
        "switches": tuple(one for one in constraints if isinstance(one, KillSwitchConstraint)),
        "make_guards": guards.make_call_guards,
        "make_stop_guards": guards.make_stop_guards,
        "known_stop_guards": guards.make_stop_guards_at_start,
    }


def _find_reviewer(config: LoopConfig) -> Any:
    if config.approvals is None:
        return None
    from glidepath.agent.approvals import make_reviewer

    return make_reviewer(config)


def _list_plugins(config: LoopConfig) -> tuple[Plugin, ...]:
    """The plugins, and the rules for approvals behind them, which see the arguments that the others leave."""
    if config.approvals is None:
        return config.plugins
    from glidepath.agent.approvals import make_rules_plugin

    return (*config.plugins, *make_rules_plugin(config))


def hands_of(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools that only programs may call, none of which has a name that is taken."""
    taken, found = {tool.name for tool in tools}, []
    for hand in [hand for tool in tools for hand in tool.hands]:
        if hand.name in taken:
            raise ConfigurationError(f"two tools are named {hand.name!r}; give one of them another name")
        taken.add(hand.name)
        found.append(hand)
    return tuple(found)


def _collect_deps_types(config: LoopConfig, tools: tuple[Tool, ...]) -> tuple[tuple[str, Any], ...]:
    own = () if config.deps_type is None else ((f"agent {config.agent_name!r}", config.deps_type),)
    return (*own, *[(f"tool {tool.name!r}", tool.deps_type) for tool in tools if tool.deps_type is not None])


def _make_own_caps(config: LoopConfig) -> Caps:
    caps = config.limits.caps()
    if not config.replace_defaults:
        return caps
    return Caps(descendants=caps.descendants, depth=caps.depth)


def _expand_composites(constraints: tuple[Any, ...]) -> Iterator[Any]:
    """The constraints, a composite as its parts: each has its own name and state."""
    for constraint in constraints:
        if type(constraint) is DefaultResourceConstraint:
            yield from constraint.parts
        else:
            yield constraint


def _make_limit_constraints(config: LoopConfig) -> tuple[Any, ...]:
    if config.replace_defaults:
        return ()
    return make_limit_constraints(config.limits, landing_seconds=config.limits.landing_time)


def _make_patience(config: LoopConfig) -> Patience:
    times = (config.first_chunk_timeout, config.stall_timeout, config.call_timeout)
    grain = min([1.0, *[limit / 8 for limit in times if limit]])
    return Patience(first_chunk=times[0], stall=times[1], call=times[2], grain=grain)


def _make_soft_limit(config: LoopConfig) -> GracefulTurnLimit | None:
    """The warning before the turn limit, where there is room for one."""
    limits = config.limits
    if config.replace_defaults or limits.max_iterations is None:
        return None
    limit = GracefulTurnLimit(
        limits.max_iterations,
        limits.grace_iterations,
        message_provider=config.graceful_turn_limit_message_provider,
        grace_provider=config.graceful_turn_limit_grace_provider,
    )
    return limit if limit.enabled and limits.max_iterations > 1 else None


def _make_notice_provider(
    config: LoopConfig, output: Output | None
) -> Callable[[str], tuple[str, BaseException | None]]:
    """The words of the wind-down notice: the application's, or ours when it has none or fails."""
    notice = GracefulTurnLimit(2, message_provider=config.graceful_turn_limit_message_provider).notice
    if output is None:
        return notice

    def reminding(default: str) -> tuple[str, BaseException | None]:
        text, error = notice(default)
        return _append_format_reminder(text, output), error

    return reminding


def _append_format_reminder(notice: str, output: Output | None) -> str:
    """A notice that asks for an answer asks for it in the format of the answer."""
    return notice if output is None or not output.reminder else f"{notice} {output.reminder}"


def _size_schema(output: Output | None, estimate: Callable[[str], int]) -> int:
    """The tokens of the schema, beside its instructions: where a provider enforces it, both are sent."""
    return 0 if output is None or output.schema is None else estimate(_wire.encode(output.schema).decode())


def _append_format(system_prompt: str, output: Output | None) -> str:
    """The format in words, for models that cannot be held to it otherwise."""
    if output is None or not output.instructions:
        return system_prompt
    return f"{system_prompt}\n\n{output.instructions}" if system_prompt else output.instructions


def _compute_money_margin(config: LoopConfig) -> int:
    money = config.limits.caps().money
    return 0 if money is None else share_of(money, config.guardrails.cost_reserve)


def _check_fits(plan: Plan) -> None:
    """Reject, at construction, a prompt that can never fit the token limit."""
    if plan.hosted is not None:
        _check_hosted_fits(plan)
    limit = plan.caps.tokens
    if limit is None:
        return
    least = min(plan.config.min_output_tokens, plan.max_output_tokens or plan.config.min_output_tokens)
    reserve = min(plan.config.limits.landing_tokens, limit // 4)
    if plan.fixed_tokens + least + reserve > limit:
        raise ConfigurationError(
            f"limits.max_tokens={limit} can never hold one call: it needs {plan.fixed_tokens + least + reserve}, "
            f"{plan.fixed_tokens} for the system prompt and tools, {least} for a reply (min_output_tokens) and "
            f"{reserve} for the landing; raise max_tokens, shorten the prompt, or lower min_output_tokens"
        )


def _check_hosted_fits(plan: Plan) -> None:
    """Reject, at construction, tools of the provider that no call could pay for."""
    hosted, price, caps = plan.hosted, plan.price, plan.caps
    needed = plan.fixed_tokens + hosted.tokens(plan.fixed_tokens)  # type: ignore[union-attr] # the caller has checked
    why = "because the provider reads the prompt again after each use"
    if caps.tokens is not None and needed > caps.tokens:
        raise ConfigurationError(
            f"limits.max_tokens={caps.tokens} can never hold one call with its hosted tools: at worst they take "
            f"{pluralize(needed, 'token')}, {why}; raise max_tokens, or lower max_uses"
        )
    money = 0 if price is None else price.at(needed).worst(needed, 0) + hosted.fees  # type: ignore[union-attr]
    if caps.money is not None and money > caps.money:
        raise ConfigurationError(
            f"limits.max_cost={dollars(caps.money):f} can never pay one call with its hosted tools: at worst they cost "
            f"${dollars(money):f}, {why}; raise max_cost, or lower max_uses"
        )


# --- settings that have no effect: another one is missing, or a tool is misspelled -------------------------------


def _find_ineffective_settings(config: LoopConfig) -> Iterator[tuple[str, str]]:
    """The settings that have no effect, each with the one it needs: the declarations say which."""
    for owner, kept in ((LoopConfig, config), (Limits, config.limits), (GuardrailsConfig, config.guardrails)):
        for name, setting in settings_of(owner).items():
            value = getattr(kept, name)
            used = value != setting.choices[0] if setting.choices else bool(value)  # the first word is the default
            if setting.needs and used and not _is_there(config, setting.needs):
                yield name, setting.needs


def _is_there(config: LoopConfig, name: str) -> bool:
    if name in Limits.__struct_fields__:  # which bind nobody without the built-in constraints
        return getattr(config.limits, name) is not None and not config.replace_defaults
    return getattr(config, name) not in (None, False)


def _find_misspelt_gates(config: LoopConfig) -> Iterator[tuple[str, str, str]]:
    """Gates that name a misspelled tool: the gate, the name it uses, and the likely tool.

    A name that is like no tool may be meant for other agents that share the gate.
    """
    if not config.plugins:
        return
    from glidepath.plugins import ApprovalGate, OpeningGate, ToolListGate

    tools = [tool.name for tool in config.tools]
    for plugin in config.plugins:
        if isinstance(plugin, ApprovalGate | OpeningGate | ToolListGate):
            for name in plugin.named:
                pattern = any(mark in name for mark in "*?[")
                if name not in tools and not pattern and (close := close_to(name, tools, 0.8)):
                    yield plugin.name, name, close


def warn_about_ineffective(config: LoopConfig) -> None:
    """One warning for each setting that has no effect."""
    for gate, name, close in _find_misspelt_gates(config):
        warnings.warn(f"{gate} names {name!r}, which is not a tool; did you mean {close!r}?", stacklevel=3)
    for setting, needed in _find_ineffective_settings(config):
        warnings.warn(f"{setting} has no effect without {needed}", stacklevel=3)
