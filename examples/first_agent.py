"""A first agent, end to end: a tool, a limit on every dimension, live events, and how the run ended.

The model is scripted, so no key and no network are needed. It reads page after page for as long as it has tools, and
answers when the runtime takes them away. Swap it for a real `Model` and nothing else changes.
"""

import asyncio
import textwrap

from glidepath import Agent, Limits, RunResult, tool
from glidepath.events import BudgetSettled, Event, NoticeSent, StreamChunk, ToolEnded, ToolStarted, TurnStarted
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, call, say

LIMITS = Limits(max_iterations=5, max_tokens=20_000, max_cost="0.05", timeout=30, max_tool_calls=10)
TASK = "Which leave rules changed this year?"
PAGES = 9


@tool(read_only=True)
async def read_page(page: int) -> str:
    """Read one page of the handbook."""
    await asyncio.sleep(0.02)
    return f"Page {page} of {PAGES}. Rule {page}: {20 + page} days of leave, changed this year."


def eager_reader(request: ModelRequest) -> Turn:
    """What the scripted model says: it never stops by itself."""
    read = sum(message.role == "tool_result" for message in request.messages)
    if request.tools:
        return call("read_page", page=read + 1).with_text(f"I read page {read + 1}. ")
    return say(f"Rules 1 to {read} changed. I read {read} of {PAGES} pages; pages {read + 1} to {PAGES} are open.")


class Status:
    """Prints a run as it happens, one line per event that a person cares about."""

    def __init__(self) -> None:
        self.tokens = 0
        self.cost = 0
        self.speaking = False

    def show(self, event: Event) -> None:
        if isinstance(event, StreamChunk):
            self.speak(event)
        elif isinstance(event, TurnStarted):
            used = f"{self.tokens:>6,} of {LIMITS.max_tokens:,} tokens, ${self.cost:.4f} of ${LIMITS.max_cost}"
            print(f"\nturn {event.iteration} of {LIMITS.max_iterations}   {used}")
        elif isinstance(event, BudgetSettled):
            self.tokens += event.usage.total
            self.cost += event.cost or 0
        elif isinstance(event, ToolStarted):
            arguments = ", ".join(f"{name}={value!r}" for name, value in event.arguments.items())
            self.line("tool", f"{event.tool_name}({arguments})")
        elif isinstance(event, ToolEnded):
            self.line("failed" if event.result.is_error else "result", event.result.text)
        elif isinstance(event, NoticeSent):
            self.line("notice", event.text)

    def speak(self, chunk: StreamChunk) -> None:
        if chunk.finished:
            print("\n" if self.speaking else "", end="")
        else:
            print(chunk.text if self.speaking else f"  model   {chunk.text}", end="", flush=True)
        self.speaking = not chunk.finished

    def line(self, label: str, text: str) -> None:
        print(textwrap.fill(text, 78, initial_indent=f"  {label:<8}", subsequent_indent=" " * 10))


def report(result: RunResult) -> None:
    rows = {
        "outcome": f"{result.outcome.name} (state {result.state.name})",
        "because": f"{result.cause.source}: {result.cause.reason}" if result.cause else "the model was done",
        "turns": f"{result.iterations}, with {result.tool_calls} tool calls",
        "spent": f"{result.usage.total} tokens, ${result.cost}, {result.elapsed:.2f} s",
        "text": result.text,
    }
    print()
    for label, text in rows.items():
        print(textwrap.fill(text, 78, initial_indent=f"{label:<10}", subsequent_indent=" " * 10))


async def main() -> None:
    model = ScriptedModel(delay=0.01).forever(eager_reader)
    agent = Agent(model=model, tools=[read_page], limits=LIMITS, prices={"scripted": ("3", "15")})
    print(f"task      {TASK}")
    status = Status()
    async with agent.stream(TASK) as stream:
        async for event in stream:
            status.show(event)
    report(stream.result)


if __name__ == "__main__":
    asyncio.run(main())
