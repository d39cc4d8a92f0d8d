"""Three models meet the same turn limit: one listens, one has to be stopped, one never answers at all."""

import asyncio
import textwrap

from glidepath import Agent, Limits, tool
from glidepath.events import LandingStarted, NoticeSent, StreamStarted, ToolEnded
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, call, say


@tool
async def count_shelf(shelf: int) -> str:
    """Count the books on a shelf."""
    return f"shelf {shelf} has {30 + shelf} books"


def counted(request: ModelRequest) -> int:
    return sum(message.role == "tool_result" and not message.is_error for message in request.messages)


def listener(request: ModelRequest) -> Turn:
    """Stops as soon as it is told to."""
    if any(getattr(message, "reason", None) == "wind_down" for message in request.messages):
        return say(f"I counted {counted(request)} shelves and stop here.")
    return call("count_shelf", shelf=counted(request) + 1)


def worker(request: ModelRequest) -> Turn:
    """Works for as long as it has tools."""
    if request.tools:
        return call("count_shelf", shelf=counted(request) + 1)
    return say(f"I counted {counted(request)} shelves; the rest is open.")


def mule(request: ModelRequest) -> Turn:
    """Calls tools even when there are none."""
    return call("count_shelf", shelf=counted(request) + 1)


async def main() -> None:
    for script, landing in ((listener, "withdraw"), (worker, "withdraw"), (worker, "steer"), (mule, "withdraw")):
        print(f"\n{script.__name__}: {script.__doc__} (landing={landing!r})")
        agent = Agent(
            model=ScriptedModel().forever(script),
            tools=[count_shelf],
            limits=Limits(max_iterations=4),
            landing=landing,
        )
        async with agent.stream("Count the books.") as stream:
            async for event in stream:
                if isinstance(event, ToolEnded):
                    print("  tool    " + ("refused" if event.result.is_error else event.result.text))
                elif isinstance(event, NoticeSent):
                    print(f"  notice  from {event.source}")
                elif isinstance(event, LandingStarted):
                    print(f"  landing because {event.reason}")
                elif isinstance(event, StreamStarted) and event.landing:
                    print("  landing call, without tools")
        result = stream.result
        print(f"  {result.state.name}/{result.outcome.name}{', partial' if result.partial else ''}:")
        for line in result.text.splitlines():
            print(textwrap.fill(line, 78, initial_indent="    ", subsequent_indent="      "))


if __name__ == "__main__":
    asyncio.run(main())
