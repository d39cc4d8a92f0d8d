"""Makes a store to look at with the flight deck: 1,000 runs, one of 5,000 turns, a tree three deep, two evaluations.

    python bench/deck_store.py FOLDER [--runs 1000] [--turns 5000]

It runs scripted agents through a server in this process, so that everything is as real runs leave it. Then:
glidepath deck --store FOLDER/deck.db
"""

import argparse
import asyncio
import random
import time
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.errors import RejectedError
from glidepath.evals import Case, CurveMaker, Dataset, evaluate
from glidepath.serve import app
from glidepath.serve.locks import OPERATOR
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, calls, fail, say

ARABIC = "قارن بين ثلاثة موردين واذكر الأسعار."
AT_ONCE = 20
TOPICS = ("vendors", "delivery", "warranty", "reviews", "prices", "stock", "returns", "Harbor Supplies")


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    return f"12 results for {query!r}: Northwind, Contoso, Harbor Supplies and nine others."


@tool(requires_approval=True)
async def pay(amount: int, to: str) -> str:
    """Pay an invoice."""
    return f"paid {amount} to {to}"


@tool
async def book(city: str) -> str:
    """Book a room."""
    raise ValueError(f"no room in {city}")


def task_of(request):
    return next(message.text for message in request.messages if message.role == "user")


def turns_of(request):
    return sum(message.role == "assistant" for message in request.messages)


def lead(_, done):
    return calls(call("ask", task="mid: one"), call("ask", task="mid: two")) if not done else say("Both are back.")


def work(task, done):
    query = TOPICS[len(task) % len(TOPICS)]
    return call("search", query=query) if done < 1 + len(task) % 4 else answer(task, done)


def answer(task, _):
    return say(f"Done with {task}. **Northwind** is the best trade between price and time.")


TABLE = f"{ARABIC}\n\n- Northwind\n- {ARABIC}\n\n| المورد | السعر |\n|---|---|\n| Northwind | 412 |"
SCRIPTS = {
    "fail": lambda *_: fail(RejectedError("the model of this name was withdrawn")),
    "pay": lambda _, done: say("Paid.") if done else call("pay", amount=1240, to="Harbor Supplies"),
    "loop": lambda _, done: call("search", query=f"page {done}"),
    "marathon": lambda _, done: call("search", query=f"page {done}"),
    "book": lambda _, done: call("book", city="Oslo") if done < 2 else say("No room was free."),
    "lead": lead,
    "mid": lambda _, done: say("The one below is back.") if done else call("dig", task="work: below"),
    "arabic": lambda *_: say(TABLE),
    "work": work,
}


def script(request):
    """What a run does is told by the first word of its task."""
    task, done = task_of(request), turns_of(request)
    if not request.tools and done:
        return say(f"Landing with what there is after {done} turns.")
    return SCRIPTS.get(task.split(":")[0], answer)(task, done)


def make_agent(**limits):
    model = ScriptedModel(name="scripted", price=("3", "15"), record=False).forever(script)
    scout = Agent(model=model, tools=[search], limits=Limits(max_iterations=6), agent_name="scout")
    middle = Agent(
        model=model, tools=[scout.as_tool("dig", "Dig.")], limits=Limits(max_iterations=6), agent_name="middle"
    )
    bounds = {"max_iterations": 12, "max_tokens": 200_000, "max_cost": "2", **limits}
    tools = [search, pay, book, middle.as_tool("ask", "Ask.")]
    return Agent(model=model, tools=tools, system_prompt="You buy things.", limits=Limits(**bounds), agent_name="buyer")


async def fly(hub, task, agent="buyer", session=None):
    feed = await hub.start(agent, task, who=OPERATOR, session=session)
    while feed.live:
        await feed.wait_for_news()
    return feed.run_id


async def make_evaluation(store):
    """Forty cases that need from one to eight searches, a third of them too hard, and the curve of their budgets."""

    def solve(request):
        need, done = int(task_of(request).split()[0]), turns_of(request)
        if not request.tools and done:
            return say("not finished")
        return call("search", query=f"step {done}") if done < need else say(f"answer {need}")

    cases = [
        Case(
            id=f"case-{n:02}",
            prompt=f"{1 + n % 8} steps to go, case {n}",
            expected=f"answer {1 + n % 8 + (n % 3 == 0)}",
        )
        for n in range(40)
    ]
    model = ScriptedModel(name="solver", price=("3", "15"), record=False).forever(solve)
    agent = Agent(model=model, tools=[search], limits=Limits(max_iterations=20, max_cost="1"), agent_name="solver")
    dataset = Dataset(cases, name="shopping")
    await evaluate(dataset, agent, store=store, name="shopping-1", repeat=2)
    await CurveMaker(dataset, agent, store, "shopping-1", by="max_iterations").make(rerun=True)
    await evaluate(dataset, agent, store=store, name="shopping-2")


async def make_store(folder, runs, turns):
    """Fill FOLDER/deck.db; the ids of what a test looks for."""
    folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(folder / "deck.db")
    long = {"max_iterations": turns + 1000, "max_tokens": 10**10, "max_cost": "100000"}
    agents = {"buyer": make_agent(), "runner": make_agent(**long)}
    application = app(agents, store=store, token="a-token-for-making-a-store")  # noqa: S106
    hub, chosen = application.state.hub, random.Random(7)  # noqa: S311
    found = {}
    words = ["work"] * 14 + ["fail", "fail", "loop", "book", "pay", "work"]
    found["marathon"] = await fly_marathon(hub, turns)
    await make_evaluation(store)
    orders = [(chosen.choice(words) if number > 12 else words[-1 - number % 6], number) for number in range(runs)]
    for first in range(0, runs, AT_ONCE):
        some = orders[first : first + AT_ONCE]
        ids = await asyncio.gather(*[fly(hub, f"{word}: order {n} of {chosen.choice(TOPICS)}") for word, n in some])
        found |= {word: run_id for (word, _), run_id in zip(some, ids, strict=True)}
    found["lead"] = await fly(hub, "lead: a tree three deep")
    found["arabic"] = await fly(hub, f"arabic: {ARABIC}")
    await hub.close()
    return found


async def fly_marathon(hub, turns):
    """A run that is stopped after so many turns."""
    feed = await hub.start("runner", "marathon: reads on and on", who=OPERATOR, session="marathon")
    while feed.card.turn < turns and feed.live:
        await feed.wait_for_news()
    hub.flights[feed.run_id].token.cancel("long enough")
    while feed.live:
        await feed.wait_for_news()
    return feed.run_id


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5000)
    given = parser.parse_args()
    began = time.monotonic()
    for name, run_id in asyncio.run(make_store(given.folder, given.runs, given.turns)).items():
        print(f"{name} {run_id}")
    print(f"made in {time.monotonic() - began:.1f} s")
