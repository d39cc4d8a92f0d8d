"""How far a predicted curve is from real runs when the model is real: the embedded one, with a temperature of 0.

python bench/eval_curves/local.py [--cases 24] [--points 6]

The curve of one generous evaluation is compared with an evaluation at each limit. The figure is the mean distance of
predicted and real pass rate, in points; behind it, the largest one.
"""

import argparse
import asyncio

from glidepath import Agent, Limits
from glidepath.evals import Case, CurveMaker, Dataset, evaluate
from glidepath.sessions import MemoryStore

WORDS = (
    *(
        "river",
        "candle",
        "garden",
        "window",
        "bridge",
        "summer",
        "mirror",
        "forest",
        "island",
        "letter",
        "market",
        "ocean",
    ),
    *(
        "pencil",
        "rabbit",
        "silver",
        "teacher",
        "umbrella",
        "village",
        "winter",
        "yellow",
        "apple",
        "basket",
        "castle",
        "desert",
    ),
)


def make_cases(count):
    said = "Write one sentence with the word {0}, and then say why a {0} is useful."
    return Dataset([Case(prompt=said.format(word), expected=word, id=word) for word in WORDS[:count]], name="words")


async def compare(count, points):
    agent = Agent(model="local:smollm2", limits=Limits(max_iterations=2, max_tokens=4_000), temperature=0)
    store, dataset = MemoryStore(), make_cases(count)
    report = await evaluate(dataset, agent, store=store, name="generous", concurrency=1)
    maker = CurveMaker(dataset, agent, store, "generous", by="max_tokens")
    curve = (await maker.make(rerun=True, points=points, concurrency=1)).curve
    print(f"{report.passed} of {len(report.covered)} pass with a generous limit")
    print("| max_tokens | predicted | real | landed: predicted | real |\n|---|---|---|---|---|")
    for one in curve.points:
        print(f"| {one.limit} | {one.passed} | {one.real_passed} | {one.landed} | {one.real_landed} |")
    distances = [100 * abs(one.passed - one.real_passed) / one.covered for one in curve.points]
    print(f"distance: {sum(distances) / len(distances):.1f} points on average, at most {max(distances):.1f}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=len(WORDS))
    options.add_argument("--points", type=int, default=6, help="how many limits")
    chosen = options.parse_args()
    asyncio.run(compare(chosen.cases, chosen.points))


if __name__ == "__main__":
    main()
