"""Who may come to speak in a run: the agents that a conversation can be handed over to, and the tools for that."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import current_scope
from glidepath.tools import Tool, ToolResult, shorten, tool
from glidepath.values import ConfigurationError, ToolError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from glidepath.agent.agent import Agent
    from glidepath.agent.config import LoopConfig

TRANSFER = "transfer_to_"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SHOWN = 200  # characters of the other agent's prompt in the description of the tool
_FIRST_ONLY = ("plugins", "constraints", "guards", "approvals", "tool_sources")


def check_handoffs(config: LoopConfig) -> None:
    """Raise `ConfigurationError` for an agent that cannot take over a run that has begun."""
    names = [config.agent_name]
    for number, one in enumerate(config.handoffs):
        other = getattr(one, "config", None)
        if isinstance(one, str) and one.strip():
            names.append(one)
            continue
        if other is None or not hasattr(other, "agent_name"):
            raise ConfigurationError(
                f"handoffs[{number}] must be an Agent, or the name of one that takes part, not {short_repr(one, 100)}"
            )
        for field in _FIRST_ONLY:
            if getattr(other, field):
                raise ConfigurationError(
                    f"handoffs[{number}]: agent {other.agent_name!r} has {field} of its own, which a run that has "
                    "begun cannot take on; give them to the agent that begins"
                )
        names.append(other.agent_name)
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigurationError(f"handoffs: two agents are named {name!r}; give each its own agent_name")


def collect_roster(config: LoopConfig) -> dict[str, LoopConfig] | None:
    """Every agent that may come to speak in a run of this one, by name; None when there is no other."""
    if not config.handoffs:
        return None
    roster = {config.agent_name: config}
    waiting = [one.config for one in config.handoffs if not isinstance(one, str)]
    while waiting:
        one = waiting.pop()
        if roster.setdefault(one.agent_name, one) is not one:
            raise ConfigurationError(f"handoffs: two agents are named {one.agent_name!r}; give each its own agent_name")
        _check_hosted_tools(config, one)
        waiting += [other.config for other in one.handoffs if not isinstance(other, str) and other.config is not one]
    return roster


def change_speakers(config: LoopConfig, change: Callable[[LoopConfig], LoopConfig]) -> LoopConfig:
    """This configuration, and that of every agent it may hand over to, each of them changed."""
    from glidepath.agent.agent import Agent

    known: dict[str, Agent[Any, Any] | str] = {config.agent_name: config.agent_name}

    def change_one(other: Agent[Any, Any] | str) -> Agent[Any, Any] | str:
        name = other if isinstance(other, str) else other.config.agent_name
        if not isinstance(other, str) and name not in known:
            known[name] = name  # hand-offs may lead back to it
            known[name] = Agent(change_handoffs(change(other.config)))
        return known.get(name, name)

    def change_handoffs(changed: LoopConfig) -> LoopConfig:
        return replace(changed, handoffs=tuple([change_one(one) for one in changed.handoffs]))

    return change_handoffs(change(config)) if config.handoffs else change(config)


def _check_hosted_tools(config: LoopConfig, other: LoopConfig) -> None:
    """Raise `ConfigurationError` for a tool at the provider that a rule of the agent that begins would hold."""
    if config.approvals is None or not other.hosted_tools:
        return
    from glidepath.guards.approvals import check_hosted

    try:
        check_hosted(config.approvals, [one.NAME for one in other.hosted_tools])
    except ConfigurationError as error:
        raise ConfigurationError(f"handoffs: agent {other.agent_name!r}: {error}") from error


def make_transfer_tools(config: LoopConfig) -> tuple[Tool, ...]:
    """A tool for each agent that this one may hand over to."""
    return tuple([_make_transfer_tool(one) for one in config.handoffs])


def _make_transfer_tool(other: Agent[Any, Any] | str) -> Tool:
    name: str = other if isinstance(other, str) else other.config.agent_name
    prompt = "" if isinstance(other, str) else other.config.system_prompt

    async def transfer(reason: str) -> ToolResult:
        from glidepath.agent.handoffs import hand_over  # only where it happens

        place = current_scope()
        if place is None:
            raise ToolError("the conversation can be handed over only by a call of a running agent")
        return await hand_over(place.run, name, reason)

    said = f"Hand the conversation over to {name}, who answers from now on. `reason` is what {name} should know."
    if isinstance(prompt, str) and prompt.strip():
        said += f" It was told: {shorten(' '.join(prompt.split()), _SHOWN)}"
    return tool(transfer, name=f"{TRANSFER}{_UNSAFE.sub('_', name)}"[:64], description=said, idempotent=True)
