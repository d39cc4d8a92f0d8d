"""A tool-using agent of Pydantic AI: python use_pydantic_ai.py chat|responses|anthropic|typed|gemini TASK.

With AS_SHIPPED its own limit on steps stays as it is.
"""

import os
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, UsageLimits


class Report(BaseModel):
    """What was seen."""

    summary: str


def make_model(dialect: str):
    if dialect == "anthropic":
        return "anthropic:claude-sonnet-4-5"
    if dialect == "gemini":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        url = os.environ["GOOGLE_GEMINI_BASE_URL"]
        return GoogleModel(
            "gemini-2.5-pro", provider=GoogleProvider(api_key=os.environ["GEMINI_API_KEY"], base_url=url)
        )
    return "openai-responses:gpt-4o-mini" if dialect == "responses" else "openai-chat:gpt-4o-mini"


kind = sys.argv[1]
agent = Agent(make_model(kind), output_type=Report if kind == "typed" else str)


@agent.tool_plain
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


options = {} if "AS_SHIPPED" in os.environ else {"usage_limits": UsageLimits(request_limit=None)}
result = agent.run_sync(sys.argv[2], **options)
print(result.output.summary if kind == "typed" else result.output)
