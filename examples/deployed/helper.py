"""The agent that the deployment files serve: replace it with yours. Without a key it runs on a scripted model."""

import os

from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, say


@tool(read_only=True)
async def weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"{city}: 21 degrees, light wind"


def _model():
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-5.2"
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-4-5"
    if os.environ.get("GEMINI_API_KEY"):
        return "google:gemini-2.5-flash"
    return ScriptedModel().forever(
        lambda request: (
            say("It is 21 degrees in Lisbon.")
            if request.messages[-1].role == "tool_result"
            else call("weather", city="Lisbon")
        )
    )


agent = Agent(
    model=_model(),
    agent_name="helper",
    tools=[weather],
    limits=Limits(max_iterations=12, max_tokens=100_000, timeout=300, max_tool_calls=30),
)
