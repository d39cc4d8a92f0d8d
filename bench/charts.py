"""Charts as SVG text, without a library: bars on a logarithmic scale, and a grid of verdicts."""

import math
from html import escape
from textwrap import wrap

FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, SOFT, RULE, PAPER = "#1f2933", "#52606d", "#d9dee3", "#ffffff"
OURS, PEER = "#0b7285", "#adb5bd"
COLORS = {
    "held, with an answer": "#2b8a3e",
    "held without an answer": "#8ce99a",
    "over": "#f08c00",
    "killed": "#c92a2a",
}


def text(x: float, y: float, words: str, size: int = 12, color: str = INK, anchor: str = "start", bold: bool = False):
    weight = " font-weight='bold'" if bold else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{color}' text-anchor='{anchor}'{weight}>"
        f"{escape(words)}</text>"
    )


def document(width: float, height: float, title: str, parts: list[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"height='{height:.0f}' role='img'><title>{escape(title)}</title>"
        f"<rect width='100%' height='100%' fill='{PAPER}'/>"
    )
    return "\n".join([head, *parts, "</svg>", ""])


def short(ratio: float) -> str:
    """A ratio with as many digits as it deserves."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def panel(
    x: float, y: float, width: float, title: str, rows: list[tuple[str, float, bool]], longest: float
) -> list[str]:
    """Bars of one workload; the bare loop is 1 and the left edge."""
    label, value = 200, 62
    room = width - label - value
    top = math.log10(max(10.0, longest))
    parts = [text(x, y + 14, title, 13, bold=True)]
    for power in range(math.floor(top) + 1):
        tick = x + label + room * power / top
        parts.append(
            f"<line x1='{tick:.1f}' y1='{y + 24}' x2='{tick:.1f}' y2='{y + 28 + 20 * len(rows)}' stroke='{RULE}'/>"
        )
        parts.append(text(tick, y + 42 + 20 * len(rows), f"{10**power:,}x", 10, SOFT, "middle"))
    for number, (name, ratio, ours) in enumerate(rows):
        line = y + 28 + 20 * number
        long = max(1.5, room * math.log10(max(1.0, ratio)) / top)
        parts.append(text(x + label - 8, line + 12, name, 12, INK if ours else SOFT, "end", bold=ours))
        parts.append(
            f"<rect x='{x + label:.1f}' y='{line}' width='{long:.1f}' height='15' fill='{OURS if ours else PEER}'/>"
        )
        parts.append(text(x + label + long + 6, line + 12, short(ratio), 12, INK, bold=ours))
    return parts


def bars(
    title: str,
    panels: list[tuple[str, list[tuple[str, float, bool]]]],
    *,
    shared: bool = False,
    narrow: bool = False,
) -> str:
    """Several workloads side by side. Each row is a name, its ratio to the bare loop and whether it is ours.

    With `shared` all of them have the same scale; `narrow` is for a phone: one below the other.
    """
    columns, width, gap = (1, 400, 0) if narrow else (2, 490, 30)
    most = max(ratio for _, rows in panels for _, ratio, _ in rows)
    lines = wrap(title, 48 if narrow else 200)
    parts = [text(20, 30 + 20 * number, line, 16, bold=True) for number, line in enumerate(lines)]
    y = 32.0 + 20 * len(lines)
    for start in range(0, len(panels), columns):
        together = panels[start : start + columns]
        for column, (name, rows) in enumerate(together):
            longest = most if shared else max(ratio for _, ratio, _ in rows)
            parts += panel(20 + column * (width + gap), y, width, name, rows, longest)
        y += 66 + 20 * max(len(rows) for _, rows in together)
    return document(20 + columns * (width + gap), y, title, parts)


def grid(title: str, columns: list[str], rows: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """Verdicts: each cell is one of COLORS and a few words."""
    left, cell, line = 110, 162, 26
    parts = [text(20, 30, title, 16, bold=True)]
    for number, name in enumerate(columns):
        parts.append(text(20 + left + cell * number + cell / 2, 62, name, 11, INK, "middle", bold=number == 0))
    for index, (name, cells) in enumerate(rows):
        y = 72 + line * index
        parts.append(text(20 + left - 8, y + 16, name, 12, INK, "end"))
        for number, (verdict, words) in enumerate(cells):
            x = 20 + left + cell * number
            dark = verdict != "held without an answer"
            parts.append(
                f"<rect x='{x + 1}' y='{y + 1}' width='{cell - 2}' height='{line - 2}' fill='{COLORS[verdict]}'/>"
            )
            parts.append(text(x + cell / 2, y + 17, words, 11, PAPER if dark else INK, "middle"))
    y = 72 + line * len(rows) + 14
    x = 20.0 + left
    for name, color in COLORS.items():
        parts.append(f"<rect x='{x}' y='{y}' width='12' height='12' fill='{color}'/>")
        parts.append(text(x + 18, y + 10, name, 11, SOFT))
        x += 34 + 6.2 * len(name)
    return document(20 + left + cell * len(columns) + 20, y + 28, title, parts)
