"""One model call beside the turns of a run: reserved, streamed and settled like those, but not part of the answer.

A checkpoint of the context is such a call, and so is a question of an MCP server. Who makes it decides how it is waited
for and under which name it is paid; that it is reserved before it goes out, noted in the journal and charged for what
was received is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.kernel.model_call.attempt import Attempt, pump
from glidepath.kernel.model_call.booking import Booking, make_booking, worst_case_amount
from glidepath.kernel.model_call.settlement import settle
from glidepath.run import EventEmitter, Reservation
from glidepath.spi import ModelRequest
from glidepath.values import BudgetReserved, Message, Usage

if TYPE_CHECKING:
    from glidepath.run import Run


class _Beside:
    """The run, with nobody listening and, where it is given, its own watch."""

    __slots__ = ("_run", "voice", "watch")
    shows = False  # the landing window may cut it off, however much has come

    def __init__(self, run: Run, watch: object = None) -> None:
        self._run = run
        self.voice = EventEmitter.make_silent(run.voice)
        self.watch = run.watch if watch is None else watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


class MeteredCall:
    """A call that is paid for: `reserve` it, `note` it, `stream` it, and always `settle` it."""

    __slots__ = ("attempt", "booking", "request", "run")

    def __init__(self, run: Run, booking: Booking) -> None:
        self.run = run
        self.booking = booking
        self.attempt = Attempt()
        self.request: ModelRequest | None = None

    @classmethod
    def reserve(cls, run: Run, size: int, output: int) -> MeteredCall | None:
        """Set its worst case aside: a prompt of `size` tokens, `output` tokens at most. None: it cannot be paid."""
        worst = worst_case_amount(run, size, output)
        reservation = run.meter.reserve(worst.tokens, worst.money, turns=0)
        if not isinstance(reservation, Reservation):
            return None
        booking = make_booking(run, reservation, size, output, output)
        booking.estimate = size  # of this prompt, not of the run's view
        return cls(run, booking)

    async def note(self) -> None:
        """With a journal: what it may cost is on disk before it goes out."""
        if self.run.journal is not None:
            try:
                later = self.run.journal.record_model_call(self.booking)
                if later is not None:
                    await later
            except BaseException:
                self.booking.reservation.cancel()
                raise

    def ask(
        self,
        system_prompt: str,
        messages: Sequence[Message],
        temperature: float | None = None,
        stop_sequences: tuple[str, ...] = (),
    ) -> None:
        """What is asked. It goes out now, and counts as a call of the model in use."""
        run, plan, held = self.run, self.run.plan, self.booking.reservation
        self.request = ModelRequest(
            system_prompt=system_prompt,
            messages=tuple(messages),
            max_output_tokens=self.booking.cap,
            temperature=plan.config.temperature if temperature is None else temperature,
            stop_sequences=stop_sequences,
            extras=run.terms.extras,
            connect_timeout=plan.config.connect_timeout,
            user=run.user,
            metadata=run.metadata,
        )
        plan.health.calls += 1
        run.emit(BudgetReserved, held.tokens, held.money if plan.price is not None else None, self.booking.cap)

    async def stream(self, watch: object = None) -> None:
        """Receive the reply; `watch` is for a call that does not run in the run's own task."""
        beside: Any = _Beside(self.run, watch)
        await pump(beside, self.run.plan.model, self.request, self.attempt, self.booking)  # type: ignore[arg-type]

    def settle(self, pay: Callable[[Usage, int], None], *, failed: bool) -> Usage:
        """Charge what was received, by `pay`, and give the rest back; see `settlement`."""
        if self.request is None:  # it did not go out, and nobody was told that it would
            self.booking.reservation.cancel()
            return Usage()
        request = self.request
        return settle(
            self.run,
            self.booking,
            self.attempt,
            request.messages,
            pay,
            failed=failed,
            system_prompt=request.system_prompt,
        )
