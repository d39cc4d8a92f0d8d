"""Charts as SVG text, without a library: bars on a logarithmic scale, and a grid of verdicts.

Every chart is one phone wide, so that its text is still legible at 390 px, and has colors for light and dark pages.
"""

import math
from html import escape

WIDTH = 400
STYLE = """<style>
text { font-family: Helvetica, Arial, sans-serif; fill: #1f2933 }
.soft { fill: #52606d } .paper { fill: #ffffff } .rule { stroke: #d9dee3 }
.ours { fill: #0b7285 } .peer { fill: #adb5bd }
.on-dark { fill: #ffffff } .on-light { fill: #1f2933 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb } .soft { fill: #a9b4c0 } .paper { fill: #14181d } .rule { stroke: #38424d }
.ours { fill: #22b8cf } .peer { fill: #5b6670 } .on-dark { fill: #ffffff } .on-light { fill: #1f2933 }
}
</style>"""
COLORS = {
    "held, with an answer": "#2b8a3e",
    "held without an answer": "#8ce99a",
    "over": "#f08c00",
    "killed": "#c92a2a",
}


def text(x: float, y: float, words: str, size: int = 12, kind: str = "", anchor: str = "start", bold: bool = False):
    weight = " font-weight='bold'" if bold else ""
    named = f" class='{kind}'" if kind else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}'{named} font-size='{size}' text-anchor='{anchor}'{weight}>{escape(words)}</text>"
    )


def document(height: float, title: str, parts: list[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:.0f}' width='{WIDTH}' "
        f"height='{height:.0f}' role='img'><title>{escape(title)}</title>{STYLE}"
        f"<rect width='100%' height='100%' class='paper'/>"
    )
    return "\n".join([head, *parts, "</svg>", ""])


def heading(title: str, size: int = 14) -> tuple[list[str], float]:
    """A title in as many lines as it needs, and where the chart below it begins."""
    lines, line = [], ""
    for word in title.split():
        if len(line) + len(word) > 50:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    lines.append(line)
    drawn = [text(10, 24 + 18 * number, words, size, bold=True) for number, words in enumerate(lines)]
    return drawn, 34.0 + 18 * (len(lines) - 1)


def short(ratio: float) -> str:
    """A ratio with as many digits as it deserves."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def panel(y: float, title: str, rows: list[tuple[str, float, bool]], longest: float) -> list[str]:
    """The bars of one workload. The bare loop is 1, at the left edge."""
    label, value = 172, 52
    room = WIDTH - label - value - 10
    top = math.log10(max(10.0, longest))
    parts = [text(10, y + 14, title, 13, bold=True)] if title else []
    y += 24 if title else 4
    for power in range(math.floor(top) + 1):
        tick = label + room * power / top
        parts.append(f"<line x1='{tick:.1f}' y1='{y}' x2='{tick:.1f}' y2='{y + 4 + 22 * len(rows)}' class='rule'/>")
        parts.append(text(tick, y + 18 + 22 * len(rows), f"{10**power:,}x", 11, "soft", "middle"))
    for number, (name, ratio, ours) in enumerate(rows):
        line = y + 4 + 22 * number
        long = max(1.5, room * math.log10(max(1.0, ratio)) / top)
        parts.append(text(label - 8, line + 13, name, 12, "" if ours else "soft", "end", bold=ours))
        parts.append(
            f"<rect x='{label}' y='{line}' width='{long:.1f}' height='17' class='{'ours' if ours else 'peer'}'/>"
        )
        parts.append(text(label + long + 5, line + 13, short(ratio), 12, bold=ours))
    return parts


def bars(title: str, panels: list[tuple[str, list[tuple[str, float, bool]]]], *, shared: bool = False) -> str:
    """Several workloads, one below the other. Each row is a name, its ratio to the bare loop and whether it is ours.

    With `shared` all of them have the same scale.
    """
    most = max(ratio for _, rows in panels for _, ratio, _ in rows)
    parts, y = heading(title)
    for name, rows in panels:
        longest = most if shared else max(ratio for _, ratio, _ in rows)
        parts += panel(y, name, rows, longest)
        y += (56 if name else 36) + 22 * len(rows)
    return document(y, title, parts)


def grid(title: str, columns: list[str], rows: list[tuple[str, list[tuple[str, str]]]], note: str) -> str:
    """Verdicts: each cell is one of COLORS and a word."""
    left, line = 90, 26
    cell = (WIDTH - left - 10) / len(columns)
    parts, y = heading(title)
    y += 146
    for number, name in enumerate(columns):
        x = left + cell * number + cell / 2 + 4
        parts.append(
            f"<g transform='translate({x:.1f} {y - 6:.1f}) rotate(-90)'>{text(0, 0, name, 11, bold=number == 0)}</g>"
        )
    for index, (name, cells) in enumerate(rows):
        top = y + line * index
        parts.append(text(left - 6, top + 17, name, 12, "", "end"))
        for number, (verdict, words) in enumerate(cells):
            x = left + cell * number
            parts.append(
                f"<rect x='{x + 1:.1f}' y='{top + 1}' width='{cell - 2:.1f}' height='{line - 2}'"
                f" fill='{COLORS[verdict]}'/>"
            )
            kind = "on-light" if verdict in {"held without an answer", "over"} else "on-dark"
            parts.append(text(x + cell / 2, top + 17, words, 11, kind, "middle"))
    y += line * len(rows) + 10
    for number, (name, color) in enumerate(COLORS.items()):
        x, top = 10 + 190 * (number % 2), y + 18 * (number // 2)
        parts.append(f"<rect x='{x}' y='{top}' width='12' height='12' fill='{color}'/>")
        parts.append(text(x + 18, top + 10, name, 11, "soft"))
    parts.append(text(10, y + 50, note, 11, "soft"))
    return document(y + 62, title, parts)
