"""What the fake model says, what the tool answers, and what was really done; standard library only.

Every framework plays the same script through its own public streaming interface. The script counts model calls, tool
calls and deltas outside of the framework, so that a framework that skipped work cannot look fast.
"""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field

PROMPT = "Please work through the task."
TOOL, ABOUT = "lookup", "Look something up."
DELTA = "token "
CHECKS = 10  # how many checks or plugins the governance workloads install


@dataclass(eq=False)
class Script:
    """One run: how long it goes on, and the records of it."""

    turns: int
    deltas: int = 20
    label: str = "s"
    folder: str | None = None  # keep the run here, with the persistence of the framework
    extras: str | None = None  # "checks" or "plugins": install ten of them
    hold: float = 0.0  # the tool waits so many seconds
    until_ns: int | None = None  # process CPU time after which the model answers instead of calling the tool

    asked: int = 0
    called: int = 0
    seen: int = 0
    checked: int = 0
    holding: bool = False
    released_at: float | None = None
    released_cpu: float = 0.0  # of the process, when the tool heard that it was cancelled
    stamps: list[int] = field(default_factory=list)

    async def next_call(self) -> str | None:
        """Arguments of this turn's tool call as JSON, or None when it is time to answer."""
        await asyncio.sleep(0)  # one suspension per model call, as any network call has
        now = time.process_time_ns()
        self.stamps.append(now)
        self.asked += 1
        if self.asked > self.turns or (self.until_ns is not None and now > self.until_ns):
            return None
        return f'{{"query": "item {self.asked}", "limit": 7, "tags": ["a", "b", "c"]}}'

    @property
    def call_id(self) -> str:
        return f"call_{self.label}_{self.asked}"

    def pieces(self) -> list[str]:
        return [DELTA] * self.deltas

    async def lookup(self, query: str, limit: int, tags: list[str]) -> str:
        if type(query) is not str or type(limit) is not int or type(tags) is not list:
            raise TypeError("the tool received arguments that were not validated")
        self.called += 1
        if self.hold:
            self.holding = True
            try:
                await asyncio.sleep(self.hold)
            except asyncio.CancelledError:
                self.released_at, self.released_cpu = time.perf_counter(), time.process_time()
                raise
        return f"{query}: found {limit} entries"

    def saw(self, text: str) -> None:
        """One delta came out of the public stream."""
        if text:
            self.seen += 1

    def check(self) -> None:
        """All of the work was done, once."""
        asked = self.asked
        assert self.called == asked - 1, f"{self.called} tool calls for {asked} model calls"
        assert self.seen == asked * self.deltas, f"{self.seen} deltas seen instead of {asked * self.deltas}"
        if self.until_ns is None:
            assert asked == self.turns + 1, f"{asked} model calls instead of {self.turns + 1}"
        if self.extras:
            least = CHECKS * (asked - 1)
            assert self.checked >= least, f"checks were asked {self.checked} times instead of {least}"


CURRENT: ContextVar[Script] = ContextVar("script")


def current() -> Script:
    """The script of the run that is going on in this context: one agent object can serve many runs."""
    return CURRENT.get()
