"""A run that waits for its client continues with what the client's tools returned: the same run and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath._wire import Value
from glidepath.apps.server.client_tools import ClientAnswer, is_client_call
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.per_request import RequestChanges
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_actions import RunActions
from glidepath.apps.server.run_feed import RunFeed
from glidepath.values import RunResult

__all__ = ["ContinuedRun", "continue_run"]

_STATUS = 422
"""Of what cannot be continued: a client that tries again after a 409 would only start over."""


class ContinuedRun(Value, frozen=True, kw_only=True):
    """A run that continues: its events so far, the number of the last one, and how its last leg ended."""

    feed: RunFeed
    after: int
    before: RunResult[Any]


async def continue_run(
    actions: RunActions,
    name: str,
    answers: Mapping[str, ClientAnswer],
    changes: RequestChanges,
    who: Visitor,
) -> ContinuedRun:
    """Answer the calls of the client's tools in a run that waits for them; raises `HttpError`, and changes nothing."""
    found = await actions.reader.find(name, who)
    async with actions.take_turn(found.session_id):  # two answers may come at once: one of them is second
        found = await actions.reader.find(name, who)
        if found.feed is None:
            raise HttpError(_STATUS, "not_here", "the events of this run were not kept, so it cannot be continued here")
        card = actions.reader.card(found.feed, found.entry)
        if card.state != "paused":
            raise HttpError(
                _STATUS, "not_waiting", f"run {found.run_id} is {card.state}: it does not wait for the result of a tool"
            )
        card, result = await actions.require_paused(found)
        _check_answers(result, answers, changes)
        known = await actions.read_decisions(found)
        known = {**known, **{call_id: given.decision for call_id, given in answers.items()}}
        after = found.feed.last
        await actions.hub.admit(card.agent, found.session_id, who)
        await actions.journal_action(found, None, "answer", "", who, call_ids=sorted(answers))
        feed = await actions.hub.resume(
            card.agent, found.session_id, decisions=known, run_id=found.run_id, changes=changes
        )
        actions.forget_decisions(found.run_id)
        return ContinuedRun(feed=feed, after=after, before=result)


def _check_answers(result: RunResult[Any], answers: Mapping[str, ClientAnswer], changes: RequestChanges) -> None:
    waiting = {one.call.id: one.call.name for one in result.pending if is_client_call(one)}
    strange = next((call_id for call_id in answers if call_id not in waiting), None)
    if strange is not None:
        there = ", ".join(waiting) or "none"
        raise HttpError(_STATUS, "unknown_call", f"no call {strange!r:.80} waits for its client; waiting: {there}")
    missing = [call_id for call_id in waiting if call_id not in answers]
    if missing:
        raise HttpError(
            400, "still_waiting", f"send the results of all calls at once: {', '.join(missing):.300} have none yet"
        )
    named = {tool.name for tool in changes.tools}
    gone = sorted({name for name in waiting.values() if name not in named})
    if gone:
        raise HttpError(400, "tools", f"send the same tools as before: no {', '.join(gone):.200}", param="tools")
