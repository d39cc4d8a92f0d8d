"""A tool-using agent of LangGraph: python use_langgraph.py chat|responses|anthropic TASK.

With AS_SHIPPED its own limit on steps stays as it is.
"""

import os
import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI


def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


def make_model(dialect: str):
    if dialect == "anthropic":
        return ChatAnthropic(model="claude-sonnet-4-5")
    return ChatOpenAI(model="gpt-4o-mini", use_responses_api=dialect == "responses")


agent = create_agent(make_model(sys.argv[1]), [look])
options = {} if "AS_SHIPPED" in os.environ else {"recursion_limit": 100_000}
result = agent.invoke({"messages": [("user", sys.argv[2])]}, options)
print(result["messages"][-1].text)
