"""Describes a run in one line: phase, turn, tokens, money, time left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from glidepath.agent import Limits, LoopConfig
from glidepath.agent.route import output_limit_of
from glidepath.apps.cli.display_text import width_of
from glidepath.apps.cli.readable import replace_control_characters
from glidepath.values import RunResult, events, pluralize

_THOUSAND, _MILLION = 1_000, 1_000_000
_MINUTE, _HOUR = 60, 3600
_CHARACTERS = 4  # of a token, about
_ENDS = {
    "max_tokens_recovery": "the reply was cut off by its output limit",
    "premature_end": "the model stopped without a word after an error",
    "empty_answer": "the reply was empty",
}


class Status:
    """Listens to the events of a run and describes it."""

    def __init__(self, limits: Limits, now: Callable[[], float], output: int = 0) -> None:
        self.limits = limits
        self._output = output
        self.last_call = self._sent = self._written = 0
        self.phase = "starting"
        self.turn = 0
        self.tokens = 0
        self.cost: Decimal | None = None
        self._now = now
        self._before = Decimal(0)
        self._started = now()
        self._stopped: float | None = None
        self._running: dict[str, str] = {}
        self._landing = False

    def record_event(self, event: events.Event) -> None:
        """Record an event."""
        match event:
            case events.StreamChunk():
                self._written += len(event.text)
                if not self._landing and event.text:
                    self.phase = "thinking" if event.thinking else "writing"
            case events.TurnStarted():
                self.turn = event.iteration
            case events.StreamStarted():
                self._landing = self._landing or event.landing
                self.phase = "finishing up" if self._landing else "thinking"
            case events.ToolStarted():
                self._running[event.call_id] = event.tool_name
                self._show_tools()
            case events.ToolEnded():
                self._running.pop(event.call_id, None)
                self._show_tools()
            case events.BudgetReserved():
                most = event.max_output_tokens or self._output
                self._sent = max(0, event.tokens - most) if most else 0
                self._written = 0
            case events.BudgetSettled() | events.ChildEnded():
                self._sent = self._written = 0
                self.last_call = event.usage.total
                self.tokens += self.last_call
                if event.cost is not None:
                    self.cost = event.cost + (self.cost or 0)
            case events.RetryScheduled():
                self.phase = f"retry {event.attempt} in {event.delay:.0f}s"
            case events.AttemptDiscarded():
                self.phase = "trying again"
            case events.NoticeSent(reason="wind_down") | events.LandingStarted():
                self.finish_up()
            case events.RunEnded():
                self.phase = event.result.outcome.name.lower().replace("_", " ")
                self.tokens, self.cost = event.result.usage.total, event.result.cost
                self._stopped = self._now()
            case events.RunStarted() if self._stopped is not None:
                self._started += self._now() - self._stopped
                self._stopped = None

    def seconds_left(self) -> float | None:
        """Seconds left of the time limit; None without one. The clock stops while a person decides."""
        timeout = self.limits.timeout
        now = self._now() if self._stopped is None else self._stopped
        return None if timeout is None else max(0.0, timeout - (now - self._started))

    @property
    def running(self) -> int:
        """About how many tokens the call that is under way has used so far."""
        return self._sent + -(-self._written // _CHARACTERS)

    @property
    def spent(self) -> Decimal | None:
        """What the conversation has cost so far; None when there is no price."""
        return self.cost if not self._before else self._before + (self.cost or 0)

    def finish_up(self) -> None:
        """A person asked it to finish up."""
        self._landing = True
        self.phase = "finishing up"

    def restart(self, before: Decimal | None = None) -> None:
        """Start counting for another run; only the money that was spent `before` carries over."""
        self.phase, self.turn, self.tokens, self.cost = "starting", 0, 0, None
        self._before = before or Decimal(0)
        self._started, self._stopped, self._landing = self._now(), None, False
        self._running.clear()

    def _show_tools(self) -> None:
        names = list(dict.fromkeys(self._running.values()))
        if names:
            more = f" +{len(self._running) - 1}" if len(self._running) > 1 else ""
            self.phase = f"{names[0]}{more}"
        else:
            self.phase = "finishing up" if self._landing else "thinking"


def reserved_output_of(config: LoopConfig) -> int:
    """The output that is reserved for a call without a cap."""
    return config.max_output_tokens or output_limit_of(config.model)


# --- one line -----------------------------------------------------------------------------------------------------


def status_line(status: Status, width: int, *, separator: str = " | ") -> str:
    """The status in at most `width` columns: the wider, the more it says. The phase and the turn go last."""
    limits = status.limits
    turn = f"{status.turn}/{limits.max_iterations}" if limits.max_iterations else f"{status.turn}"
    spent, most = format_count(status.tokens + status.running), limits.max_tokens
    spent = f"~{spent}" if status.running else spent
    tokens = f"{spent}/{format_count(most)}" if most else spent
    paid = format_money(status.spent) if status.spent is not None else "$0" if limits.max_cost is not None else ""
    cost = f"{paid}/{format_money(Decimal(str(limits.max_cost)))}" if paid and limits.max_cost is not None else paid
    seconds = status.seconds_left()
    left = format_duration(seconds) if seconds is not None else ""
    phase = status.phase
    forms = (
        (phase, f"turn {turn}", f"{tokens} tokens", cost, f"{left} left" if left else ""),
        (phase, f"turn {turn}", f"{tokens} tok", cost, left),
        (phase, turn, f"{spent} tok", paid, left),
        (phase, turn, spent, paid, left),
        (phase, turn, paid, left),
        (phase, turn, left),
        (phase, turn),
    )
    for number, form in enumerate(forms):
        line = (separator if number < 2 else " ").join(part for part in form if part)  # noqa: PLR2004
        if width_of(line) <= width:
            return line
    return clip_line(phase, width)


def strip_control_characters(text: str) -> str:
    """The text without control characters, which could steer the terminal."""
    return replace_control_characters(text.replace("\r\n", "\n"), "?")


def clip_line(text: str, width: int) -> str:
    """The text in at most `width` columns, on one line, without control characters; three dots mark a cut."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    if width_of(shown) <= width:
        return shown
    dots = "..." if width > 8 else ""  # noqa: PLR2004 - no room to waste
    kept = ""
    for sign in shown:
        if width_of(kept + sign) > width - len(dots):
            break
        kept += sign
    return kept + dots


def format_count(number: int) -> str:
    """1234 as 1.2k."""
    if number < _THOUSAND:
        return str(number)
    scale, unit = (_THOUSAND, "k") if number < _MILLION - 500 else (_MILLION, "M")
    text = f"{number / scale:.1f}" if number < 100 * scale else f"{number / scale:.0f}"
    return text.removesuffix(".0") + unit


def tokens_of(number: int) -> str:
    """`1 token`, `1.2k tokens`."""
    return pluralize(number, "token", format_count(number))


def format_money(amount: Decimal) -> str:
    """Dollars, with as many decimals as a person needs."""
    if amount == 0:
        return "$0"
    if amount >= 1:
        return f"${amount:.2f}"
    return "$" + f"{amount:.4f}".rstrip("0").ljust(4, "0") if amount >= Decimal("0.0001") else "<$0.0001"


def format_duration(seconds: float) -> str:
    """90 as 1:30."""
    whole = int(seconds)
    if whole >= _HOUR:
        return f"{whole // _HOUR}:{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"
    return f"{whole // _MINUTE}:{whole % _MINUTE:02}"


def arguments_line(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call, short: the first one without its name, and None and False left out."""
    said = {name: value for name, value in arguments.items() if value is not None and value is not False}
    words = [f"{name}={value!r}" if number else str(value) for number, (name, value) in enumerate(said.items())]
    return " ".join(words)


def closing_line(result: RunResult, width: int = 200) -> str:
    """What the run used, in at most `width` columns."""
    turns, calls = pluralize(result.iterations, "turn"), pluralize(result.tool_calls, "tool call")
    cached = f" ({result.cache_hit_rate:.0%} of the input cached)" if result.cache_hit_rate else ""
    parts = [*([turns, calls] if result.iterations else []), f"{tokens_of(result.usage.total)}{cached}"]
    if result.cost is not None:
        parts.append(format_money(result.cost))
    parts.append(format_duration(result.elapsed))
    for left_out in (0, 1, 2):
        line = " | ".join(parts[left_out:])
        if len(line) <= width:
            break
    return clip_line(line, width)


def guard_line(event: events.GuardTripped) -> str:
    """One line about a guard that acted."""
    end = _ENDS.get(event.guard)
    if end is None:
        return f"{event.guard}: {event.reason}"
    return f"{end}; the model is asked to continue" if event.action == "recover" else end
