"""A tool-calling agent of smolagents, which ends only by its final_answer tool: python use_smolagents.py TASK."""

import os
import sys

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool


@tool
def look(place: str) -> str:
    """Look at a place and report what is there.

    Args:
        place: where to look
    """
    return f"nothing at {place}"


model = OpenAIServerModel("gpt-4o-mini", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent(tools=[look], model=model, max_steps=100_000, verbosity_level=LogLevel.OFF)
print(agent.run(sys.argv[1]))
