"""One call on its way to an upstream and back: followed as it streams, given more room, cut, settled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.dialects.dialect import OwnReply
from glidepath.apps.gate.gate_verdicts import judge_store, judge_time, judge_void_key
from glidepath.apps.gate.gate_words import cut_note, own_words
from glidepath.apps.gate.tree import LastCall, give_back_landing, set_landing
from glidepath.kernel import BYTES_PER_TOKEN, SLICE, Booking, CallCharge
from glidepath.kernel.model_call.settlement import Evidence, work_out_charge
from glidepath.run import Amount, Touchdown, dispute
from glidepath.values import StoreError, TransientError, Usage

if TYPE_CHECKING:
    import asyncio

    from glidepath.apps.gate.dialects.stream_reader import StreamReader
    from glidepath.apps.gate.gate_calls import GateCall
    from glidepath.apps.gate.governing import Headers
    from glidepath.apps.gate.upstreams import Upstream
    from glidepath.apps.gate.witnesses import Witness
    from glidepath.values import Verdict


LEAST_BYTES = 16
"""Bytes of a request for a token at most: eight characters of text, and as many of JSON around it."""
LARGEST_DOCUMENT = 64 << 20
"""Bytes of a reply that comes as one document."""
LONGEST_ANSWER = 8_000
"""Characters of an answer that is given again to those who ask after it."""
SUMMARY = 2
_FINAL = frozenset({"end_turn", "stop", "completed", "stop_sequence", "STOP", "refusal", "max_tokens", "length"})
"""How a reply stops that is an answer, when it has no calls."""


def digest_of_text(text: str) -> str:
    """How turns that we made up are remembered."""
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class OpenPassage:
    """A request that uses nothing: a count of tokens, a list of models. Its bytes pass both ways as they are."""

    is_cut = False
    is_short = False
    is_abandoned = False
    patience = inf
    stop_reason: str | None = None
    is_streamed = True
    is_verbatim = True
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes | None = None

    def __init__(self, upstream: Upstream, path: str, query: bytes, body: bytes) -> None:
        self.upstream = upstream
        self.path = path
        self.query = query
        self.body = body

    def open(self, status: int, headers: Headers) -> None:
        """Nothing to note."""

    def feed(self, chunk: bytes) -> bytes:
        """The same bytes."""
        return chunk

    async def make_room(self) -> None:
        """It needs none."""

    def finish(self) -> bytes:
        """Nothing more."""
        return b""

    def fail(self, reason: str) -> bytes:  # noqa: ARG002 - as every passage has it
        """Nothing more."""
        return b""

    def cut_now(self, reason: str) -> bytes:  # noqa: ARG002 - as every passage has it
        """Nothing more."""
        return b""

    async def close(self) -> None:
        """Nothing to settle."""


class GovernedPassage:
    """A call that is paid for. Use it as `governing.GatePassage` says."""

    def __init__(
        self,
        call: GateCall,
        booking: Booking,
        reader: StreamReader,
        body: bytes,
        *,
        is_verbatim: bool,
        landing: Verdict | None,
        on_close: Callable[[GovernedPassage, CallCharge | None], None],
    ) -> None:
        self.call = call
        self.booking = booking
        self.reader = reader
        self.landing = landing
        """Why this is the agent's last call; None for an ordinary one."""
        self.upstream = call.upstream
        self.path = call.path
        self.query = call.query
        self.body = body
        self.is_verbatim = is_verbatim
        self.is_streamed = call.facts.stream
        self.is_cut = False
        self.is_short = False
        self.patience: float = inf
        """Seconds of silence after which nobody waits for it any longer, beside the upstream's own timeouts."""
        self.is_abandoned = False
        """It was sent, and the client left, or the time was up, before the reply began: somebody may bill it."""
        self.headers = call.reply_headers(landing)
        self.status = 0
        self.content_type: bytes | None = None
        """Of what the client gets, where it is not the upstream's."""
        self._document: bytearray | None = None
        """The reply of a server that does not stream although it was asked to."""
        self.move: tuple[str, dict[str, Any]] | None = None
        """The call that ends a program which ends no other way: the reply is written again with it."""
        self.is_final = False
        """The agent makes no further call after this one."""
        self.stopped: Verdict | None = None
        """Why it was cut from outside."""
        self.timer: asyncio.TimerHandle | None = None
        self.witness: Witness | None = None
        self.mark: float = inf
        """Bytes of the reply from which on the witness wants to know."""
        self._on_close = on_close
        self._is_open = True
        self._has_ended = False
        call.agent.in_flight += 1

    # --- while it streams -----------------------------------------------------------------------------------------

    def open(self, status: int, headers: Headers) -> None:
        """The upstream has answered. What it refuses passes unchanged, and costs nothing."""
        self.status = status
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        is_array = self.call.facts.dialect == "gemini" and b"alt=sse" not in self.query  # a stream that is JSON
        if not self.is_refused and kind.lower().startswith(b"application/json") and not is_array:
            self._document = bytearray()
            self.content_type = b"text/event-stream" if self.is_streamed else None

    @property
    def is_refused(self) -> bool:
        """True when the upstream answered with an error: its bytes pass as they come."""
        return self.status >= 300  # noqa: PLR2004 - whatever is not a success

    def feed(self, chunk: bytes) -> bytes:
        """Follow the reply; cut it when it has outgrown what the budget has for it."""
        if self.is_refused:
            return chunk
        if self._document is not None:
            self._document += chunk
            if len(self._document) > LARGEST_DOCUMENT:
                raise TransientError(f"upstream {self.upstream.name} sent more than {LARGEST_DOCUMENT} bytes at once")
            return b""
        return self._follow(self.reader.feed(chunk))

    def _follow(self, out: bytes) -> bytes:
        if self.reader.is_torn:  # as if it had broken off there: the client asks again, and runs no damaged call
            raise TransientError(f"upstream {self.upstream.name} sent something that is not JSON in a tool call")
        booking = self.booking
        size = self._size()
        if size > booking.size and not self._grow(size):
            if self.call.can_draw and self.stopped is None:
                self.is_short = True
            else:
                out += self._cut(self.call.judge_shortage())
        if size > self.mark and self.witness is not None and not self.witness.follow_growth(self, size):
            self.is_short = True
        return out if self.is_streamed and self.move is None else b""

    def _grow(self, size: int) -> bool:
        """Find room for this many bytes: what the prompt did not need, then the budget, then its own landing."""
        booking, usage = self.booking, self.reader.usage
        spare = 0 if usage is None or not usage.input else booking.input - usage.input
        if spare > 0:
            # The provider has counted the prompt by now, and it is shorter than we feared.
            price = booking.price
            output = spare if price is None or not price.output else min(spare, spare * price.input // price.output)
            booking.input -= spare
            booking.size += output * BYTES_PER_TOKEN
        return booking.size >= size or booking.grow(size) or self._use_landing(size)

    def _use_landing(self, size: int) -> bool:
        """A long answer may use what was kept for its own landing: cut there, it needs no other one."""
        agent, reader = self.call.agent, self.reader
        if not agent.started or reader.calls or reader.is_waiting or agent.in_flight > 1:
            return False
        kept = agent.meter.landing_kept()
        if not (kept.tokens or kept.money):
            return False
        set_landing(agent, Amount())
        return self.booking.grow(size)

    def _size(self) -> int:
        """Bytes of the reply so far. Thinking counts double: providers stream a summary of it and bill all of it."""
        return self.reader.visible + SUMMARY * self.reader.hidden

    async def make_room(self) -> None:
        """Draw more from where the budget is kept; when nothing is left, the reply is cut."""
        self.is_short = False
        size = self._size()
        if size > self.booking.size:
            try:
                await self.call.line.draw_for_reply(self.booking.next_slice())
            except Touchdown as failed:  # the place where the budget is kept has failed: nothing more is spent on it
                self.stopped = failed.verdict
                return
            if not self._grow(size):
                self.stopped = self.call.judge_shortage()
        if self.witness is not None:
            try:
                await self.witness.catch_up(self)
            except StoreError as error:
                self.stopped = judge_store(f"what it may cost cannot be kept: {error}")

    def stop(self, why: Verdict) -> None:
        """Cut it at the next chunk, or at once if the server is waiting for one."""
        self.stopped = why

    @property
    def stop_reason(self) -> str | None:
        """Why it has to end from outside; None while it may continue."""
        return None if self.stopped is None else self.stopped.cause.reason

    def cut_now(self, reason: str) -> bytes:
        """End the reply properly, in its dialect, with what has come."""
        # Nobody has stopped the call itself: the key that let it in is void.
        out = self._cut(self.stopped or judge_void_key(reason))
        return out if self.is_streamed else self.reader.assemble()

    @property
    def needs_no_landing(self) -> bool:
        """All of the reply came, or the client has calls of it: it runs them and asks again, whatever comes behind."""
        return self.reader.is_complete or (self.is_streamed and self.reader.shown_calls > 0)

    def end_early(self) -> bytes:
        """End a reply that went silent as if it were whole, with what has come."""
        self.is_cut = True
        out = self.reader.cut("")
        return out if self.is_streamed else self.reader.assemble()

    def end_with(self, landing: GovernedPassage) -> bytes:
        """End a reply that went silent with the last words of another call."""
        why = landing.landing or landing.stopped or judge_time(self.call.session.limits)
        return self._cut(why, landing.reader.client_text)

    def _cut(self, why: Verdict, words: str = "") -> bytes:
        self.is_cut = True
        agent = self.call.agent
        agent.landed = agent.landing = agent.landed or why
        self.landing = self.landing or why
        out = self.reader.cut(words.strip() or cut_note(why.cause.reason).strip())
        self._remember_own_turn()
        return out

    def finish(self) -> bytes:
        """The reply is complete. The last one of an agent gets our own words if the model wrote none."""
        if self.is_refused:
            return b""
        self._has_ended = True
        reader, out = self.reader, b""
        if self._document is not None and not self.is_cut:
            out = self._follow(reader.feed_whole(bytes(self._document)))
        if self.move is not None:
            return self._finish_with_move()
        if self.is_cut:
            return out if self.is_streamed else reader.assemble()
        out += reader.end()
        if not reader.is_complete:
            self.call.agent.is_broken = True
        if self.landing is None and self._is_void():
            raise TransientError(f"upstream {self.upstream.name} sent nothing that is a reply in this dialect")
        if self.landing is not None:
            words = "" if self._has_answer() else own_words(self.landing.cause.reason, asked=True)
            out += reader.finish(words)
            self._remember_own_turn()
        return out if self.is_streamed else reader.assemble()

    def _finish_with_move(self) -> bytes:
        """The model's last words, and the call that ends the program."""
        reader = self.reader
        reader.end()
        text = reader.text if reader.text.strip() else own_words(self._landing_reason(), asked=True)
        reply = OwnReply(text=text, call=self.move, usage=reader.usage_so_far())
        return self.call.dialect.write_reply(self.call.facts, reply).body

    def _landing_reason(self) -> str:
        return "" if self.landing is None else self.landing.cause.reason

    def fail(self, reason: str) -> bytes:
        """The upstream died in the middle: the client gets what came, ended as an error of its dialect."""
        if self.is_refused or self.is_cut:
            return b""
        if self.landing is not None:
            out = self._cut(self.landing)
            return out if self.is_streamed else self.reader.assemble()
        self.call.agent.is_broken = True
        error = self.call.dialect.write_stream_error(502, "upstream_failed", reason)
        return error if self.is_streamed else b""

    def _is_void(self) -> bool:
        """True when nothing came that the dialect knows: a page, or no bytes at all."""
        reader = self.reader
        seen = reader.is_complete or reader.visible or reader.hidden or reader.calls or reader.stop
        return not (seen or reader.usage or (reader.failure and self._document is None))

    def _has_answer(self) -> bool:
        reader = self.reader
        return bool(reader.text.strip()) or reader.shown_calls > 0

    def _remember_own_turn(self) -> None:
        text = self.reader.client_text
        if text != self.reader.text:
            self.call.agent.own_texts.add(digest_of_text(text))

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Settle, whatever happened."""
        if not self._is_open:
            return
        self._is_open = False
        if self.timer is not None:
            self.timer.cancel()
        agent, held = self.call.agent, self.booking.reservation
        agent.in_flight -= 1
        agent.last_spoken = self.call.now()
        charge = None
        if (self.status == 0 and not self.is_abandoned) or self.is_refused:
            # Never sent, or refused: nobody bills that. What was kept for a landing is gone anyway.
            held.cancel()
            agent.meter.return_turn()
        else:
            charge = self._work_out_charge()
            if charge.is_implausible:
                # More than anybody could foresee: charged to the run, and disputed in the wallets above it.
                surplus = Amount(max(0, charge.usage.total - held.tokens), max(0, charge.money - held.money))
                dispute(agent.meter, surplus)
            held.settle(charge.usage.input + charge.usage.output, charge.money)
            self._note(charge)
            if self.landing is not None:
                agent.landing = self.landing
            if self.is_final:
                agent.landed = agent.landed or self.landing
                agent.answer = self.reader.text.strip()[:LONGEST_ANSWER]
        has_nothing = not agent.calls and not agent.in_flight  # to land with: a second try starts again
        if agent.landed is not None or self._is_answer() or has_nothing:
            give_back_landing(agent)
        self._on_close(self, charge)

    def _is_answer(self) -> bool:
        """True when the agent has nothing to run: anyone who asks it next starts it again."""
        reader = self.reader
        return self._has_ended and not reader.calls and (reader.stop is None or reader.stop in _FINAL)

    def _work_out_charge(self) -> CallCharge:
        reader, booking, call = self.reader, self.booking, self.call
        size = reader.visible + reader.hidden
        known = Evidence(
            booking.estimate,
            booking.input,
            size,
            lambda: -(-size // BYTES_PER_TOKEN) + 1,
            lambda: len(self.body) // LEAST_BYTES if not call.facts.media else 0,
        )
        reported = reader.usage if reader.is_complete else self._usage_of_part()
        return work_out_charge(reported, known, call.price, reader.info)

    def _usage_of_part(self) -> Usage | None:
        """The usage of a reply that was not read to its end: what came, and a slice that may have been on its way."""
        reader = self.reader
        if not (reader.visible or reader.hidden or reader.usage):
            return None
        seen = reader.usage_so_far()
        reserved = max(0, self.booking.reservation.tokens - self.booking.input)
        output = max(seen.output, min(seen.output + SLICE, reserved))
        return Usage(
            seen.input or self.booking.input, output, seen.cache_read, seen.cache_write, seen.reasoning, estimated=True
        )

    def _note(self, charge: CallCharge) -> None:
        call, agent, usage = self.call, self.call.agent, charge.usage
        agent.calls += 1
        agent.tokens += usage.total
        agent.money += charge.money
        session = agent.session
        session.estimated = session.estimated or usage.estimated
        session.models.add(call.facts.model)
        if self.reader.info is not None:
            session.note_held(self.reader.info.response_id, usage.total)
        if usage.reasoning and call.facts.dialect != "anthropic" and not self.reader.hidden:
            call.line.note_hidden_output(call.facts.model)
        if call.price is None:
            session.cost_is_known = False
        if not usage.estimated or agent.last is None:
            last = LastCall(
                at=call.now(), model=call.facts.model, size=call.size, messages=call.facts.messages, usage=usage
            )
            if agent.last is None and not usage.estimated:
                session.note_beginning(agent, last)
            agent.last = last
            if self.landing is None and not usage.estimated and not agent.in_flight:
                call.trim_landing(usage, len(self.reader.calls))
