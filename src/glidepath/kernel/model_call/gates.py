"""Which tools the coming turn may use: gates narrow, guards withdraw, the landing takes the work tools away."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import HookFault, Opinion, ask_until_opinion, make_context, report, take_all, to_read
from glidepath.spi import Gate, GateContext, ModelRequest, ToolSpec
from glidepath.tools import clean
from glidepath.values import GateApplied, GateConflictResolved, describe_error, short_repr

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.values import Message

DOORS = frozenset({"find_tools", "call_found_tool"})
MOST_NAMES = 100_000  # names that one gate may allow


def ask_gates(run: Run) -> Awaitable[tuple[ToolSpec, ...]] | None:
    """Ask the gates. None: nobody has anything to say, and every tool may be used; else await what `offer` returns."""
    plan = run.plan
    every, turn, voices = plan.tool_names, run.turn, iter(run.hooks.tool_gate)
    context = turn.contexts.get(GateContext)
    if context is None:
        hosted = frozenset([one.NAME for one in plan.config.hosted_tools])
        messages = to_read(run, run.transcript.messages)
        context = make_context(run, GateContext, tools=every, messages=messages, hosted_tools=hosted)
    context = replace(context, iteration=turn.iterations)
    heard = ask_until_opinion(run, "tool_gate", voices, context)
    if heard is None and not run.descent.begun and not plan.behind:
        if turn.allowed is not every or turn.denials:
            turn.set_allowed_tools(every, {})
        return None
    return _choose_offered_tools(run, _ask_all_gates(run, heard, voices, context))


async def offer(run: Run) -> tuple[ToolSpec, ...]:
    """The tools to show the model; `run.allowed` is what `execute` will let run (None: all)."""
    offered = ask_gates(run) if run.hooks.tool_gate else _choose_offered_tools(run, None)
    return run.plan.specs if offered is None else await offered


async def _choose_offered_tools(run: Run, asked: Awaitable[list[tuple[str, Gate]]] | None) -> tuple[ToolSpec, ...]:
    plan = run.plan
    denials: dict[str, str] = {}
    every = allowed = plan.tool_names
    gates = None if asked is None else await asked
    if gates:
        allowed = _intersect_gates(run, gates, every, denials)
    if run.descent.withdrawn:
        allowed -= run.descent.withdrawn
        denials.update(dict.fromkeys(run.descent.withdrawn, plan.config.texts.fill("tool_withdrawn")))
    if run.descent.work_withdrawn:
        work = allowed - plan.terminal_tools
        allowed -= work
        denials.update(dict.fromkeys(work, plan.config.texts.fill("work_withdrawn")))
    if plan.behind and allowed & plan.behind and not run.descent.work_withdrawn:
        allowed |= DOORS  # gates judge the tools themselves; these two only lead to them
    run.turn.set_allowed_tools(allowed, denials)
    if plan.hosted is not None:
        run.turn.drop_request()  # what may run at the provider can change with nothing else
    if len(allowed) == len(every):
        return plan.specs  # the same object as ever: the request can be used again
    return tuple([spec for spec in plan.specs if spec.name in allowed])


def choice_among(tools: tuple[ToolSpec, ...], wanted: str) -> str:
    """The tool choice where not every tool may be called: never one that forces a call which would be refused."""
    if wanted == "auto" or (not tools and wanted == "none"):
        return wanted
    if not tools:
        return "none"
    possible = wanted in ("required", "none") or any(spec.name == wanted for spec in tools)
    return wanted if possible else "auto"


def request_for(
    run: Run, tools: tuple[ToolSpec, ...], view: Sequence[Message], cap: int | None, *, bare: bool = False
) -> ModelRequest:
    """The request of a call; `bare`: without the definitions of tools that may not be called."""
    plan, choice = run.plan, run.terms.tool_choice
    hosted = plan.config.hosted_tools
    return ModelRequest(
        system_prompt=plan.system_prompt,
        messages=view,
        tools=tools,
        defined_tools=() if bare else plan.specs,
        tool_choice=choice if tools is plan.specs else choice_among(tools, choice),
        max_output_tokens=cap,
        temperature=plan.config.temperature,
        reasoning=plan.config.reasoning,
        strict_tools=plan.config.strict_tools,
        stop_sequences=plan.config.stop_sequences,
        seed=plan.config.seed,
        logprobs=plan.config.logprobs,
        extras=run.terms.extras,
        output_schema=None if plan.output is None else plan.output.schema,
        connect_timeout=plan.config.connect_timeout,
        user=run.user,
        metadata=run.metadata,
        hosted_tools=_find_usable_hosted(run, hosted) if hosted else hosted,
        defined_hosted_tools=() if bare else hosted,
        reasoning_tokens=plan.config.reasoning_tokens,
        task_budget=_find_task_budget(run) if plan.counts_down else None,
    )


def _find_task_budget(run: Run) -> tuple[int, int | None] | None:
    from glidepath.kernel.model_call.countdown import find_task_budget  # few models take one

    return find_task_budget(run)


def _find_usable_hosted(run: Run, hosted: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tools at the provider that may be used now: what gates leave of them, and none once work is over."""
    if run.spend.landing_opened or run.descent.work_withdrawn:
        return ()
    allowed = run.turn.allowed
    return hosted if allowed is None else tuple([one for one in hosted if one.NAME in allowed])


def _intersect_gates(
    run: Run, gates: list[tuple[str, Gate]], tools: frozenset[str], denials: dict[str, str]
) -> frozenset[str]:
    """The intersection of all gates; advisory ones give way when nothing is left."""
    suppressors = [gate.priority for _, gate in gates if gate.suppresses]
    if suppressors:
        bar = max(suppressors)
        gates = [(name, gate) for name, gate in gates if gate.required or gate.priority >= bar]
    required = [(name, gate) for name, gate in gates if gate.required]
    advisory = [(name, gate) for name, gate in gates if not gate.required]
    allowed = tools.intersection(*[gate.allowed for _, gate in required])
    narrowed = allowed.intersection(*[gate.allowed for _, gate in advisory])
    if advisory and allowed and not narrowed:
        winner, narrowed = _find_strongest_gate(required, advisory, allowed)
        overruled = tuple(name for name, _ in advisory if name != winner)
        run.emit(GateConflictResolved, winner, overruled, tuple(sorted(narrowed)))
    for _, gate in gates:
        for name in tools - gate.allowed - narrowed:
            denials.setdefault(name, clean(gate.denial_reason) or "it is not available right now")
    if narrowed != tools:
        run.emit(GateApplied, tuple(sorted(narrowed)), tuple(name for name, _ in gates))
    return narrowed


def _find_strongest_gate(
    required: list[tuple[str, Gate]], advisory: list[tuple[str, Gate]], allowed: frozenset[str]
) -> tuple[str, frozenset[str]]:
    """Who wins when advisory gates leave nothing, and what it leaves.

    Advice that shares no tool with what the required gates leave gives way to them; the strongest of the rest holds.
    Without required gates there is nothing to give way to, and advice to use no tool at all is taken.
    """
    if required:
        advisory = [(name, gate) for name, gate in advisory if gate.allowed & allowed]
    if not advisory:
        return min(required, key=lambda pair: (-pair[1].priority, pair[0]))[0], allowed
    winner, gate = min(advisory, key=lambda pair: (-pair[1].priority, len(pair[1].allowed & allowed), pair[0]))
    return winner, allowed & gate.allowed


async def _ask_all_gates(
    run: Run, heard: Awaitable[Opinion | None] | None, voices: Iterator[Any], context: GateContext
) -> list[tuple[str, Gate]]:
    """Every gate's answer, the first one `heard`. One that crashes, hangs or answers nonsense allows nothing."""
    gates = []
    while heard is not None and (said := await heard) is not None:
        try:
            if said.fault is not None:
                raise said.fault
            gate = _as_gate(run, said.answer)
        except HookFault as fault:
            report(run, "tool_gate", said.name, fault, "no tool is allowed")
            gate = Gate(allowed=frozenset(), denial_reason="a guard of this tool failed", required=True)
        gates.append((said.name, gate))
        heard = ask_until_opinion(run, "tool_gate", voices, context)
    return gates


def _as_gate(run: Run, answer: object) -> Gate:
    """The answer as a gate of which every part can be trusted."""
    try:
        if isinstance(answer, AbstractSet):
            answer = Gate(allowed=answer)  # type: ignore[arg-type] # made one below
        if type(answer) is not Gate or not isinstance(answer.allowed, AbstractSet):
            raise HookFault(f"tool_gate must return a Gate, a set of names or None, not {short_repr(answer)}")
        names, fault = take_all(run, answer.allowed, MOST_NAMES)
        if fault is not None:
            raise fault
        gate = replace(answer, allowed=frozenset(names))
    except HookFault:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HookFault(f"tool_gate returned something unreadable: {describe_error(error)}") from error
    if not all(isinstance(name, str) for name in gate.allowed):
        raise HookFault("tool_gate allows names only: a set of str")
    for field, kind in (("denial_reason", str), ("priority", int), ("required", bool), ("suppresses", bool)):
        if type(getattr(gate, field)) is not kind:
            raise HookFault(f"Gate.{field} must be of type {kind.__name__}, not {short_repr(getattr(gate, field))}")
    return gate
