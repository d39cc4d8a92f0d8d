"""How the limits of a run were used up, turn by turn: as text for a terminal, as SVG for a page or a notebook."""

from collections.abc import Mapping, Sequence

from glidepath._wire import Record, Value

_BAR, _ROWS = 40, 16
_WIDE, _HIGH, _LEFT, _TOP, _LINE = 640, 180, 44, 12, 18
_PICO = 10**12
FIGURES, _MOST_POINTS = 5, 100  # of one reply, and replies that are shown
_COLORS = ("#0b7285", "#c2410c", "#4d7c0f", "#7e22ce", "#9f1239")


class BurnPoint(Value, frozen=True, gc=False, array_like=True):
    """What a run had used after one of its replies, its children included."""

    turns: int
    tokens: int
    picodollars: int
    tool_calls: int
    seconds: float


class Use(Record):
    """What a run may use, and what it had used after each reply; points are made on demand."""

    limits: Mapping[str, float]
    burnt: Sequence[float]
    began: float

    def points(self) -> tuple[BurnPoint, ...]:
        """At most a hundred of the replies; the last one is always among them."""
        starts = [FIGURES * place for place in some_places(len(self.burnt) // FIGURES, _MOST_POINTS)]
        rows = [self.burnt[start : start + FIGURES] for start in starts]
        return tuple(
            [
                BurnPoint(int(turns), int(tokens), int(money), int(calls), round(at - self.began, 3))
                for at, tokens, money, turns, calls in rows
            ]
        )


class Burn(Record):
    """One limit: what was used after each turn, and the limit or None."""

    name: str
    used: Sequence[float]
    limit: float | None = None

    @property
    def share(self) -> float:
        """How much of the limit is used at the end, 0 to 1; 0 without a limit."""
        return self.used[-1] / self.limit if self.limit and self.used else 0.0


def text_burndown(burns: Sequence[Burn], *, rows: int = _ROWS) -> list[str]:
    """A bar a turn for each limit: what is left of it."""
    lines: list[str] = []
    for burn in burns:
        if not burn.used:
            continue
        if burn.limit is None:
            lines += [f"{burn.name}: {_figure(burn.used[-1])}, no limit", ""]
            continue
        lines.append(f"{burn.name}: {_figure(burn.used[-1])} of {_figure(burn.limit)} ({burn.share:.0%})")
        for turn in some_places(len(burn.used), rows):
            left = max(burn.limit - burn.used[turn], 0.0)
            bar = "#" * round(_BAR * left / burn.limit)
            lines.append(f"  turn {turn + 1:>4} |{bar:<{_BAR}}| {_figure(left)} left")
        lines.append("")
    return lines[:-1]


def svg_of_points(points: Sequence[BurnPoint], limits: Mapping[str, float]) -> str:
    """The drawing of one result: its points and its limits, by the names that `RunStarted` has for them."""
    money = limits.get("picodollars")
    burns = (
        Burn("turns", [point.turns for point in points], limits.get("turns")),
        Burn("tokens", [point.tokens for point in points], limits.get("tokens")),
        Burn("dollars", [point.picodollars / _PICO for point in points], None if money is None else money / _PICO),
        Burn("tool calls", [point.tool_calls for point in points], limits.get("tool_calls")),
        Burn("seconds", [point.seconds for point in points], limits.get("seconds")),
    )
    return svg_burndown(burns)


def svg_burndown(burns: Sequence[Burn]) -> str:
    """One line for each limit, from full at the start to what was left at the end; empty without limits."""
    limited = [burn for burn in burns if burn.limit and burn.used]
    if not limited:
        return ""
    from html import escape  # nearly no run is drawn

    wide, bottom = _WIDE - _LEFT - 12, _TOP + _HIGH
    rules = "".join(
        f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{bottom - _HIGH * share:.0f}" y2="{bottom - _HIGH * share:.0f}" '
        f'stroke="#8884"/><text x="{_LEFT - 6}" y="{bottom - _HIGH * share + 4:.0f}" text-anchor="end">'
        f"{share:.0%}</text>"
        for share in (0.0, 0.5, 1.0)
    )
    drawn = []
    for number, burn in enumerate(limited):
        limit = burn.limit or 1.0
        color = _COLORS[number % len(_COLORS)]
        points = [(0.0, 1.0)] + [
            ((turn + 1) / len(burn.used), max(0.0, 1 - burn.used[turn] / limit))
            for turn in some_places(len(burn.used), 200)
        ]
        line = " ".join(f"{_LEFT + wide * x:.1f},{bottom - _HIGH * y:.1f}" for x, y in points)
        row = bottom + 30 + _LINE * number
        drawn.append(
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<rect x="{_LEFT}" y="{row - 9}" width="10" height="10" fill="{color}"/><text x="{_LEFT + 16}" y="{row}">'
            f"{escape(burn.name)}: {_figure(burn.used[-1])} of {_figure(limit)} ({burn.share:.0%})</text>"
        )
    tall = bottom + 30 + _LINE * len(limited)
    turns = max(len(burn.used) for burn in limited)
    axis = f'<text x="{_LEFT + wide}" y="{bottom + 14}" text-anchor="end">turn {turns}</text>'
    return (
        f'<svg viewBox="0 0 {_WIDE} {tall}" style="max-width:{_WIDE}px;width:100%" '
        f'role="img" aria-label="what was left of each limit" font-family="sans-serif" font-size="12" '
        f'fill="currentColor">{rules}{axis}{"".join(drawn)}</svg>'
    )


def some_places(count: int, most: int) -> list[int]:
    """At most this many places of a long row, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1_000 else f"{number:.4g}"  # noqa: PLR2004
