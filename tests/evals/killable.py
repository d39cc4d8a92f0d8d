"""An evaluation in its own process, to be killed: killable.py store log [commit side]."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.evals import Case, Dataset, evaluate
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, say

CASES = 6
REPEAT = 2


class Mortal(SqliteStore):
    """A store whose process dies just before or just after it writes a commit."""

    def __init__(self, path, commit=None, side="after"):
        super().__init__(path)
        self.commit, self.side, self.written = commit, side, 0

    def append(self, lease, commit, **more):
        self.written += 1
        if self.written == self.commit and self.side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        later = super().append(lease, commit, **more)
        if self.written == self.commit:
            os.kill(os.getpid(), signal.SIGKILL)
        return later


def make_agent(log):
    def note(what):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    @tool(idempotent=True)
    async def look(case: str) -> str:
        """Look something up."""
        return f"the answer is {case}"

    def agent(case):
        async def answer(request):
            results = [one.text for one in request.messages if one.role == "tool_result"]
            note(f"{case.id} {len(results)}")
            await asyncio.sleep(0.001)
            return say(results[-1]) if results else call("look", case=case.id)

        return Agent(model=ScriptedModel().forever(answer), tools=[look], limits=Limits(max_iterations=6))

    return agent


async def main(path, log, commit=None, side="after"):
    store = Mortal(path, None if commit in (None, "none") else int(commit), side)
    dataset = Dataset([Case(prompt=f"q{n}", expected=f"c{n}", id=f"c{n}") for n in range(CASES)])
    report = await evaluate(
        dataset, make_agent(log), store=store, name="e", repeat=REPEAT, concurrency=3, budget=Limits(max_tokens=50_000)
    )
    await store.close()
    print(report.passed, report.planned, report.complete, report.tokens)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
