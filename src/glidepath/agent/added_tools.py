"""Tools that a source offers only since a run is in flight join that run when its next turn begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from glidepath.agent.assemble import change_tools
from glidepath.agent.many_tools import CALL, FIND, make_search_tools
from glidepath.agent.route import join_plans
from glidepath.run import broke_prefix
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.run import Plan, Route, Run
    from glidepath.tools import Tool

__all__ = ["join_tools"]

KEY = "tools_added"


def join_tools(run: Run, tools: Sequence[Tool]) -> None:
    """Offer these tools from the next turn on, and tell the model; a run that is about to end is left alone."""
    if run.descent.notice is not None or run.descent.verdict is not None or run.descent.landing_calls:
        return
    names = ", ".join([tool.name for tool in tools])
    run.transcript.queue_notice(KEY, "tools", f"There are more tools from now on: {names}.")
    run.terms.change_speaker(partial(_join_now, run, tuple(tools), run.terms.next_speaker))


def _join_now(run: Run, tools: Sequence[Tool], before: Callable[[], None] | None) -> None:
    """The turn begins: nothing is in flight that was asked with the tools before."""
    run.terms.keep_speaker()
    agent_name = run.plan.config.agent_name
    if before is not None:
        before()
    if run.plan.config.agent_name != agent_name:  # another agent speaks now, with its own tools
        return
    try:
        plan = _add_tools(run.plan, tools)
    except ConfigurationError:  # the names were free when they were chosen
        return
    broke_prefix(run, "a source offers more tools")
    run.use(plan)


def _add_tools(current: Plan, tools: Sequence[Tool]) -> Plan:
    """The same plan with more tools, where its sources' tools are: among its own, or behind the two that find them."""
    shown: tuple[Tool, ...] = (*current.config.tools, *tools)
    behind: tuple[Tool, ...] = ()
    if current.behind:
        behind = (*[current.tools[name] for name in sorted(current.behind)], *tools)
        own = [tool for tool in current.config.tools if tool.name not in (FIND, CALL)]
        shown = (*own, *make_search_tools(behind))
    if current.route is None:
        return change_tools(current, shown, behind)
    plans = [change_tools(one, shown, behind) for one in current.route.plans]
    route: Route = join_plans(plans).route  # type: ignore[assignment] # they are on one now
    return route.plans[current.position]
