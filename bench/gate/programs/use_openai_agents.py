"""A tool-using agent of the OpenAI Agents SDK: python use_openai_agents.py chat|responses TASK.

With AS_SHIPPED its own limit on steps stays as it is.
"""

import asyncio
import os
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@function_tool
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


async def main():
    set_tracing_disabled(True)
    set_default_openai_api("responses" if sys.argv[1] == "responses" else "chat_completions")
    agent = Agent(name="Looker", instructions="You look at places.", tools=[look], model="gpt-4o-mini")
    options = {} if "AS_SHIPPED" in os.environ else {"max_turns": 100_000}
    result = await Runner.run(agent, sys.argv[2], **options)
    print(result.final_output)


asyncio.run(main())
