"""A child's session, beside its parent's: a new one, or one that continues where a crash had interrupted it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from glidepath.agent.child_records import ask_store_twice
from glidepath.agent.durable import Opening, claim_home_session, reopen_session
from glidepath.run import LostChild, note_origins, place_here
from glidepath.sessions import Session, await_store, call_store
from glidepath.values import LoopOutcome, StoreError, Unknown, pico_of

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.run import PausedChild, Plan, Run
    from glidepath.sessions import JournalRecorder


@asynccontextmanager
async def open_child_session(
    config: LoopConfig, parent: Run, place: str, plan: Plan, paused: PausedChild | None = None
) -> AsyncIterator[Opening]:
    """The session of a child, beside its parent's: a new one, or the one that a crash or a pause had interrupted.

    A child that has ended is not run again: what it said and what it cost are known. One that waits for a person
    continues with what was decided. One that had begun and cannot be read is never begun again: `LostChild`.
    """
    scribe = cast("JournalRecorder", parent.journal)
    store, session_id = scribe.store, f"{parent.session_id}/{place}"
    link = {"session_id": parent.session_id, "run_id": parent.run_id, "call": place}
    if not await _has_begun(parent, session_id, place):
        if paused is not None:
            raise mark_child_lost(parent, place)
        async with claim_home_session(config, Session(session_id), store=store, parent=link) as opening:
            if opening.scribe is not None and session_id not in scribe.children.ids:
                # after the claim: from now on a journal that is missing was lost
                await scribe.record_child(place.rpartition(".")[0], session_id, plan.config.agent_name)
            opening.above = scribe
            yield opening
        return
    decisions = {} if paused is None else paused.decisions
    async with reopen_session(config, session_id, None, plan, store=store, handed=decisions) as opening:
        if opening.scribe is None:
            raise mark_child_lost(parent, place)
        if opening.scribe.known.imported and not scribe.known.imported:
            why = f"session {session_id!r} was imported and is not this run's child: remove it, or import it elsewhere"
            await opening.scribe.release()
            yield Opening(home=Session(session_id), error=StoreError(why, kind="conflict"))
            return
        opening.above = scribe
        if opening.ended is not None and not (opening.ended.outcome is LoopOutcome.PAUSED and opening.decided):
            opening.result = result = opening.ended
            note_origins(parent, place_here(), result.origins)
            before = parent.work.find_child_result(result.run_id)
            parent.work.add_finished_child(result)
            parent.spend.charge_child(plan.config.agent_name, result.usage, pico_of(result.cost), before)
        yield opening


async def _has_begun(parent: Run, session_id: str, place: str) -> bool:
    """True if a child has a journal to continue; raises `LostChild` for one that should have and cannot be read."""
    scribe = cast("JournalRecorder", parent.journal)
    try:
        return bool((await ask_store_twice(lambda: await_store(call_store(scribe.store.load, session_id))))[1])
    except StoreError:
        if session_id not in scribe.children.ids:
            return False
        raise mark_child_lost(parent, place) from None


def mark_child_lost(parent: Run, place: str) -> LostChild:
    """What the child of a call did is unknown: the call is listed, and its account is closed."""
    call_id = place.rpartition(".")[0]
    calls = () if parent.turn.reply is None else parent.turn.reply.tool_calls
    parent.work.mark_unknown([call for call in calls if call.id == call_id])
    return LostChild(parent.plan.config.texts.fill("unknown_effect", reason=Unknown.CHILD_LOST.reason))
