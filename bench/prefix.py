"""How much of a request stands at the beginning of the next one, over a run of 30 turns: what a prompt cache can use.

    PYTHONPATH=src python bench/prefix.py

The run has a gate (turns 8 to 12), a withdrawal by a guard (after turn 17), one compaction, the withdrawal of the work
tools in its last turn, and a landing. A loopback server plays each provider and keeps the bodies; nothing leaves this
machine. Compared are tools, system prompt and messages as JSON, in the order in which they are cached, without
Anthropic's marks. "Landing" is the lower one of the last turn, without work tools, and the landing call. "Sent again"
is the share of all input that stood at the beginning of the request before, and so can be read from a cache.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from wire.dialects import DIALECTS
from wire.prefix import GATED, TURNS, Flight, cached, fly

WINDOW = 5_500
PLACES = {"gate closes": GATED.start - 1, "gate opens": GATED.stop - 1, "withdrawal": 17}


def row(flight: Flight) -> str:
    """One line of the table."""
    kept = flight.kept()
    texts = [cached(flight.dialect, body) for body in flight.bodies]
    again = sum(share * len(text) for share, text in zip(kept, texts, strict=False)) / sum(map(len, texts))
    (compacted,) = flight.shaped()
    shares = [kept[place - 1] for place in PLACES.values()]
    others = min(share for place, share in enumerate(kept, 1) if place != compacted)
    cells = [*shares, kept[compacted - 1], min(kept[TURNS - 2 :]), others, again]
    return f"| {flight.dialect.name} | " + " | ".join(f"{share:.0%}" for share in cells) + " |"


def main() -> None:
    logging.getLogger("glidepath").setLevel(logging.ERROR)
    heads = ["provider", *PLACES, "compaction", "landing", "least, but for the compaction", "sent again"]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for dialect in DIALECTS:
        print(row(asyncio.run(fly(dialect, window=WINDOW))))


if __name__ == "__main__":
    main()
