"""Live text with a fault in the middle: what an attempt has shown is taken back before the next one starts."""

import asyncio

from glidepath import Agent, Limits
from glidepath.errors import RateLimitedError, TransientError
from glidepath.events import AttemptDiscarded, RetryScheduled, RunEnded, StreamChunk, StreamStarted
from glidepath.testing import ScriptedModel, fail, say

SCRIPT = [
    fail(TransientError("connection reset"), text="A glide path is the line an aircraft"),
    fail(RateLimitedError("too many requests", retry_after=0.05)),
    say("A glide path is the line an aircraft follows down to the runway."),
]


async def main() -> None:
    agent = Agent(model=ScriptedModel(SCRIPT, delay=0.003), limits=Limits(max_iterations=3, timeout=30))
    shown = ""
    async with agent.stream("What is a glide path?") as stream:
        async for event in stream:
            if isinstance(event, StreamStarted):
                print(f"attempt {event.attempt}: ", end="")
            elif isinstance(event, StreamChunk):
                shown += event.text
                print(event.text, end="\n" if event.finished else "", flush=True)
            elif isinstance(event, AttemptDiscarded):
                shown = ""  # a screen would clear the line here
                print(f"  taken back: {event.reason}")
            elif isinstance(event, RetryScheduled):
                print(f"  next attempt in {event.delay:.1f} s")
            elif isinstance(event, RunEnded):
                print(f"\n{event.result.outcome.name} after {event.result.iterations} turn")
    assert shown == stream.result.text  # noqa: S101 - the point of the example
    print(f"shown: {shown}")


if __name__ == "__main__":
    asyncio.run(main())
