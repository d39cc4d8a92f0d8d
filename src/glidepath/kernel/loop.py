"""The loop: one run from take-off to touchdown. Control flow only; every phase has its own module."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath.kernel.constraint_checks import judge
from glidepath.kernel.endings import append_reply, deliver, fail_run, finish_without_calls, pause_run, refuse_cut_calls
from glidepath.kernel.landing.ladder import land
from glidepath.kernel.landing.notice import wind_down
from glidepath.kernel.model_call import ask
from glidepath.kernel.model_call.booking import admit_to_budget
from glidepath.kernel.polling import poll
from glidepath.kernel.tool_calls import execute, finish_batch
from glidepath.kernel.tool_calls.interrupted import resolve_interrupted_calls
from glidepath.run import AFTER_MODEL, AFTER_TOOLS, PRE_FLIGHT, Ending, Run, Touchdown
from glidepath.values import Message, ModelError


async def run_loop(run: Run, prompt: Sequence[Message]) -> Ending:
    """Execute one run and report how it ended. Returns on every path, unless glidepath itself has a bug."""
    try:
        run.add_prompt(prompt)
        resolve_interrupted_calls(run)
        await admit_to_budget(run)
        ending = await _finish_earlier_part(run) if run.turn.is_open else None
        while ending is None:  # turn after turn, until the model, a tool, a limit or a person ends it
            if run.hooks.steering and (messages := poll(run, "steering")) is not None:
                await messages
            if not run.is_clear(PRE_FLIGHT):
                await judge(run, PRE_FLIGHT)
                wind_down(run)
            run.open_turn()
            reply = await ask(run)
            append_reply(run, reply)
            if not run.is_clear(AFTER_MODEL):
                await judge(run, AFTER_MODEL)
            if not reply.calls or reply.refused:
                ending = await finish_without_calls(run, reply)
            elif reply.truncated:
                ending = refuse_cut_calls(run)
            elif await execute(run, reply.calls) or (run.turn.programs and await _finish_programs(run)):
                ending = await deliver(run)
            elif run.turn.pending:
                ending = pause_run(run)
            if ending is None and not run.is_clear(AFTER_TOOLS):
                await judge(run, AFTER_TOOLS)
            run.close_turn()
        return ending
    except Touchdown as touchdown:
        return await land(run, touchdown.verdict)
    except ModelError as error:
        return fail_run(run, error)


async def _finish_programs(run: Run) -> bool:
    from glidepath.kernel.programs import run_programs  # few tools make calls

    return await run_programs(run)


async def _finish_earlier_part(run: Run) -> Ending | None:
    """The turn that a resumed run had stopped in: its calls are finished first."""
    if not run.is_clear(AFTER_MODEL):
        await judge(run, AFTER_MODEL)
    if await finish_batch(run) or (run.turn.programs and await _finish_programs(run)):
        run.close_turn()
        return await deliver(run)
    if run.turn.pending:
        return pause_run(run)
    if not run.is_clear(AFTER_TOOLS):
        await judge(run, AFTER_TOOLS)
    run.close_turn()
    return None
