"""What a person does to a run: land, stop, steer, decide, resume, fork, other limits, settle.

Every action is journaled with its reason and who asked for it, and answers with what the run's events say came of
it. What cannot be done is refused before anything has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from glidepath.agent.resuming import check_decisions
from glidepath.apps.server.gate_door import ForeignFlights, refuse_foreign_action
from glidepath.apps.server.hub import Hub, HubFlight, refusal_of
from glidepath.apps.server.limit_changes import change_limits, check_raised
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import (
    MAX_REASON,
    DecideBody,
    DoneAnswer,
    ForkBody,
    LimitsBody,
    ReasonBody,
    RunCard,
    SettleBody,
    SteerBody,
)
from glidepath.apps.server.store_reader import FoundRun, StoreReader
from glidepath.run import Decision, answer, approve, deny
from glidepath.sessions import decide, fork, note_control, read_decisions, send
from glidepath.values import ConfigurationError, RunResult, Snapshot, StoreError, UserMessage

__all__ = ["RunActions", "add_author", "check_reason", "control_of", "describe_flight", "elapsed_ms"]

PATIENCE = 2.0  # seconds that an answer waits for the run's reaction
_MAX_TEXT = 100_000


class RunActions:
    """Applies a person's action to a run and reports the result."""

    def __init__(self, hub: Hub, reader: StoreReader) -> None:
        self.hub = hub
        self.reader = reader
        self.store = hub.store
        self._decided: dict[str, dict[str, Decision]] = {}  # of runs that no store keeps
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- land, stop -------------------------------------------------------------------------------------------

    async def land(self, name: str, body: ReasonBody, who: Visitor) -> DoneAnswer:
        """Ask the run to deliver what it has."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        card = self._require_running(found, "landed")
        reason = add_author(body.reason, who, "asked to land")
        foreign = self._foreign(found)
        if foreign is not None:
            told = await foreign.land(found.run_id, control_of("land", body.reason, who), reason)
            return self.make_done_answer(found, began, told)
        flight = self.hub.flights.get(found.run_id)
        if flight is None:
            self._require_reachable(found, card, "land")
            await self.journal_action(found, None, "land", reason, who, obey=True)
            return self.make_done_answer(
                found, began, "asked to land; it runs in another process, which notices within a second"
            )
        await self.journal_action(found, flight, "land", body.reason, who)
        flight.token.wind_down(reason)
        feed = _require_feed(flight)
        await _wait_until(feed, lambda: feed.finished or feed.card.phase in ("notice", "landing"))
        took = elapsed_ms(began)
        return self.make_done_answer(
            found, began, f"landed in {took:.0f} ms" if feed.finished else _LANDING[feed.card.phase]
        )

    async def stop(self, name: str, body: ReasonBody, who: Visitor) -> DoneAnswer:
        """Stop the run without another model call."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        card = self._require_running(found, "stopped")
        reason = add_author(body.reason, who, "stopped")
        foreign = self._foreign(found)
        if foreign is not None:
            told = await foreign.stop(found.run_id, control_of("stop", body.reason, who), reason)
            feed = self.hub.feeds[found.run_id]
            await _wait_until(feed, lambda: feed.finished)
            return self.make_done_answer(found, began, told)
        flight = self.hub.flights.get(found.run_id)
        if flight is None:
            self._require_reachable(found, card, "stop")
        await self.journal_action(found, flight, "stop", body.reason, who)
        if flight is None:
            await self.ask_store(self.store.flag(found.session_id, reason))
            return self.make_done_answer(
                found, began, "asked to stop; it runs in another process, which notices within a second"
            )
        flight.token.cancel(reason)
        feed = _require_feed(flight)
        await _wait_until(feed, lambda: feed.finished)
        return self.make_done_answer(
            found, began, f"stopped in {elapsed_ms(began):.0f} ms" if feed.finished else "stopping"
        )

    def _foreign(self, found: FoundRun) -> ForeignFlights | None:
        """Where to act on the run of another program whose gate is in this process; None for any other run."""
        flights: ForeignFlights | None = self.hub.foreign
        return flights if flights is not None and flights.has_run(found.run_id) else None

    def _require_running(self, found: FoundRun, done: str) -> RunCard:
        card = self.reader.card(found.feed, found.entry)
        if card.state != "running":
            raise HttpError(409, f"run_{card.state}", f"this run is {card.state}: only a running one can be {done}")
        return card

    def _require_reachable(self, found: FoundRun, card: RunCard, what: str) -> None:
        if self.store is None or found.entry is None:
            raise HttpError(409, "not_here", f"run {card.run_id} is part of another run: {what} that one")

    # --- steer, decide ----------------------------------------------------------------------------------------

    async def steer(self, name: str, body: SteerBody, who: Visitor) -> DoneAnswer:
        """Tell the model something after the turn it is in."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        card = self.reader.card(found.feed, found.entry)
        if card.foreign:
            raise refuse_foreign_action("steered")
        if card.state == "ended":
            raise HttpError(409, "run_ended", "this run has ended: start another one in its session, or fork it")
        text = _text("message", body.message)
        flight = self.hub.flights.get(found.run_id)
        if self.store is None:
            run: Any = None if flight is None or flight.stream is None else flight.stream.run
            if run is None:
                raise HttpError(409, "not_here", "only a run in flight can be steered without a store")
            run.transcript.wait((UserMessage(text),))
        else:
            await self.ask_store(send(self.store, found.session_id, text))
            await self.journal_action(found, flight, "steer", body.reason, who, message=text[:MAX_REASON])
            await self._deliver_now(flight, found.session_id)
        when = "after this turn" if card.state == "running" else "when the run continues"
        return self.make_done_answer(found, began, f"sent: the model reads it {when}")

    async def _deliver_now(self, flight: HubFlight | None, session_id: str) -> None:
        """Hand over at once what the run would find in its inbox within a second."""
        journal: Any = None if flight is None or flight.stream is None else getattr(flight.stream.run, "journal", None)
        if flight is not None and journal is not None:
            notes = await self.ask_store(self.store.notes(session_id, journal.mailbox.taken))
            journal.mailbox.take(flight.stream.run, notes)  # type: ignore[union-attr]

    async def decide(self, name: str, body: DecideBody, who: Visitor) -> DoneAnswer:
        """Decide about a call that waits; the run continues when all its calls are decided."""
        began, session_id = time.perf_counter(), (await self.reader.find(name, who)).session_id
        async with self.take_turn(session_id):  # two people may decide at once: one of them is second
            return await self._decide(began, await self.reader.find(name, who), body, who)

    def take_turn(self, session_id: str) -> asyncio.Lock:
        """The lock to hold while continuing the run of this session."""
        return self._turns.setdefault(session_id, asyncio.Lock())

    async def _decide(self, began: float, found: FoundRun, body: DecideBody, who: Visitor) -> DoneAnswer:
        await self._must_be_root(found, who, body.id)
        card, result = await self.require_paused(found)
        waiting = {one.call.id: one for one in result.pending}
        if body.id not in waiting:
            raise HttpError(404, "unknown_call", f"no call {body.id!r:.80} waits in this run: {_names(waiting)}")
        known = await self.read_decisions(found)
        if body.id in known:
            raise HttpError(409, "decided", f"call {body.id!r:.80} was already decided ({known[body.id].kind})")
        made = _decision(body)
        if body.digest and body.digest != waiting[body.id].digest:
            raise HttpError(
                409, "other_call", f"call {body.id!r:.80} has other arguments than those that were shown: look again"
            )
        try:
            check_decisions({body.id: made}, Snapshot(run_id=found.run_id, pending=result.pending))
        except ConfigurationError as error:
            raise HttpError(400, "bad_decision", str(error)) from None
        known = {**known, body.id: made}
        left = len(waiting) - len(known)
        if left or card.agent not in self.hub.agents:
            await self._note_decision(found, body.id, made)
            await self.journal_action(found, None, "decide", body.reason, who, call_id=body.id, decision=body.decision)
            what = f"noted: {left} more to decide" if left else "noted: it takes effect when the run is resumed"
            return self.make_done_answer(found, began, what)
        await self.hub.admit(card.agent, found.session_id, who)
        await self.journal_action(found, None, "decide", body.reason, who, call_id=body.id, decision=body.decision)
        await self.hub.resume(card.agent, found.session_id, decisions=known, run_id=found.run_id)
        self.forget_decisions(found.run_id)
        return self.make_done_answer(found, began, f"{_PAST[body.decision]}: the run continues")

    async def _must_be_root(self, found: FoundRun, who: Visitor, call_id: str = "") -> None:
        """Refuse what would continue a child alone while its parents wait for it.

        Raises `HttpError`, naming the root.
        """
        root = found
        while (above := _session_above(root)) is not None:
            try:
                root = await self.reader.find(above, who)
            except HttpError:
                return  # its parent is gone: nobody waits for it
        card = self.reader.card(root.feed, root.entry)
        if root is found or card.state != "paused":
            return
        result, _ = await self.reader.result(root, card)
        waiting = () if result is None else result.pending
        mine = [one.call.id for one in waiting if any(frame.run_id == found.run_id for frame in one.path)]
        if mine:
            there = next((one for one in mine if call_id and one.endswith(f"/{call_id}")), None)
            which = f"id {there!r:.300}" if there is not None else f"one of the ids {', '.join(map(repr, mine)):.300}"
            raise HttpError(
                409,
                "decide_at_root",
                f"run {root.run_id} waits for this run, and a call that waits in it is decided there: "
                f"POST /api/runs/{root.run_id}/decide with {which}",
            )

    async def list_undecided(self, name: str, who: Visitor) -> frozenset[str]:
        """The calls of a paused run that nobody has decided about yet; raises `HttpError`."""
        found = await self.reader.find(name, who)
        _, result = await self.require_paused(found)
        return frozenset(one.call.id for one in result.pending) - set(await self.read_decisions(found))

    async def require_paused(self, found: FoundRun) -> tuple[RunCard, RunResult[Any]]:
        """The card and the result of a run that waits; raises `HttpError` for any other."""
        card = self.reader.card(found.feed, found.entry)
        if card.state != "paused":
            raise HttpError(409, f"run_{card.state}", f"this run is {card.state}: nothing in it needs a decision")
        result, _ = await self.reader.result(found, card)
        if result is None:
            raise HttpError(409, "run_lost", "the record of this pause can no longer be read")
        return card, result

    async def read_decisions(self, found: FoundRun) -> dict[str, Decision]:
        """What was decided about its calls, and has not taken effect yet."""
        if self.store is None:
            return self._decided.get(found.run_id, {})
        journal = await self.reader.journal(found.session_id)
        taken = 0 if journal is None else journal.folded.taken
        return read_decisions(await self.ask_store(self.store.notes(found.session_id, taken)))

    def forget_decisions(self, run_id: str) -> None:
        """They have taken effect."""
        self._decided.pop(run_id, None)

    async def _note_decision(self, found: FoundRun, call_id: str, made: Decision) -> None:
        if self.store is None:
            self._decided.setdefault(found.run_id, {})[call_id] = made
        else:
            await self.ask_store(decide(self.store, found.session_id, {call_id: made}))

    # --- resume, limits, fork, settle -------------------------------------------------------------------------

    async def resume(self, name: str, body: ReasonBody, who: Visitor) -> DoneAnswer:
        """Continue a run that was lost, paused, stopped or limited."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        await self._must_be_root(found, who)
        card = self._require_resumable(found)
        await self.hub.admit(card.agent, found.session_id, who)
        await self.journal_action(found, None, "resume", body.reason, who)
        await self.hub.resume(card.agent, found.session_id, run_id=found.run_id)
        return self.make_done_answer(found, began, f"resumed in {elapsed_ms(began):.0f} ms")

    def _require_resumable(self, found: FoundRun) -> RunCard:
        card = self.reader.card(found.feed, found.entry)
        if card.foreign:
            raise refuse_foreign_action("resumed")
        if card.state == "running":
            raise HttpError(409, "in_flight", "this run is already running")
        if not card.resumable:
            raise HttpError(409, "already_done", "this run is done: start another one in its session, or fork it")
        return card

    async def limits(self, name: str, body: LimitsBody, who: Visitor) -> DoneAnswer:
        """Continue under other limits: a run in flight is stopped at once and taken up again."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        card = self.reader.card(found.feed, found.entry)
        if card.foreign:
            return await self._raise_limits(found, card, body, who, began)
        agent = self.hub.agents.get(card.agent)
        if agent is None:
            raise HttpError(409, "unknown_agent", f"this server has no agent {card.agent!r:.80} to continue with")
        flight = self.hub.flights.get(found.run_id)
        now = agent.config.limits if flight is None else flight.agent.config.limits
        limits = change_limits(now, body.limits)
        if not limits.bounded:
            raise HttpError(
                400, "bad_limit", "at least one limit must be left: max_iterations, max_tokens, max_cost, ..."
            )
        if not body.resume:
            raise HttpError(
                400, "not_resumed", "limits belong to a leg of a run: pass resume: true to continue under them"
            )
        if flight is None:
            self._require_resumable(found)
            await self.hub.admit(card.agent, found.session_id, who)
            await self.journal_action(found, None, "limits", body.reason, who, limits=body.limits)
        else:
            await self.journal_action(found, flight, "limits", body.reason, who, limits=body.limits)
            flight.token.cancel(add_author(body.reason, who, "stopped to continue under other limits"))
            feed = _require_feed(flight)
            await _wait_until(feed, lambda: feed.finished)
            if not feed.finished:
                raise HttpError(409, "in_flight", "the run did not stop in time: try again", 1)
            if feed.card.result is not None and feed.card.result.outcome.value == "done":
                raise HttpError(409, "already_done", "the run was done before its limits could be changed")
        await self.hub.resume(card.agent, found.session_id, limits=limits, run_id=found.run_id)
        changed = ", ".join(f"{key}={value}" for key, value in body.limits.items())
        return self.make_done_answer(found, began, f"continues with {changed}")

    async def _raise_limits(
        self, found: FoundRun, card: RunCard, body: LimitsBody, who: Visitor, began: float
    ) -> DoneAnswer:
        """The limits of another program's run, while it runs."""
        foreign = self._foreign(found)
        if foreign is not None:
            control = control_of("limits", body.reason, who, limits=body.limits)
            return self.make_done_answer(found, began, foreign.raise_limits(found.run_id, control, body.limits))
        if card.state == "ended":
            raise HttpError(409, "run_ended", "this run has ended: its limits can be raised only while it runs")
        self._require_reachable(found, card, "raise the limits of")
        if _session_above(found) is not None:
            raise HttpError(409, "part_of_a_run", "a sub-agent has no limits of its own: raise those of its program")
        journal = await self.reader.journal(found.session_id)
        config = None if journal is None else journal.folded.config
        check_raised({} if config is None else config.limits, body.limits)
        await self.journal_action(found, None, "limits", body.reason, who, limits=body.limits, obey=True)
        return self.make_done_answer(
            found, began, "asked to raise its limits; its gate is another process, which notices within a second"
        )

    async def fork(self, name: str, body: ForkBody, who: Visitor) -> DoneAnswer:
        """A new session as this one was after a turn, and a run in it when there is something to ask."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        if self.store is None or found.entry is None:
            raise HttpError(409, "no_store", "a fork needs the journal: start the server with --store")
        card = self.reader.card(found.feed, found.entry)
        if body.prompt is not None:
            _text("prompt", body.prompt)
            await self.hub.admit(card.agent, None, who)
        agent = self.hub.agents.get(card.agent)
        forked = await self.ask_store(
            fork(self.store, found.session_id, at=body.at)
            if agent is None
            else agent.fork(found.session_id, at=body.at)
        )
        await self.ask_store(
            note_control(self.store, forked.session_id, control_of("fork", body.reason, who, origin=found.session_id))
        )
        await self.ask_store(self.hub.owners.inherit(forked.session_id, found.session_id))
        what = f"forked after turn {forked.at}"
        if body.prompt is not None:
            feed = await self.hub.start(card.agent, body.prompt, session=forked.session_id, who=who)
            new = FoundRun(run_id=feed.run_id, session_id=forked.session_id, feed=feed)
            return self.make_done_answer(new, began, f"{what}, and a run is in flight there")
        return self.make_done_answer(await self.reader.find(forked.session_id, who), began, what)

    async def settle(self, name: str, body: SettleBody, who: Visitor) -> DoneAnswer:
        """What a person learned about a call with an unknown outcome; the model is told when the run continues."""
        began, found = time.perf_counter(), await self.reader.find(name, who)
        detail = await self.reader.detail(name, who)
        call = next((one for one in detail.unknown_effects if one["call_id"] == body.call_id), None)
        if call is None:
            raise HttpError(404, "unknown_call", f"no call {body.call_id!r:.80} with an unknown outcome is in this run")
        if self.store is None:
            raise HttpError(409, "no_store", "there is no journal to settle it in: start the server with --store")
        took = "took effect" if body.outcome == "done" else "did not take effect"
        text = f"A person has checked the call {call['tool']} ({body.call_id}), whose outcome was unknown: it {took}."
        if body.result is not None:
            text = f"{text} Its result: {_text('result', body.result)}"
        await self.ask_store(send(self.store, found.session_id, text))
        flight = self.hub.flights.get(found.run_id)
        await self.journal_action(
            found, flight, "settle", body.reason, who, call_id=body.call_id, outcome=body.outcome, result=body.result
        )
        return self.make_done_answer(found, began, f"settled as {body.outcome.replace('_', ' ')}")

    # --- what they share --------------------------------------------------------------------------------------

    async def journal_action(
        self, found: FoundRun, flight: HubFlight | None, action: str, reason: str, who: Visitor, **more: Any
    ) -> None:
        """Journal what was done, why, and who: by the run if it is in this process, else in the session's inbox."""
        if self.store is None or (found.entry is None and flight is None):
            return
        control = control_of(action, reason, who, **more)
        run: Any = None if flight is None or flight.stream is None else flight.stream.run
        journal: Any = None if run is None else run.journal
        if journal is not None and not journal.mailbox.closed:
            journal.mailbox.add_remark(control)
        else:
            await self.ask_store(note_control(self.store, found.session_id, control))

    async def ask_store(self, doing: Any) -> Any:
        """What the store answers; raises `HttpError` for what it refuses."""
        try:
            return await doing
        except (ConfigurationError, StoreError) as error:
            raise refusal_of(error) from None

    def make_done_answer(self, found: FoundRun, began: float, message: str) -> DoneAnswer:
        """The answer to an action: what the run's events say now."""
        feed = self.hub.feeds.get(found.run_id)
        card = self.reader.card(feed or found.feed, None if feed is not None else found.entry)
        return DoneAnswer(
            run_id=found.run_id,
            session_id=found.session_id,
            state=card.state,
            sequence=card.sequence,
            took_ms=elapsed_ms(began),
            message=message,
        )


_LANDING = {
    "cruise": "asked to land: the run lands when the call it is in returns",
    "notice": "the model was told to finish up",
    "landing": "landing",
    "ground": "landed",
}
_PAST = {"approve": "approved", "deny": "denied", "edit": "approved with other arguments", "answer": "answered"}


def check_reason(reason: str) -> None:
    """Raises `HttpError` for a reason that cannot be journaled: before anything is done."""
    if len(reason) > MAX_REASON:
        raise HttpError(400, "long_reason", f"a reason has at most {MAX_REASON} characters, not {len(reason)}")
    if "\0" in reason:
        raise HttpError(400, "bad_reason", "reason has a NUL character; remove it")


def control_of(action: str, reason: str, who: Visitor, **more: Any) -> dict[str, Any]:
    """What the journal keeps of what a person did."""
    return {"action": action, "reason": reason, "who": who.name, "time": round(time.time(), 3), **more}


def add_author(reason: str, who: Visitor, default: str) -> str:
    """The reason as a run's result has it, with who gave it."""
    return f"{reason.strip() or default} (by {who.name})"


def _session_above(found: FoundRun) -> str | None:
    """The session of the run that started this one; None for a root."""
    if found.feed is not None and found.feed.head.parent is not None:
        return found.feed.head.parent
    parent = None if found.entry is None else found.entry.summary.get("parent")
    above = parent.get("session_id") if isinstance(parent, Mapping) else None
    return above if isinstance(above, str) else None


def _decision(body: DecideBody) -> Decision:
    try:
        if body.decision == "approve":
            return approve(digest=body.digest)
        if body.decision == "edit":
            if body.arguments is None:
                raise HttpError(400, "no_arguments", "edit needs the arguments to run with")
            return approve(body.arguments, digest=body.digest)
        if body.decision == "deny":
            return deny(body.message or body.reason)
        return answer(body.arguments if body.arguments is not None else _text("message", body.message or ""))
    except ConfigurationError as error:
        raise HttpError(400, "bad_decision", str(error)) from None


def _text(field: str, text: str) -> str:
    if not text.strip() or "\0" in text:
        raise HttpError(400, f"bad_{field}", f"{field} must be a non-empty str and has no NUL character")
    if len(text) > _MAX_TEXT:
        raise HttpError(413, f"long_{field}", f"{field} has {len(text)} characters; {_MAX_TEXT} is the most")
    return text


def _names(waiting: Mapping[str, Any]) -> str:
    return f"those waiting are {', '.join(waiting)}" if waiting else "none does"


def _require_feed(flight: HubFlight) -> RunFeed:
    assert flight.feed is not None  # noqa: S101 - it is in the hub's list
    return flight.feed


def describe_flight(flight: HubFlight) -> FoundRun:
    """A run in flight here, as the reader would find it."""
    feed = _require_feed(flight)
    return FoundRun(run_id=feed.run_id, session_id=feed.head.session_id, feed=feed)


def elapsed_ms(began: float) -> float:
    """Milliseconds since then."""
    return round((time.perf_counter() - began) * 1000, 1)


async def _wait_until(feed: RunFeed, done: Callable[[], bool]) -> None:
    """Wait for what the events say, for a moment."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while not done() and (left := until - loop.time()) > 0:
        news = feed.wait_for_news()
        if done():
            news.cancel()
            return
        await asyncio.wait({news}, timeout=left)
        news.cancel()
