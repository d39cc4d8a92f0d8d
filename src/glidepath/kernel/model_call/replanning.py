"""A run that starts over each time its context was made smaller: the same calls, the same answers, the same end.

Other guards look at a few steps in a row. This one compares whole stretches, from one compaction to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.guards import call_signature, pair_signature, result_signature
from glidepath.run import Verdict
from glidepath.values import (
    AgentState,
    AssistantMessage,
    GuardTripped,
    Message,
    StopCause,
    ToolResultMessage,
    pluralize,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glidepath.run import Run

HOME, KEY = "guardrails", "replanning"  # where the stretches are kept, with what the journal takes along
LEAST = 3  # different calls with their results: fewer do not make a plan
SHARE = 0.8  # of a stretch that the one before had, too
LANDS = 3  # stretches in a row that repeat the one before
NOTICE = (
    "The context was made smaller again, and since the last time you have made the same calls as before it, with the "
    "same results. You are starting over. Do what is still open, or answer with what you have."
)


def notice_replanning(run: Run) -> None:
    """The context was made smaller: compare what was done since the last time with what was done before it."""
    if not run.plan.config.guardrails.max_repeated_tool_steps:
        return
    home: Any = run.guards.home
    state = home.setdefault(HOME, {}).setdefault(KEY, {})
    messages = run.transcript.messages
    start = max(state.get("upto", 0), run.transcript.first_new)
    done, before = _list_pairs(messages[start:], run), set(state.get("pairs", ()))
    if len(done) < LEAST:
        return  # too little to compare; it is part of the next stretch
    same = len(done & before) >= SHARE * len(done)
    times = state.get("times", 0) + 1 if same else 0
    state.update(upto=len(messages), pairs=sorted(done), times=times)
    if not times:
        return
    reason = f"{len(done & before)} of {pluralize(len(done), 'call')} since the last compaction repeat those before it"
    action = "land" if times >= LANDS else "nudge"
    run.emit(GuardTripped, KEY, action, reason)
    if action == "nudge":
        run.transcript.queue_notice(KEY, KEY, NOTICE)
        return
    cause = StopCause(source=KEY, action="land", reason=reason)
    run.descent.land_unless_landing(Verdict(state=AgentState.ERROR, cause=cause))


def _list_pairs(messages: Sequence[Message], run: Run) -> set[str]:
    """Each different call with what it returned; not those of tools that are meant to be called again."""
    results = {one.call_id: one for one in messages if type(one) is ToolResultMessage}
    found = set()
    for message in messages:
        for call in message.tool_calls if type(message) is AssistantMessage else ():
            tool = run.plan.tools.get(call.name)
            if call.id in results and tool is not None and not tool.polling:
                found.add(pair_signature(call_signature(call), result_signature(results[call.id])))
    return found
