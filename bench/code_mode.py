"""What code mode saves on a scripted task: twenty look-ups, of which one figure matters.

    PYTHONPATH=src python bench/code_mode.py [look-ups] [characters of each record]

The same task three ways: one call a turn, all calls in one reply, one program. Tokens are what the built-in estimator
counts forevery request and reply; no prompt cache is assumed. The last lines are CPU time in this process for a call,
the interpreter's process apart, and the size of a journal record.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from glidepath import Agent, Limits, tool
from glidepath.code import CodeMode
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, calls, say

LOOK_UPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 1200
LIMITS = Limits(max_iterations=LOOK_UPS + 10, max_tool_calls=LOOK_UPS * 20)
ANSWER = say("Order 1007 is the largest: 1007 EUR.")
PROGRAM = f"""orders = [order(number=n) for n in range(1000, {1000 + LOOK_UPS})]
largest = max(orders, key=lambda one: one["total"])
print(len(orders), "orders; the largest is", largest["number"], "with", largest["total"], "EUR")"""


@tool(read_only=True)
async def order(number: int) -> dict[str, Any]:
    """Look up an order by its number: customer, lines, total in EUR."""
    return {"number": number, "total": number if number == 1007 else 10, "lines": "x" * (SIZE - 50)}


def agent(turns: list[Any], **config: Any) -> Agent:
    return Agent(model=ScriptedModel(turns), tools=[order, CodeMode()], limits=LIMITS, **config)


def row(name: str, turns: list[Any]) -> tuple[int, int]:
    result = asyncio.run(agent(turns).run(f"Which of the orders 1000 to {999 + LOOK_UPS} is the largest?"))
    used = result.usage
    print(f"| {name} | {result.iterations} | {result.tool_calls} | {used.input:,} | {used.output:,} | {used.total:,} |")
    return result.iterations, used.total


def cpu(count: int) -> tuple[float, float]:
    """Milliseconds of CPU in this process for one call: made by the model, and by a program."""
    numbers = range(count)
    direct: list[Any] = [*[call("order", number=n) for n in numbers], say("done")]
    program: list[Any] = [call("run_code", code=f"for n in range({count}):\n    order(number=n)"), say("done")]
    spent = []
    for turns in (direct, program):
        one = Agent(
            model=ScriptedModel(turns),
            tools=[order, CodeMode(max_calls=count)],
            limits=Limits(max_iterations=count + 10),
        )
        began = time.process_time()
        asyncio.run(one.run("go"))
        spent.append((time.process_time() - began) * 1000 / count)
    return spent[0], spent[1]


async def journal(count: int) -> tuple[int, int]:
    """Bytes of the journal for one call: made by the model, and by a program."""
    sizes = []
    for turns in (
        [*[call("order", number=n) for n in range(count)], say("done")],
        [call("run_code", code=f"for n in range({count}):\n    order(number=n)"), say("done")],
    ):
        store = MemoryStore()
        await agent(turns, store=store).run("go", session="s")
        _, commits = await store.load("s")
        sizes.append(sum(len(commit.body) for commit in commits) // count)
    return sizes[0], sizes[1]


def main() -> None:
    print(f"{LOOK_UPS} look-ups of {SIZE} characters each\n")
    print("| way | turns | tool calls | input tokens | output tokens | total |")
    print("|---|---|---|---|---|---|")
    numbers = range(1000, 1000 + LOOK_UPS)
    turns, slow = row("one call a turn", [*[call("order", number=n) for n in numbers], ANSWER])
    _, batch = row("all calls in one reply", [calls(*[call("order", number=n) for n in numbers]), ANSWER])
    fewer, quick = row("one program", [call("run_code", code=PROGRAM), ANSWER])
    print(f"\nA program saves {turns - fewer} turns and {1 - quick / slow:.1%} of the tokens of one call a turn,")
    print(f"and {1 - quick / batch:.1%} of the tokens of one reply with all calls.")
    mine, inner = cpu(150)
    print(f"\nCPU in this process for one call: {mine:.2f} ms by the model's turn, {inner:.2f} ms in a program.")
    plain, kept = asyncio.run(journal(LOOK_UPS))
    print(f"Journal for one call: {plain:,} bytes by the model's turn, {kept:,} bytes in a program.")


if __name__ == "__main__":
    main()
