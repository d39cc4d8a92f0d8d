"""A tool-using agent of CrewAI: python use_crewai.py TASK. With AS_SHIPPED its own limit on steps stays as it is."""

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("look")
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


llm = LLM(model="openai/gpt-4o-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
options = {} if "AS_SHIPPED" in os.environ else {"max_iter": 100_000}
agent = Agent(role="Looker", goal="Look at places", backstory="You look.", tools=[look], llm=llm, **options)
task = Task(description=sys.argv[1], expected_output="what was seen", agent=agent)
print(Crew(agents=[agent], tasks=[task], tracing=False).kickoff().raw)
