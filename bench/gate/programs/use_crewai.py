"""A tool-using agent of CrewAI: python use_crewai.py TASK."""

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("look")
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


llm = LLM(model="openai/gpt-4o-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = Agent(role="Looker", goal="Look at places", backstory="You look.", tools=[look], llm=llm, max_iter=100_000)
task = Task(description=sys.argv[1], expected_output="what was seen", agent=agent)
print(Crew(agents=[agent], tasks=[task], tracing=False).kickoff().raw)
