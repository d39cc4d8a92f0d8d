"""Draw the diagrams of the documentation: the demo's first scene, the life of a run, the tree of budgets.

python scripts/draw_diagrams.py
"""

from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
STYLE = """<style>
text { font: 14px ui-sans-serif, system-ui, sans-serif; fill: #1f2430 }
.mono { font: 13px ui-monospace, Menlo, Consolas, monospace }
.small { font-size: 12.5px; fill: #566074 }
.box { fill: #ffffff; stroke: #9aa5bd; stroke-width: 1.5 }
.soft { fill: #eef1f8; stroke: none }
.good { fill: #e5f5ea; stroke: #2f8f4e; stroke-width: 1.5 }
.bad { fill: #fdecea; stroke: #c0392b; stroke-width: 1.5 }
.line { stroke: #566074; stroke-width: 1.6; fill: none; marker-end: url(#tip) }
.tip { fill: #566074 }
.bold { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9f2 } .small { fill: #aab3c8 }
  .box { fill: #232838; stroke: #66708a } .soft { fill: #1b2030 }
  .good { fill: #17372a; stroke: #4fbf76 } .bad { fill: #3d1d1d; stroke: #e2695c }
  .line { stroke: #aab3c8 } .tip { fill: #aab3c8 }
}
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>
"""


def picture(width, height, title, *parts):
    """A whole SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n{STYLE}' + "\n".join(parts) + "\n</svg>\n"
    )


def box(x, y, w, h, kind="box"):
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="8"/>'


def text(x, y, said, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(said)}</text>'


def arrow(path):
    return f'<path class="line" d="{path}"/>'


def node(x, y, w, head, about=(), kind="box"):
    """A box with a headline and lines below it."""
    lines = [text(x + w / 2, y + 45 + 18 * n, line, "small", "middle") for n, line in enumerate(about)]
    return "\n".join(
        [box(x, y, w, 40 + 18 * len(about), kind), text(x + w / 2, y + 25, head, "bold", "middle"), *lines]
    )


def terminal(x, title, rows, verdict, kind):
    """A window with what a command printed, and what came of it."""
    shown = [text(x + 16, 66 + 22 * n, row, "mono") for n, row in enumerate(rows)]
    foot = [box(x, 188, 392, 36, kind), text(x + 196, 211, verdict, "bold", "middle")]
    return "\n".join([box(x, 8, 392, 172), text(x + 16, 34, title, "small"), *shown, *foot])


def gate_demo():
    """What the first scene of `glidepath demo` printed."""
    bare = ["$ python agent.py", "", "61 calls, 132,985 tokens,", "and it would never stop", "by itself"]
    gate = [
        "$ glidepath gate run \\",
        "    --max-tokens 20k -- python agent.py",
        "SCRIPTED-ANSWER after 22 tool calls",
        "landed: 23 calls, 18,311 of 20,000",
        "tokens; exit code 0",
    ]
    return picture(
        816,
        232,
        "The same agent twice: bare it makes 61 calls and gives no answer, behind the gate it answers in its budget",
        terminal(8, "an agent, bare", bare, "no answer", "bad"),
        terminal(416, "the same file, behind the gate", gate, "an answer, inside the budget", "good"),
    )


def life_of_a_run():
    """From the first check to the one result."""
    return picture(
        816,
        392,
        "The life of a run: check, reserve, call, settle, tools; near a limit a notice, then the landing; one result",
        node(8, 16, 150, "agent.run(task)", ["checked first"]),
        node(210, 16, 170, "reserve", ["the worst case", "of the next call"]),
        node(432, 16, 160, "model call", ["streamed, retried"]),
        node(644, 16, 164, "settle", ["what it really used;", "the rest is given back"]),
        node(644, 156, 164, "tools", ["guards, approvals,", "each exactly once"]),
        node(210, 156, 170, "limits and guards", ["asked before", "every step"]),
        arrow("M158 45 H206"),
        arrow("M380 55 H428"),
        arrow("M592 50 H640"),
        arrow("M726 92 V152"),
        arrow("M644 194 H384"),
        arrow("M295 156 V96"),
        text(304, 128, "room left", "small"),
        text(740, 128, "calls", "small"),
        node(8, 156, 150, "a notice", ["little is left:", "finish"]),
        arrow("M210 194 H162"),
        text(164, 250, "near a limit", "small"),
        node(8, 296, 280, "the landing", ["tools go away, one last call", "is paid from the reserve"], "good"),
        arrow("M83 232 V292"),
        node(432, 296, 376, "one result", ["how it ended, why, what it cost,", "and the best answer there is"], "good"),
        arrow("M288 334 H428"),
        arrow("M660 92 C590 150 580 230 600 292"),
        text(500, 250, "an answer", "small"),
    )


def tree_of_budgets():
    """A company, a team, a run, and its children."""
    return picture(
        816,
        330,
        "The tree of budgets: every call is reserved in its run, its parents, the team's and the company's wallet",
        node(278, 8, 260, "wallet: company", ["$500 a month"]),
        node(278, 98, 260, "wallet: team search", ["$50 a day"]),
        node(278, 188, 260, "a run", ["$0.50, 20 turns"]),
        node(8, 264, 240, "child: research", ["spends its parent's budget"]),
        node(288, 264, 240, "child: review", ["at most 3 turns of it"]),
        node(568, 264, 240, "tools, retries, landing", ["count like everything else"]),
        arrow("M408 98 V70"),
        arrow("M408 188 V160"),
        arrow("M128 264 C128 230 200 218 274 216"),
        arrow("M408 264 V250"),
        arrow("M688 264 C688 230 620 218 542 216"),
        text(560, 60, "a call is reserved in every", "small"),
        text(560, 78, "budget on its way up, or not made", "small"),
    )


PICTURES = {"gate-demo": gate_demo, "life-of-a-run": life_of_a_run, "tree-of-budgets": tree_of_budgets}


def drawn():
    """Every picture by the name of its file."""
    return {f"{name}.svg": draw() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for file, made in drawn().items():
        (FOLDER / file).write_text(made, encoding="utf-8")
        print(file)
