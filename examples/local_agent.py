"""A real model on this machine, with a tool and a budget. No key, no network once the model file is here.

Run it: .venv/bin/python examples/local_agent.py
"""

import asyncio
import sys

from glidepath import Agent, Limits, tool
from glidepath.events import StreamChunk, ToolStarted
from glidepath.models import LocalModel, pull


@tool
async def weather(city: str) -> str:
    """Current weather of a city."""
    return {"Paris": "18 degrees and sunny"}.get(city, "12 degrees and cloudy")


def bar(done: int, total: int) -> None:
    """One line that grows while the model file is fetched: about 90 MB, once."""
    if sys.stderr.isatty():
        print(f"\rfetching the model: {100 * done // total} %", end="" if done < total else "\n", file=sys.stderr)


async def main():
    pull("smollm2", progress=bar)
    async with LocalModel() as model:
        agent = Agent(
            model=model,
            tools=[weather],
            temperature=0.0,
            limits=Limits(max_iterations=4, max_tokens=4000, timeout=120),
        )
        async with agent.stream("What is the weather in Paris?") as stream:
            async for event in stream:
                match event:
                    case ToolStarted(tool_name=name, arguments=arguments):
                        print(f"[calls {name} with {arguments}]")
                    case StreamChunk(text=text, finished=False):
                        print(text, end="", flush=True)
        result = stream.result
    print()
    print(f"{result.outcome.name}: {result.iterations} turns, {result.usage.total} tokens, ${result.cost}")


asyncio.run(main())
