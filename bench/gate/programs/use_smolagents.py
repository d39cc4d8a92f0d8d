"""A tool-calling agent of smolagents, which ends only by its final_answer tool: python use_smolagents.py TASK.

With AS_SHIPPED its own limit on steps stays as it is.
"""

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
options = {} if "AS_SHIPPED" in os.environ else {"max_steps": 100_000}
agent = ToolCallingAgent(tools=[look], model=model, verbosity_level=LogLevel.OFF, **options)
print(agent.run(sys.argv[1]))
