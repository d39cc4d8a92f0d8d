"""The rules of the gate: every call is admitted, warned, landed or answered here, before any byte goes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from glidepath.apps.gate.attribution import Attribution, headers_of
from glidepath.apps.gate.dialects import DIALECTS, parse_body, write_body
from glidepath.apps.gate.dialects.dialect import BadRequest, Notice, OwnReply
from glidepath.apps.gate.gate_calls import GateCall, book_call, book_landing, shorten_estimate
from glidepath.apps.gate.gate_prices import PriceList
from glidepath.apps.gate.gate_verdicts import judge_loop, judge_order, judge_stop, judge_time
from glidepath.apps.gate.gate_words import MARK, landing_notice, own_words, soft_notice
from glidepath.apps.gate.governing import GateAnswer, GatePassage, GateRequest
from glidepath.apps.gate.known_agents import (
    KnownAgent,
    find_known,
    finishing_call,
    finishing_tool,
    recognize,
    remove_noise,
)
from glidepath.apps.gate.lines import Line
from glidepath.apps.gate.passage import GovernedPassage, OpenPassage, digest_of_text
from glidepath.apps.gate.reports import add_reports
from glidepath.apps.gate.shorten import shorten_results
from glidepath.apps.gate.tree import NEAR_SHARE, GateLimits, give_back_landing
from glidepath.apps.gate.witnesses import Witness, show_outcome
from glidepath.apps.server.refusals import HttpError
from glidepath.kernel import CallCharge
from glidepath.run import Refusal, Touchdown
from glidepath.spi import Step
from glidepath.tools import BYTES_PER_TOKEN
from glidepath.values import StoreError, Texts

if TYPE_CHECKING:
    from glidepath.agent import Budget, Limits
    from glidepath.apps.gate.upstreams import Upstream
    from glidepath.kernel import Booking
    from glidepath.values import Verdict


LANDING_TIME = 30.0
"""Seconds before the end of a time limit at which agents are brought down; at most a quarter of it."""


_CHANGING = (
    "the budgets of this key have changed, and calls in flight on the old ones do not end: try again when they have"
)


class GateGovernor:
    """Decides about every call; see `governing.Governor`.

    `line_of` gives the budget of anyone who calls. `upstreams` are by dialect. With `observe` nothing is changed or
    refused: calls are counted, and that is all.
    """

    def __init__(
        self,
        *,
        line_of: Callable[[GateRequest], Line],
        upstreams: Mapping[str, Upstream],
        prices: PriceList | None = None,
        texts: Texts | None = None,
        observe: bool = False,
        on_close: Callable[[GovernedPassage, CallCharge | None], None] | None = None,
        witness: Witness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line_of = line_of
        self._upstreams = upstreams
        self._prices = prices or PriceList()
        self._texts = texts or Texts()
        self._observe = observe
        self._on_close = on_close
        self.witness = witness
        self._clock = clock
        self._attribution = Attribution()
        self._passages: set[GovernedPassage] = set()
        self._stopped: str | None = None
        self._lines: WeakValueDictionary[str, Line] = WeakValueDictionary()
        """The lines that have called; a line that is forgotten elsewhere is gone here."""

    def change(self, upstreams: Mapping[str, Upstream], prices: PriceList) -> None:
        """Let other upstreams and prices hold for the calls that come."""
        self._upstreams, self._prices = upstreams, prices

    def report(self) -> dict[str, Any]:
        """What all runs used and how they ended. One run stands for itself; several are added up."""
        sessions = [session.report() for line in self._lines.values() for session in line.sessions.values()]
        return add_reports(sessions)

    # --- what the server asks ---------------------------------------------------------------------------------------

    async def begin(self, request: GateRequest) -> GatePassage | GateAnswer:
        """Admit a call, which may wait for budget; or answer it."""
        upstream = self._upstreams.get(request.dialect)
        if upstream is None:
            return self.refuse(
                request, 404, "not_found", f"this gate has no upstream for {request.dialect}; add one with --upstream"
            )
        if request.operation != "generate":
            return OpenPassage(upstream, request.path, request.query, request.body)
        try:
            if self.witness is not None:
                await self.witness.recall(self._line_of(request), request, self._attribution)
            call = self._read(request, upstream)
        except BadRequest as error:
            return self.refuse(request, 400, "invalid_request_error", str(error))
        except HttpError as error:
            return self.refuse(request, error.status, error.code, str(error))
        except StoreError as error:
            return self._refuse_unkept(request, recognize(headers_of(request.headers)), error)
        return self._check(call) or await self._try(call)

    def _read(self, request: GateRequest, upstream: Upstream) -> GateCall:
        """The call that a request is; raises `BadRequest`, and `HttpError` for a name outside its key."""
        dialect = DIALECTS[request.dialect]
        body = parse_body(request.body)
        facts = dialect.read_request(body, request.path_model, request.is_streamed_by_path)
        line = self._line_of(request)
        # A request that is governed again is of the agent that it was of.
        agent = request.agent or self._attribution.find(line, request.line, headers_of(request.headers), facts)
        request.agent = agent
        self._lines[line.name] = line
        path, query = request.path, request.query
        if not facts.stream:
            path, text = dialect.streaming_target(path, query.decode("latin-1"))
            query = text.encode("latin-1")
        return GateCall(
            request=request,
            dialect=dialect,
            facts=facts,
            body=facts.body,
            line=line,
            agent=agent,
            upstream=upstream,
            price=self._prices.find_dearest((facts.model, *facts.other_models), request.dialect),
            path=path,
            query=query,
            size=len(request.body),
        )

    async def _try(self, call: GateCall) -> GatePassage | GateAnswer:
        call.session.asking += 1  # while it waits nothing else shows that its session is at work
        try:
            if not await call.line.await_change():
                raise HttpError(call.session.known.refusal, "budget_changing", _CHANGING)
            outcome = await self._govern(call)
            if self.witness is not None:
                await show_outcome(self.witness, call, outcome)
            # It may have waited for budget or for the journal, and an order came meanwhile.
            stopped = self._find_stop(call)
            if stopped is None or not isinstance(outcome, GovernedPassage):
                return outcome
            await outcome.close()  # nothing was sent: all of it is given back
            return self._refuse_stopped(call, stopped)
        except Touchdown as failed:
            # The place where its budget is kept has failed. A status that this program does not try again.
            status = call.session.known.refusal
            return self.refuse(call.request, status, "budget_unavailable", failed.verdict.cause.reason)
        except HttpError as error:
            return self.refuse(call.request, error.status, error.code, str(error))
        except StoreError as error:
            return self._refuse_unkept(call.request, call.session.known, error)
        finally:
            call.session.asking -= 1

    def _refuse_unkept(self, request: GateRequest, known: KnownAgent, error: StoreError) -> GateAnswer:
        """The journal of this run cannot be written: nothing is spent that is not kept."""
        message = f"this run cannot be kept, so no call is made: {error}; repair the store, then try again"
        return self.refuse(request, known.refusal, "journal_unavailable", message)

    def refuse(self, request: GateRequest, status: int, kind: str, message: str) -> GateAnswer:
        """An error in the client's dialect."""
        return _as_answer(DIALECTS[request.dialect].write_error(status, kind, message))

    def keep_alive(self, request: GateRequest) -> bytes:
        """What may be sent while a call waits for budget."""
        dialect = DIALECTS[request.dialect]
        try:
            facts = dialect.read_request(parse_body(request.body), request.path_model, request.is_streamed_by_path)
        except BadRequest:
            return b" "
        return dialect.keep_alive(facts) if facts.stream else b" "

    async def stop(self, reason: str) -> None:
        """No further call; those in flight are cut."""
        self._stopped = reason
        for passage in list(self._passages):
            passage.stop(judge_stop(reason))

    # --- checks that need no budget -----------------------------------------------------------------------------------

    def _check(self, call: GateCall) -> GateAnswer | None:
        """An answer for a call that is never made, whatever there is to spend."""
        stopped = self._find_stop(call)
        request, facts = call.request, call.facts
        if stopped is not None:
            return self._refuse_stopped(call, stopped)
        for model in (facts.model, *facts.other_models):
            if not call.line.allows_model(model):
                return self.refuse(
                    request, 403, "permission_error", f"model {model!r:.80} is not allowed with this key"
                )
        if self._observe:
            return None
        if facts.refusal is not None:
            return self.refuse(request, 400, "invalid_request_error", facts.refusal)
        if call.price is None and any(node.caps.money is not None for node in call.agent.meter.lineage):
            return self.refuse(
                request,
                400,
                "invalid_request_error",
                f"no price is known for model {facts.model!r:.80}, and this run has a limit in dollars: give its "
                "price, or limit tokens",
            )
        return None

    def _find_stop(self, call: GateCall) -> str | None:
        """Why a person wants no further call of its run."""
        return self._stopped or call.line.stopped or call.session.stopped

    def _refuse_stopped(self, call: GateCall, reason: str) -> GateAnswer:
        give_back_landing(call.agent)  # it will not land: others may have what was kept for that
        return self.refuse(call.request, 403, "permission_error", f"this run was stopped: {reason}")

    # --- one call -----------------------------------------------------------------------------------------------------

    async def _govern(self, call: GateCall) -> GovernedPassage | GateAnswer:
        agent, session = call.agent, call.session
        call.estimate_now()
        if self._observe:
            return await self._forward(call)
        if call.now() >= session.deadline:
            agent.landed = judge_time(session.limits)
        if agent.landed is not None:
            return self._answer_ourselves(call, agent.landed)
        if (order := agent.order or session.order) is not None:
            return await self._land(call, judge_order(order))
        looping = self._look_for_loops(call)
        if looping is not None:
            return await self._land(call, judge_loop(looping), final=False)
        if call.now() >= _soft_deadline(call):
            return await self._land(call, judge_time(session.limits))
        return await self._forward(call)

    async def _forward(self, call: GateCall) -> GovernedPassage | GateAnswer:
        """An ordinary call; the landing when its budget is refused for good."""
        booking = await book_call(call)
        if call.agent.landed is not None and not self._observe:  # while it waited, by an order or another of its calls
            if not isinstance(booking, Refusal):
                booking.reservation.cancel()
                call.agent.meter.return_turn()
            return self._answer_ourselves(call, call.agent.landed)
        if isinstance(booking, Refusal):
            if call.agent.id == "side":
                return self._answer_ourselves(call, call.judge_refusal(booking), final=False)
            return await self._land(call, call.judge_refusal(booking))
        resource = None if self._observe else _near_limit(call)
        if resource is not None and not call.agent.is_noticed and call.facts.has_tools:
            _add_notice(call, soft_notice(self._texts, resource))
        return self._open(call, booking, None)

    async def _land(self, call: GateCall, why: Verdict, *, final: bool = True) -> GovernedPassage | GateAnswer:
        """The last call of an agent: no tools, from what was kept for it; our own words when it cannot be paid."""
        booking = await book_landing(call)
        if booking is None and self._shorten(call):
            booking = await book_landing(call)
        if booking is None:
            return self._answer_ourselves(call, why)
        _add_notice(call, landing_notice(self._texts))
        passage = self._open(call, booking, why)
        passage.is_final = final
        return passage

    def _shorten(self, call: GateCall) -> bool:
        """Cut tool results out of the request until what is left of the budget pays for it."""
        tokens, money = call.agent.meter.room_for(None, now=True)
        kept = call.agent.meter.landing_kept()
        room = None if tokens is None else tokens + kept.tokens
        if money is not None and call.price is not None and call.price.worst_input:
            paid = (money + kept.money) // call.price.worst_input
            room = paid if room is None else min(room, paid)
        if room is None:
            return False
        excess = (call.estimate.tokens + 256 - room) * BYTES_PER_TOKEN
        body = shorten_results(call.body, excess + excess // 3)
        if body is None:
            return False
        call.body = body
        shorten_estimate(call, len(write_body(body)))
        return True

    def _open(self, call: GateCall, booking: Booking, landing: Verdict | None) -> GovernedPassage:
        """The passage of a call, with the request as it goes out: the client's own bytes if nothing had to change."""
        dialect, agent, facts = call.dialect, call.agent, call.facts
        body = call.body
        if agent.own_texts or agent.is_broken:
            body = dialect.legalize(body, lambda text: digest_of_text(text) in agent.own_texts)
        body = dialect.insert_notices(body, agent.notices)
        finishing = None
        if landing is not None:
            finishing = finishing_tool(facts.tool_names, facts.tool_choice)
            body = dialect.close_tools(body, finishing)
        if not self._observe or not facts.stream:
            body = dialect.set_streaming(body)
        is_verbatim = body is facts.body
        reader = dialect.open_reader(facts, hide_calls=landing is not None, finishing=finishing)
        reader.passes_all = self._observe
        passage = GovernedPassage(
            call,
            booking,
            reader,
            call.request.body if is_verbatim else write_body(body),
            is_verbatim=is_verbatim and call.request.is_verbatim,
            landing=landing,
            on_close=self._settle,
        )
        passage.move = None if landing is None else _finishing_move(call)
        if not agent.session.known.agent and not facts.call_ids():
            self._attribution.remember_prefix(agent, call.line, facts)
        passage.witness = self.witness
        self._passages.add(passage)
        self._cut_at_deadline(passage)
        return passage

    def _cut_at_deadline(self, passage: GovernedPassage) -> None:
        """A reply that is still being written when the time of its run is up ends there.

        One that is silent is given up while there is time to land.
        """
        call = passage.call
        if call.session.limits.seconds is None or self._observe:
            return
        if passage.landing is None:
            passage.timer = _call_at(call, _soft_deadline(call), self._lose_patience, passage)
        else:
            self._cut_when_time_is_up(passage)

    def _lose_patience(self, passage: GovernedPassage) -> None:
        call = passage.call
        passage.patience = call.session.deadline - _soft_deadline(call)
        self._cut_when_time_is_up(passage)

    def _cut_when_time_is_up(self, passage: GovernedPassage) -> None:
        session = passage.call.session
        why = judge_time(session.limits)
        passage.timer = _call_at(passage.call, session.deadline, passage.stop, why)

    def _settle(self, passage: GovernedPassage, charge: CallCharge | None) -> None:
        self._passages.discard(passage)
        call = passage.call
        self._attribution.remember_calls(call.agent, call.line, [one.id for one in passage.reader.calls])
        if self._on_close is not None:
            self._on_close(passage, charge)
        if self.witness is not None:
            self.witness.end_call(passage, charge)

    def _answer_ourselves(self, call: GateCall, why: Verdict, *, final: bool = True) -> GateAnswer:
        """Our own words as the model's final reply: it costs nothing, and the agent ends with an answer."""
        agent = call.agent
        if final:
            agent.landed = agent.landing = agent.landed or why
            give_back_landing(agent)
        text = own_words(why.cause.reason, asked=False, before=agent.answer)
        agent.own_texts.add(digest_of_text(text))
        finishing = finishing_tool(call.facts.tool_names, call.facts.tool_choice)
        move = _finishing_move(call) if finishing is None else finishing_call(finishing, call.body.get("tools"), text)
        answer = call.dialect.write_reply(call.facts, OwnReply(text=text, call=move))
        return _as_answer(answer, call.reply_headers(why), text, why)

    # --- loops ------------------------------------------------------------------------------------------------------

    def _look_for_loops(self, call: GateCall) -> str | None:
        """Show the guard what the client did since its last request; the reason to land it, if there is one."""
        agent = call.agent
        reason = None
        steps = call.facts.steps()
        for step in steps:
            if all(one.id in agent.guarded for one in step.calls) or not step.results:
                continue
            agent.guarded.update(one.id for one in step.calls)
            shown = Step(calls=step.calls, tools=_Traits(call.facts.tool_names), wound_down=agent.is_noticed)
            before = agent.guard.before(shown)
            after = (
                None if before is not None else agent.guard.after(shown, remove_noise(call.session.known, step.results))
            )
            verdict = before or after
            if verdict is None:
                continue
            if verdict.action == "nudge":
                _add_notice(call, f"{MARK} {verdict.notice}")
            else:
                reason = verdict.reason
        # Only those that the client can show again: a run of many thousand calls must not fill the memory.
        agent.guarded.intersection_update([one.id for step in steps for one in step.calls])
        if reason is not None:
            agent.guard.new_run()  # anyone who asks it something else after that starts again
        return reason


def make_governor(
    *,
    limits: Limits | None = None,
    upstreams: Sequence[Upstream],
    observe: bool = False,
    prices: Mapping[str, Any] | None = None,
    texts: Texts | None = None,
    name: str = "gate",
    program: str = "",
    witness: Witness | None = None,
    budget: Budget | None = None,
    injected: str = "",
) -> GateGovernor:
    """The rules for one holder of a key, whose every run has these limits. `program` names the agent, if known.

    All its runs together draw from the `budget`. `injected` says what a wind tunnel does to them.
    """
    line = Line(
        name,
        GateLimits() if observe else GateLimits.of(limits),
        known=find_known(program),
        budgets=[budget] if budget else (),
        injected=injected,
    )
    return GateGovernor(
        line_of=lambda _: line,
        upstreams=choose_upstreams(upstreams),
        prices=PriceList(prices),
        texts=texts,
        observe=observe,
        witness=witness,
    )


def choose_upstreams(upstreams: Sequence[Upstream]) -> dict[str, Upstream]:
    """The upstream of each dialect: the first that serves it."""
    chosen = {}
    for dialect in DIALECTS:
        found = next((one for one in upstreams if one.serves(dialect)), None)
        if found is not None:
            chosen[dialect] = found
    return chosen


class _Trait:
    """What the guard must know of a foreign tool: nothing is known of it."""

    read_only = False
    polling = False


class _Traits(dict[str, Any]):
    """The tools of a request, by name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(dict.fromkeys(names, _Trait))


def _add_notice(call: GateCall, text: str) -> None:
    """Put a notice behind what the client sent; once, also when the client sends the same again."""
    notice = Notice(call.facts.messages, text)
    if notice not in call.agent.notices:
        call.agent.notices.append(notice)


def _call_at(call: GateCall, when: float, what: Callable[[Any], None], value: object) -> asyncio.TimerHandle:
    """Have this done at a time of the call's clock."""
    return asyncio.get_running_loop().call_later(max(0.0, when - call.now()), what, value)


def _soft_deadline(call: GateCall) -> float:
    seconds = call.session.limits.seconds
    if seconds is None:
        return call.session.deadline
    return call.session.deadline - min(LANDING_TIME, seconds / 4)


def _near_limit(call: GateCall) -> str | None:
    """What is nearly used up, this call and all reserves included."""
    for node in call.agent.meter.lineage:
        # What can still be drawn from a wallet is left, too.
        tokens = node.tokens + node.reserved_tokens + node.aside_tokens + node.near_tokens - node.ahead_tokens
        money = node.money + node.reserved_money + node.aside_money + node.near_money - node.ahead_money
        turns = node.turns + len(call.session.live_agents())
        caps = node.caps
        if caps.tokens is not None and tokens >= caps.tokens:
            return "tokens"
        if caps.money is not None and money >= caps.money:
            return "money"
        if caps.turns is not None and turns >= caps.turns * (1 - NEAR_SHARE):
            return "turns"
    return None


def _finishing_move(call: GateCall) -> tuple[str, dict[str, Any]] | None:
    """The command by which a named program ends, if it offers the tool for it."""
    move = call.session.known.finishing_move
    if move is None or move[0] not in call.facts.tool_names:
        return None
    return move[0], {move[1]: move[2]}


def _as_answer(
    answer: Any, headers: tuple[tuple[bytes, bytes], ...] = (), said: str = "", why: Verdict | None = None
) -> GateAnswer:
    own = tuple((name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers)
    return GateAnswer(
        status=answer.status,
        body=answer.body,
        content_type=answer.content_type,
        headers=(*own, *headers),
        said=said,
        why=why,
    )
