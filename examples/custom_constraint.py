"""Your own limit: how fast a run may spend. It warns, with a word to the model, and lands at twice the limit.

It runs in virtual time: the pages take seconds to read, the example does not.
"""

import asyncio
import logging
import textwrap
from decimal import Decimal

from glidepath import Agent, Limits, ResourceAction, ResourceConstraint, ResourceContext, ResourceValidation, tool
from glidepath.events import ConstraintViolated, NoticeSent
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, VirtualClock, call, say

logging.getLogger("glidepath").addHandler(logging.NullHandler())  # warnings are printed below, as events
TOO_FAST = 2.0
INDENT = {"initial_indent": "  ", "subsequent_indent": "  "}


class CostVelocityLimit(ResourceConstraint):
    """A limit on dollars per minute, averaged over the run."""

    def __init__(self, dollars_per_minute: str, *, settle_in: float) -> None:
        self.limit = Decimal(dollars_per_minute)
        self.settle_in = settle_in  # seconds in which an average means nothing yet

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        if context.elapsed < self.settle_in:
            return ResourceValidation.ok()
        speed = context.cost / Decimal(context.elapsed) * 60
        ratio = speed / self.limit
        if ratio <= 1:
            return ResourceValidation.ok()
        return ResourceValidation.violation(
            f"${speed:.4f} a minute, the limit is ${self.limit}",
            notice="You are spending too quickly: take smaller steps.",
            ratio=float(ratio),
        )

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        if validation.metrics["ratio"] < TOO_FAST:
            return ResourceAction.WARN_CONTINUE
        return ResourceAction.GRACEFUL_EXIT


@tool
async def read(page: int) -> str:
    """Read a page."""
    await asyncio.sleep(2)
    return f"page {page}: " + "words " * (20 * page)  # every page is longer than the one before


def reader(request: ModelRequest) -> Turn:
    pages = sum(message.role == "tool_result" for message in request.messages)
    return call("read", page=pages + 1) if request.tools else say(f"I read {pages} pages before I was stopped.")


async def main() -> None:
    agent = Agent(
        model=ScriptedModel().forever(reader),
        tools=[read],
        limits=Limits(max_iterations=40),
        constraints=[CostVelocityLimit("0.02", settle_in=3)],
        prices={"scripted": ("3", "15")},
    )
    last = ""
    async with agent.stream("Read the book.") as stream:
        async for event in stream:
            if isinstance(event, ConstraintViolated) and event.action.name != last:
                last = event.action.name
                print(f"{event.constraint}: {last}\n  {event.reason}")
            elif isinstance(event, NoticeSent):
                print(f"told the model, about {event.reason}:\n{textwrap.fill(event.text, 78, **INDENT)}")
    result = stream.result
    print(f"\n{result.state.name}/{result.outcome.name} after {result.iterations} turns, ${result.cost}")
    print(result.text)


if __name__ == "__main__":
    VirtualClock().run(main())
