"""Hand-offs: another agent takes over the conversation, in the same run, on the same budget, in the same journal.

An agent hands over by a tool, and the result in the transcript says who speaks from then on. Nothing else records it: a
run that continues, and the next run of the session, cannot disagree with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent.assemble import assemble
from glidepath.agent.prompt_writer import write_prompt
from glidepath.agent.roster import TRANSFER
from glidepath.agent.route import add_prices, join_plans
from glidepath.kernel import switch_plan
from glidepath.tools import ToolResult
from glidepath.values import (
    ConfigurationError,
    GuardTripped,
    Message,
    PerRun,
    ToolError,
    ToolResultMessage,
)

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.run import Plan, Run

KEY = "handoff"
MOST_REPEATS = 2  # how often in one run the same agent may hand over to the same other one
_SPEAKS = (
    *("model", "fallback_models", "model_id", "context_window", "tools", "tool_choice", "strict_tools", "handoffs"),
    *("temperature", "max_output_tokens", "max_output_tokens_recovery", "reasoning", "stop_sequences", "seed"),
    *("reasoning_tokens", "hosted_tools", "logprobs", "extras", "thinking_tags", "agent_name", "deps_type"),
    *("plain_text_terminal_fallback_tool", "plain_text_terminal_fallback_eager"),
    "plain_text_terminal_fallback_eager_nudge",
)
"""What is the speaking agent's own. Everything else stays as the first agent has it: limits, guards, gates, texts."""
_STAYS = ("lineup", "constraints", "metered", "asked", "custom", "clocked", "switches", "roster")
"""What a run has already made of the first agent's settings."""


# --- handing over --------------------------------------------------------------------------------------------------


async def hand_over(run: Run, name: str, reason: str) -> ToolResult:
    """Let another agent speak from the next turn on; raises `ToolError` where that cannot be."""
    before = run.plan.config.agent_name
    config = _find_speaker(run, name)
    prompt = config.system_prompt
    text = None
    try:
        if not isinstance(prompt, str):
            kept = run.terms.per_run or PerRun()
            prompt = text = await write_prompt(config, kept, run.terms.deps, run.session_id)
        plan = make_speaking_plan(run.plan, config, prompt)
        if any(node.caps.money is not None for node in run.meter.lineage):
            plan = add_prices(plan, plan.config)
    except ConfigurationError as error:
        raise ToolError(f"{name} cannot take over: {error}") from error
    run.transcript.queue_notice(
        KEY, before, f"You are {name} now: {before} has handed the conversation over to you. Reason: {reason}"
    )
    run.terms.change_speaker(partial(_take_over, run, plan, before))
    kept_text = {} if text is None else {"prompt": text}
    return ToolResult(f"{name} has the conversation now.", details={KEY: {"from": before, "to": name, **kept_text}})


def _find_speaker(run: Run, name: str) -> LoopConfig:
    """The agent of this name, if it may take over now; raises `ToolError` for the model."""
    before = run.plan.config.agent_name
    config: LoopConfig | None = (run.plan.roster or {}).get(name)
    if config is None or name == before:
        raise ToolError(f"there is no other agent named {name!r} in this conversation: answer yourself")
    if run.turn.reply is None or len(run.turn.reply.tool_calls) != 1:
        raise ToolError("hand the conversation over by a single call, with no other call beside it")
    if run.descent.notice is not None or run.descent.verdict is not None or run.descent.landing_calls:
        raise ToolError("the run is about to end: answer yourself instead of handing over")
    made = _iterate_handoffs(run.transcript.messages[run.transcript.first_new :])
    if sum((one["from"], one["to"]) == (before, name) for one in made) >= MOST_REPEATS:
        why = f"{before} has handed over to {name} {MOST_REPEATS} times in this run already: this goes round in circles"
        run.emit(GuardTripped, "handoffs", "refuse", why)
        raise ToolError(f"{why}. Answer with what you have.")
    return config


def _take_over(run: Run, plan: Plan, before: str) -> None:
    """From the coming turn on, the other agent speaks."""
    run.terms.speak_for(plan)
    switch_plan(run, plan, f"{before} handed over to {plan.config.agent_name}")


def make_speaking_plan(current: Plan, config: LoopConfig, prompt: str) -> Plan:
    """The plan of a run in which another agent speaks: its model, tools and prompt, and the first agent's bounds."""
    spoken = {name: getattr(config, name) for name in _SPEAKS}
    plan = assemble(replace(current.config, **{**spoken, "system_prompt": prompt}), told=current.told)
    stays = {name: getattr(current, name) for name in _STAYS}
    if plan.route is None:
        return replace(plan, **stays)
    return join_plans([replace(one, **stays) for one in plan.route.plans])


# --- who takes part, and who speaks --------------------------------------------------------------------------------


def take_speaker(plan: Plan, messages: Sequence[Message], *, resumed: bool) -> Plan:
    """The plan with which a run begins or continues: of the agent that had the conversation last."""
    last = next(_iterate_handoffs(reversed(messages)), None)
    if last is None or last["to"] == plan.config.agent_name:
        return plan
    name = last["to"]
    config = (plan.roster or {}).get(name)
    if config is None:
        if not resumed:
            return plan
        raise ConfigurationError(
            f"agent {name!r} has this conversation, and it is not among the handoffs: pass it again, by its name"
        )
    prompt = config.system_prompt if isinstance(config.system_prompt, str) else last.get("prompt")
    if not isinstance(prompt, str):
        raise ConfigurationError(
            f"the journal does not have the system prompt that agent {name!r} began with: give it a text instead"
        )
    return make_speaking_plan(plan, config, prompt)


def find_speakers_tools(plan: Plan, messages: Sequence[Message]) -> Mapping[str, Any]:
    """The tools of the agent that had the conversation last: the calls that are open are its own."""
    last = next(_iterate_handoffs(reversed(messages)), None)
    config = None if last is None else (plan.roster or {}).get(last["to"])
    if config is None or config.agent_name == plan.config.agent_name:
        return plan.tools
    return {one.name: one for one in config.tools}


def find_handoff(message: Message) -> dict[str, Any] | None:
    """Who handed over to whom, as the result of a call says: `from` and `to`; None for any other message."""
    if type(message) is not ToolResultMessage or message.is_error or message.origins:
        return None
    told = message.details.get(KEY) if isinstance(message.details, Mapping) else None
    if message.tool_name.startswith(TRANSFER) and isinstance(told, Mapping) and "to" in told:
        return {"from": "", **told}
    return None


def _iterate_handoffs(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    return (told for message in messages if (told := find_handoff(message)) is not None)
