"""Writes docs/benchmarks-peers.md and its charts from the JSON files of bench/results. No number is typed by hand."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import charts

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks-peers.md"
IMAGES = ROOT / "docs" / "images"
OURS, BARE, BASE = "glidepath", "bare", "base"
TITLES = {
    "turn": "One tool turn",
    "stream": "One text delta",
    "checks": "One tool turn, ten custom checks",
    "plugins": "One tool turn, ten plugins",
    "persist": "One tool turn, kept on disk",
    "crowd": "1,000 agents at once, per turn",
    "cancel": "Cancel 100 agents in a tool",
    "import": "Import",
}


class Figures:
    """The best sample of each framework in each cell, and its ratio to the bare loop of the same cell."""

    def __init__(self, report: dict) -> None:
        self.report = report
        self.names = {key: about["name"] for key, about in report["frameworks"].items()}

    def best(self, cell: str, framework: str) -> dict | None:
        samples = self.report["cells"][cell]["samples"].get(framework, [])
        good = [figures for figures in samples if figures.get("cost_us") is not None]
        return min(good, key=lambda figures: figures["cost_us"]) if good else None

    def ratio(self, cell: str, framework: str) -> float | None:
        mine, base = self.best(cell, framework), self.best(cell, BASE)
        return None if mine is None or base is None else mine["cost_us"] / base["cost_us"]

    def peers(self) -> list[str]:
        return [key for key in self.names if key not in {OURS, BARE}]

    def ranked(self, cell: str) -> list[tuple[str, float, bool]]:
        """Cheapest first, without the bare loop."""
        rows = [(key, self.ratio(cell, key)) for key in self.names if key != BARE]
        known = sorted(((key, ratio) for key, ratio in rows if ratio is not None), key=lambda row: row[1])
        return [(self.names[key], ratio, key == OURS) for key, ratio in known]


def table(heading: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def amount(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def bytes_words(value: float) -> str:
    return f"{value / 2**20:,.1f} MiB" if value >= 2**20 else f"{value / 2**10:,.0f} KiB"


def ratios(figures: Figures) -> str:
    cells = [cell for cell in TITLES if cell in figures.report["cells"]]
    rows = []
    for key in [OURS, *figures.peers()]:
        found = [figures.ratio(cell, key) for cell in cells]
        rows.append([figures.names[key], *("-" if ratio is None else charts.short(ratio) for ratio in found)])
    absolute = [amount((figures.best(cell, BASE) or {}).get("cost_us"), 1) for cell in cells]
    rows.append(["the bare loop itself, CPU us", *absolute])
    return table(["", *(TITLES[cell] for cell in cells)], rows)


def long_runs(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers(), BARE]:
        run = figures.best("long", key)
        if run is None:
            continue
        ending = "through" if run["through"] else (run["error"] or "out of CPU time").split(" while")[0]
        grown = "-" if run["growth"] is None else f"{run['growth']:.2f}x"
        rows.append(
            [
                figures.names[key],
                amount(run["turns"]),
                amount(run["early_us"]),
                amount(run["late_us"]),
                grown,
                ending.replace("|", "/"),
            ]
        )
    return table(["", "turns", "CPU us, turns 20-40", "CPU us, last 20 turns", "growth", "ended"], rows)


def kept_runs(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers(), BARE]:
        run, about = figures.best("persist", key), figures.report["frameworks"][key]
        if run is None:
            rows.append([figures.names[key], "none of its own without another engine", "-", "-", "-"])
            continue
        rows.append(
            [
                figures.names[key],
                about["store"],
                charts.short(figures.ratio("persist", key) or 0),
                bytes_words(run["disk_bytes"]),
                bytes_words(run["written_bytes_per_turn"]),
            ]
        )
    return table(
        ["", "store", "ratio", f"on disk after {run_turns(figures, 'persist')} turns", "written per turn"], rows
    )


def run_turns(figures: Figures, cell: str) -> str:
    return f"{figures.report['cells'][cell]['options']['turns']:,}"


def crowds(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers(), BARE]:
        run = figures.best("crowd", key)
        if run is not None:
            kib = amount(run["kib_per_agent"], 1)
            rows.append([figures.names[key], amount(run["turns_per_cpu_second"]), kib])
    return table(["", "turns per CPU second", "KiB per agent at the peak"], rows)


def cancels(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers(), BARE]:
        run = figures.best("cancel", key)
        if run is not None:
            ended = f"{run['tasks_ended']} of {run['inside_tool']}"
            wall = min(sample["wall_ms"] for sample in figures.report["cells"]["cancel"]["samples"][key])
            rows.append(
                [figures.names[key], ended, str(run["tools_cancelled"]), amount(run["cost_us"]), amount(wall, 1)]
            )
    return table(["", "runs ended", "tools cancelled", "CPU us per agent", "ms for all, best"], rows)


def extras(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers()]:
        kinds = figures.report["frameworks"][key]["extras"]
        rows.append([figures.names[key], kinds.get("checks", "none"), kinds.get("plugins", "no second mechanism")])
    return table(["", "ten checks are", "ten plugins are"], rows)


def sources(figures: Figures) -> str:
    rows = []
    for name, cell in figures.report["cells"].items():
        loaded = f"{cell['load']:.0f} processes" if cell["load"] >= 1 else "idle"
        best = f"best of {cell['rounds']}" if cell["rounds"] > 1 else "one run"
        rows.append([f"`{name}`", cell["what"], best, cell["date"], loaded, f"`{cell['command']}`"])
    return table(["cell", "what", "rounds", "date", "load before", "command"], rows)


def versions(figures: Figures) -> str:
    rows = []
    for key in [OURS, *figures.peers(), BARE]:
        about = figures.report["frameworks"][key]
        installed = ", ".join(f"{package} {number}" for package, number in about["versions"].items())
        rows.append([figures.names[key], installed, f"`{about['statement']}`"])
    return table(["", "version", "what `import` imports"], rows)


def smaller(figures: Figures) -> list[str]:
    """The stores that take less room than ours."""
    mine = figures.best("persist", OURS)
    found = [(key, figures.best("persist", key)) for key in figures.peers()]
    less = [(run["disk_bytes"], key) for key, run in found if run and mine and run["disk_bytes"] < mine["disk_bytes"]]
    if not less or mine is None:
        return []
    words = ", ".join(f"{figures.names[key]} {bytes_words(size)}" for size, key in sorted(less))
    return [f"- **Room on disk**: {words}; glidepath {bytes_words(mine['disk_bytes'])}."]


def cheaper(figures: Figures) -> str:
    """Every cell in which a peer did better, found in the figures."""
    lines = []
    for cell, title in TITLES.items():
        if cell not in figures.report["cells"]:
            continue
        mine = figures.ratio(cell, OURS)
        better = [
            f"{name} {charts.short(ratio)}" for name, ratio, ours in figures.ranked(cell) if not ours and ratio < mine
        ]
        if better:
            lines.append(f"- **{title}**: {', '.join(better)}; glidepath {charts.short(mine)}.")
    lines += smaller(figures)
    return "\n".join(lines) or "- In this run no peer was cheaper in any cell."


# The matrix.


def verdict(row: dict, lacks: list[str]) -> tuple[str, str]:
    """The color and the words of one cell."""
    if row["ending"] == "killed":
        return "killed", "had to be killed"
    if row["contained"]:
        honest = "" if row["truthful"] else ", says success"
        return (
            ("held, with an answer", f"held, answer{honest}")
            if row["answer"]
            else ("held without an answer", f"held{honest}")
        )
    over = row["used"] / row["allowed"]
    if over <= 1:
        return "over", "left work running"
    note = ", no such limit" if row["watched"] in lacks else ""
    return "over", f"{charts.short(over)}{note}"


def matrix_parts(matrix: dict) -> tuple[list[str], list[tuple[str, list[tuple[str, str]]]]]:
    columns = list(matrix["frameworks"])
    rows = []
    for case in matrix["cases"]:
        cells = [
            verdict(matrix["frameworks"][key]["rows"][case], matrix["frameworks"][key]["lacks"]) for key in columns
        ]
        rows.append((case, cells))
    return [matrix["frameworks"][key]["name"] for key in columns], rows


def matrix_table(matrix: dict) -> str:
    names, rows = matrix_parts(matrix)
    lines = [[f"{case}: {matrix['cases'][case]['what']}", *(words for _, words in cells)] for case, cells in rows]
    for title, key in (("contained", "contained"), ("told the truth", "truthful"), ("handed over an answer", "answer")):
        columns = [column["rows"].values() for column in matrix["frameworks"].values()]
        counts = [f"**{sum(bool(row[key]) for row in rows)} of {len(rows)}**" for rows in columns]
        lines.append([f"**{title}**", *counts])
    return table(["case", *names], lines)


def matrix_details(matrix: dict) -> str:
    lines = []
    for column in matrix["frameworks"].values():
        for case, row in column["rows"].items():
            if not row["contained"] or not row["truthful"]:
                spent = f"{row['turns']:,} model calls, {row['tokens']:,} tokens, {row['tools']:,} tool calls"
                lines.append([column["name"], case, f"{spent}, {row['seconds']} s", row["ending"]])
    return table(["", "case", "what was really spent", "ending"], lines)


def configurations(matrix: dict) -> str:
    parts = []
    for column in matrix["frameworks"].values():
        installed = ", ".join(f"{package} {number}" for package, number in column["versions"].items())
        parts.append(
            f"### {column['name']}\n\n```python no-run\n# no-run: {installed}, in an environment of its own\n"
            f"{column['configuration']}\n```\n"
        )
    return "\n".join(parts)


def drawn_charts(figures: Figures, matrix: dict) -> dict[str, str]:
    """Every chart as SVG, by the name of its file."""
    panels = [(title, figures.ranked(cell)) for cell, title in TITLES.items() if cell in figures.report["cells"]]
    scale = "as a multiple of a hand-written loop (logarithmic; shorter is better)"
    drawn = {"turn-cost": charts.bars(f"CPU time of one tool turn, {scale}", [("", figures.ranked("turn"))])}
    drawn["peers-ratios"] = charts.bars(f"CPU time {scale}", panels)
    base = figures.best("long", BARE)["early_us"]
    early, late = [], []
    for key in [OURS, *figures.peers()]:
        run = figures.best("long", key)
        if run is not None and run["early_us"] is not None:
            early.append((figures.names[key], run["early_us"] / base, key == OURS))
            late.append((figures.names[key], run["late_us"] / base, key == OURS))
    long = [("Turns 20 to 40", early), ("The last 20 turns it reached", late)]
    drawn["peers-long"] = charts.bars("One long run: what a turn costs early and late", long, shared=True)
    names, rows = matrix_parts(matrix)
    brief = [(case, [(verdict, briefly(words)) for verdict, words in cells]) for case, cells in rows]
    title = "Fifteen ways to misbehave, and a control: did the limit hold, and was there an answer?"
    drawn["peers-matrix"] = charts.grid(title, names, brief, "* the framework reported success")
    return drawn


def briefly(words: str) -> str:
    """A verdict in one word, for a narrow cell: `held, answer, says success` is `answer*`."""
    if words == "had to be killed":
        return "killed"
    if words == "left work running":
        return "left"
    star = "*" if "says success" in words else ""
    return ("answer" if "answer" in words.split(", ") else words.split(",", maxsplit=1)[0]) + star


def write_charts(figures: Figures, matrix: dict) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, drawn in drawn_charts(figures, matrix).items():
        (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")


def page(figures: Figures, matrix: dict) -> str:
    machine = figures.report["machine"]
    template = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    values = {
        "machine": f"{machine['cores']} cores, {machine['processor']}, {machine['system']}",
        "python": figures.report["python"],
        "commits": ", ".join(sorted({cell["commit"] for cell in figures.report["cells"].values()})),
        "versions": versions(figures),
        "ratios": ratios(figures),
        "cheaper": cheaper(figures),
        "long": long_runs(figures),
        "long_source": figures.report["cells"]["long"]["command"],
        "kept": kept_runs(figures),
        "crowds": crowds(figures),
        "cancels": cancels(figures),
        "extras": extras(figures),
        "sources": sources(figures),
        "matrix": matrix_table(matrix),
        "matrix_command": matrix["command"],
        "matrix_date": matrix["date"],
        "matrix_details": matrix_details(matrix),
        "hard": f"{matrix['hard_seconds']:.0f}",
        "spare": f"{matrix['spare_seconds']:.0f}",
        "configurations": configurations(matrix),
    }
    for name, value in values.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the page is not what the JSON says")
    options = parser.parse_args()
    figures = Figures(json.loads((RESULTS / "peers.json").read_text(encoding="utf-8")))
    matrix = json.loads((RESULTS / "matrix.json").read_text(encoding="utf-8"))
    text = page(figures, matrix)
    if options.check:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    write_charts(figures, matrix)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and its charts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
