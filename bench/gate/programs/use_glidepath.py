"""A tool-using agent of glidepath itself: python use_glidepath.py TOKENS CALLS SECONDS TASK. The limits are its own."""

import sys

from glidepath import Agent, Limits, tool
from glidepath.outcome import TextOrigin


@tool
def look(place: str) -> str:
    """Look at a place and report what is there."""
    return f"nothing at {place}"


tokens, calls, seconds, task = sys.argv[1:]
limits = Limits(max_tokens=int(tokens), max_iterations=int(calls), timeout=float(seconds))
result = Agent(model="openai-chat:gpt-4o-mini", tools=[look], limits=limits).run_sync(task)
print("[runtime] " * (result.text_origin is TextOrigin.RUNTIME) + result.text)
if result.cause:
    print(f"{result.outcome.name}: {result.cause.reason}", file=sys.stderr)
sys.exit(0 if result.text else 1)
