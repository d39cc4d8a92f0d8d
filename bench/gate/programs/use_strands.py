"""A tool-using agent of Strands: python use_strands.py chat|anthropic TASK."""

import os
import sys

from strands import Agent, tool


@tool
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


def make_model(dialect: str):
    if dialect == "anthropic":
        from strands.models.anthropic import AnthropicModel

        return AnthropicModel(model_id="claude-sonnet-4-5", max_tokens=8000)
    from strands.models.openai import OpenAIModel

    given = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
    return OpenAIModel(client_args=given, model_id="gpt-4o-mini")


agent = Agent(model=make_model(sys.argv[1]), tools=[look], callback_handler=None)
print(agent(sys.argv[2]))
