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
        starts = [FIGURES * place for place in pick_places(len(self.burnt) // FIGURES, _MOST_POINTS)]
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
    note: str = ""
    """What the figure counts, where that is not the whole of one run."""

    @property
    def share(self) -> float:
        """How much of the limit is used at the end, 0 to 1; 0 without a limit."""
        return self.used[-1] / self.limit if self.limit and self.used else 0.0

    def headline(self) -> str:
        """What was used of the limit, in one line."""
        used = f"{self.name}: {_format_figure(self.used[-1])}"
        if self.limit is None:
            return f"{used}{self.note}, no limit"
        return f"{used} of {_format_figure(self.limit)} ({_format_percent(self.share)}){self.note}"


def text_burndown(burns: Sequence[Burn], *, labels: Sequence[str] = (), rows: int = _ROWS) -> list[str]:
    """A bar a turn for each limit: what is left of it. A limit that was hardly touched gets its headline only."""
    lines: list[str] = []
    for burn in burns:
        if not burn.used:
            continue
        lines.append(burn.headline())
        limit = burn.limit
        if limit and round(_BAR * max(burn.used) / limit):
            names = labels or [f"turn {turn + 1:>4}" for turn in range(len(burn.used))]
            wide = max(map(len, names))
            for place in pick_places(len(burn.used), rows):
                left = max(limit - burn.used[place], 0.0)
                bar = "#" * round(_BAR * left / limit)
                lines.append(f"  {names[place]:<{wide}} |{bar:<{_BAR}}| {_format_figure(left)} left")
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
    landed = len(points) > 1 and points[-1].turns == points[-2].turns  # only the call of a landing is not a turn
    return svg_burndown(burns, then=", then the landing" if landed else "")


def svg_burndown(burns: Sequence[Burn], *, then: str = "") -> str:
    """One line for each limit, from full at the start to what was left at the end; empty without limits.

    The axis ends with the last turn, as it is counted; `then` is what came after it.
    """
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
            for turn in pick_places(len(burn.used), 200)
        ]
        line = " ".join(f"{_LEFT + wide * x:.1f},{bottom - _HIGH * y:.1f}" for x, y in points)
        row = bottom + 30 + _LINE * number
        drawn.append(
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<rect x="{_LEFT}" y="{row - 9}" width="10" height="10" fill="{color}"/><text x="{_LEFT + 16}" y="{row}">'
            f"{escape(burn.headline())}</text>"
        )
    tall = bottom + 30 + _LINE * len(limited)
    axis = f'<text x="{_LEFT + wide}" y="{bottom + 14}" text-anchor="end">{_describe_last_turn(burns)}{then}</text>'
    return (
        f'<svg viewBox="0 0 {_WIDE} {tall}" style="max-width:{_WIDE}px;width:100%" '
        f'role="img" aria-label="what was left of each limit" font-family="sans-serif" font-size="12" '
        f'fill="currentColor">{rules}{axis}{"".join(drawn)}</svg>'
    )


def notebook_card(head: str, cause: str, text: str, burn: Sequence[BurnPoint], limits: Mapping[str, float]) -> str:
    """A result in a notebook: how it ended, its text, and what was left of each limit."""
    from html import escape

    cause = f"<br>{escape(cause)}" if cause else ""
    shown = f"<pre style='white-space:pre-wrap'>{escape(text)}</pre>"
    return f"<div><b>{escape(head)}</b>{cause}{shown}{svg_of_points(burn, limits)}</div>"


def _describe_last_turn(burns: Sequence[Burn]) -> str:
    turns = next((burn.used for burn in burns if burn.name == "turns" and burn.used), None)
    return f"reply {max(len(burn.used) for burn in burns)}" if turns is None else f"turn {_format_figure(turns[-1])}"


def pick_places(count: int, most: int) -> list[int]:
    """At most this many places of a long row, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def _format_percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"  # noqa: PLR2004 - percent


def _format_figure(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1_000 else f"{number:.4g}"  # noqa: PLR2004
