"""How the built-in estimator compares with a real tokenizer. Needs `pip install rs-bpe`, which brings o200k along.

    PYTHONPATH=src python bench/tokens.py

For each kind of text: characters a token has, and our estimate divided by the tokenizer's count, for the whole text
and for the worst of its pieces of 400 characters. Above 1 is over-estimated. Then runs on a token limit, whose tool
returns that kind of text and whose model counts with the tokenizer: how much of the limit was really used at most.
"""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json
import pathlib
import random
import sys

from rs_bpe.bpe import openai  # type: ignore[import-not-found]

from glidepath import Agent, Limits, Usage, tool
from glidepath.context import CharEstimator
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta

COUNT = openai.o200k_base().count
ESTIMATE = CharEstimator().estimate
HERE = pathlib.Path(__file__).parent.parent
PIECE = 400
LIMIT = 30_000

GERMAN = (
    "Der Vertrag kann von beiden Seiten mit einer Frist von drei Monaten zum Ende eines Kalenderjahres schriftlich "
    "gekündigt werden. Überschüssige Beträge werden auf das angegebene Konto zurücküberwiesen; "
    "Bearbeitungsgebühren fallen dabei nicht an. "
)
CHINESE = "会议决定自下个月起调整采购流程，所有超过五万元的合同必须经过财务部门和法务部门的共同审批。"  # noqa: RUF001
JAPANESE = "サプライヤーは通知を受け取ってから十営業日以内に見積書を提出してください。"
EMOJI = "😀😂🤣😍😎🤔🚀🔥🎉👍🙏💡📈🐍🦊🍕🧪🧬🪐"


def rows(chance: random.Random, count: int) -> list[dict[str, object]]:
    return [
        {
            "id": chance.randrange(10**9),
            "name": "Alice Smith",
            "email": f"user{n}@example.com",
            "score": chance.random(),
        }
        for n in range(count)
    ]


def table(chance: random.Random, count: int) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([[round(chance.gauss(0, 100), 4) for _ in range(8)] for _ in range(count)])
    return out.getvalue()


def texts(seed: int, size: int = 20_000) -> dict[str, str]:
    """A text of each kind."""
    chance = random.Random(seed)  # noqa: S311
    html = [f'<tr class="row"><td><a href="/item/{n}?p={n}">Item {n}</a></td><td>9.{n}</td></tr>\n' for n in range(300)]
    made = {
        "prose (our docs)": (HERE / "docs" / "faq.md").read_text() + (HERE / "docs" / "security.md").read_text(),
        "German": GERMAN * 80,
        "Python": (HERE / "src" / "glidepath" / "ledger.py").read_text(),
        "JSON, indented": json.dumps(rows(chance, 200), indent=2),
        "JSON, compact": json.dumps(rows(chance, 200), separators=(",", ":")),
        "HTML": "".join(html),
        "CSV, numbers": table(chance, 300),
        "CSV, digits": "\n".join(",".join(str(chance.randrange(10)) for _ in range(20)) for _ in range(500)),
        "hex": chance.randbytes(size // 2).hex(),
        "hex dump": "\n".join(chance.randbytes(16).hex(" ") for _ in range(400)),
        "base64": base64.encodebytes(chance.randbytes(size * 3 // 4)).decode(),
        "Chinese": CHINESE * 200,
        "Japanese": JAPANESE * 200,
        "emoji": "".join(chance.choice(EMOJI) for _ in range(2_000)),
    }
    return {kind: text[:size] for kind, text in made.items()}


class Counting:
    """A model that counts what it is sent with the tokenizer, and calls its tool until it has none."""

    name = "counting"
    max_output_tokens = 300

    def __init__(self) -> None:
        self.calls = self.used = 0

    async def stream(self, request):  # type: ignore[no-untyped-def]
        self.calls += 1
        sent = COUNT(request.system_prompt) + sum(4 + COUNT(message.text) for message in request.messages)
        sent += sum(12 for message in request.messages for _ in getattr(message, "tool_calls", ()))
        said = 12
        if request.tools:
            yield ToolCallDelta(index=0, id=f"c{self.calls}", name="read", arguments=f'{{"page": {self.calls}}}')
        else:
            yield TextDelta("That is what I know.")
        self.used += sent + said
        yield StreamEnd("tool_use" if request.tools else "end_turn", Usage(input=sent, output=said))


def used(kind: str, seed: int) -> float:
    """The share of a token limit that a run has really used."""
    chance, text, model = random.Random(seed), texts(seed, 60_000)[kind], Counting()  # noqa: S311

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        start = chance.randrange(max(1, len(text) - 4_000))
        return text[start : start + chance.choice([300, 1_500, 4_000])]

    limits = Limits(max_tokens=LIMIT, max_iterations=500)
    asyncio.run(Agent(model=model, tools=[read], limits=limits).run("Read on."))
    return model.used / LIMIT


def main(seeds: int) -> None:
    """Print the table."""
    print("| text | characters a token | bytes/3 | estimate | worst piece | most of a limit used |")
    print("|---|---|---|---|---|---|")
    for kind, text in texts(0).items():
        tokens = COUNT(text)
        pieces = [text[start : start + PIECE] for start in range(0, len(text) - PIECE, PIECE)]
        worst = min(ESTIMATE(piece) / COUNT(piece) for piece in pieces)
        most = max(used(kind, seed) for seed in range(seeds))
        old, new = len(text.encode()) / 3 / tokens, ESTIMATE(text) / tokens
        print(f"| {kind} | {len(text) / tokens:.2f} | {old:.2f} | {new:.2f} | {worst:.2f} | {most:.1%} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
