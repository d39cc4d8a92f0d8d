"""How much of a request stands at the beginning of the next one, over a run of 30 turns: what a prompt cache can use.

    PYTHONPATH=src python bench/prefix.py

The run has a gate (turns 8 to 12), a withdrawal by a guard (after turn 17), one compaction, the withdrawal of the work
tools in its last turn, and a landing. A loopback server plays each provider and keeps the bodies; nothing leaves this
machine. Compared are tools, system prompt and messages as JSON, in the order in which they are cached, without
Anthropic's marks. "Landing" is the lower one of the last turn, without work tools, and the landing call. "Sent again"
is the share of all input that stood at the beginning of the request before, and so can be read from a cache.

The second table is the same run in a small window, so that the view is made smaller several times: by dropping groups,
by clearing old results, or hardly, because results are spilled to files. A break is a request that does not begin with
95 % of the one before. "Reported" are the breaks that a `ContextShaped` announced; the cost is what it says, at $3 a
million tokens, $0.30 from the cache.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from wire.dialects import DIALECTS
from wire.prefix import GATED, TURNS, Flight, cached, fly

from glidepath.context import SpillResults
from glidepath.events import ContextShaped

WINDOW, SMALL = 5_500, 3_600
WHOLE = 0.95  # of a request before: what is less is a break
PLACES = {"gate closes": GATED.start - 1, "gate opens": GATED.stop - 1, "withdrawal": 17}
PRICE = ("3", "15", "0.3", "3")


def row(flight: Flight) -> str:
    """One line of the first table."""
    kept = flight.kept()
    (compacted,) = flight.shaped()
    shares = [kept[place - 1] for place in PLACES.values()]
    others = min(share for place, share in enumerate(kept, 1) if place != compacted)
    cells = [*shares, kept[compacted - 1], min(kept[TURNS - 2 :]), others, share_again(flight)]
    return f"| {flight.dialect.name} | " + " | ".join(f"{share:.0%}" for share in cells) + " |"


def share_again(flight: Flight) -> float:
    """The share of all input that the request before had at its beginning."""
    texts = [cached(flight.dialect, body) for body in flight.bodies]
    return sum(share * len(text) for share, text in zip(flight.kept(), texts, strict=False)) / sum(map(len, texts))


def break_row(name: str, flight: Flight) -> str:
    """One line of the second table."""
    kept = dict(enumerate(flight.kept(), 1))
    shaped = [event for event in flight.events if type(event) is ContextShaped]
    broken = {place for place, share in kept.items() if share < WHOLE}
    reported = broken & set(flight.shaped())
    cost = sum(event.picodollars or 0 for event in shaped) / 1e12
    at_breaks = f"{mean(kept[place] for place in broken):.0%}" if broken else "-"
    others = min(share for place, share in kept.items() if place not in broken)
    size = sum(len(cached(flight.dialect, body)) for body in flight.bodies) / 1000
    cells = [len(shaped), len(broken), len(reported), at_breaks, f"{others:.0%}", f"{share_again(flight):.0%}"]
    return f"| {flight.dialect.name} | {name} | " + " | ".join(map(str, cells)) + f" | ${cost:.4f} | {size:.0f} |"


def print_heads(*heads: str) -> None:
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")


def main() -> None:
    logging.getLogger("glidepath").setLevel(logging.ERROR)
    print_heads("provider", *PLACES, "compaction", "landing", "least, but for the compaction", "sent again")
    for dialect in DIALECTS:
        print(row(asyncio.run(fly(dialect, window=WINDOW))))
    print()
    print_heads(
        "provider", "strategy", "made smaller", "breaks", "reported", "kept at a break", "least elsewhere",
        "sent again", "reported cost", "kB sent",
    )  # fmt: skip
    for dialect in DIALECTS:
        prices = {dialect.model("http://127.0.0.1:1").name: PRICE}
        for strategy in ("compact", "clear"):
            flight = asyncio.run(fly(dialect, window=SMALL, context_strategy=strategy, prices=prices))
            print(break_row(strategy, flight))
        with tempfile.TemporaryDirectory() as folder:
            spill = SpillResults(folder, over=200, shown=60)
            print(break_row("spill", asyncio.run(fly(dialect, window=SMALL, spill=spill, prices=prices))))


if __name__ == "__main__":
    main()
