"""Two slow calls in the background: the model continues meanwhile, and collects their results. Runs without a key."""

import asyncio
import time

from glidepath import Agent, Limits, tool
from glidepath.events import BackgroundEnded, BackgroundStarted, Event
from glidepath.testing import ScriptedModel, call, calls

SECONDS = 0.5


@tool(background=True, idempotent=True)
async def build(target: str) -> str:
    """Build a target."""
    await asyncio.sleep(SECONDS)
    return f"{target} is built"


@tool
async def read_notes() -> str:
    """Read the release notes."""
    return "Two fixes, one feature."


def show(event: Event) -> None:
    """Print when calls begin and end in the background."""
    if isinstance(event, BackgroundStarted):
        print(f"  {event.id} {event.tool_name} runs in the background")
    elif isinstance(event, BackgroundEnded):
        print(f"  {event.id} {event.tool_name} has ended")


agent = Agent(
    model=ScriptedModel(
        [
            calls(call("build", target="docs"), call("build", target="wheel")),
            call("read_notes"),
            call("collect", id="bg-1"),
            call("collect", id="bg-2"),
            "Docs and wheel are built. The release has two fixes and one feature.",
        ]
    ),
    tools=[build, read_notes],
    limits=Limits(max_iterations=10),
    event_sink=show,
)
began = time.perf_counter()
result = agent.run_sync("Prepare the release.")
print(result.text)
print("side by side:", time.perf_counter() - began < 2 * SECONDS)
