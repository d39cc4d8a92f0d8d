"""A tool that runs at the provider: what is reserved for it, and what it costs. Runs without a key.

With a key: Agent("anthropic:claude-sonnet-4-5", tools=[WebSearch(max_uses=2)], limits=Limits(max_cost="1"))
"""

from glidepath import Agent, Limits
from glidepath.events import BudgetReserved, Event
from glidepath.models import WebSearch
from glidepath.testing import ScriptedModel


def show(event: Event) -> None:
    """Print what is set aside before a call."""
    if isinstance(event, BudgetReserved):
        print(f"reserved: {event.tokens:,} tokens, ${event.cost}")


agent = Agent(
    model=ScriptedModel(["Python 3.14 has template strings."], max_output_tokens=500),
    tools=[WebSearch(max_uses=2)],
    limits=Limits(max_cost="1"),
    prices={"scripted": ("3", "15", "0.3", "3.75", "10")},  # the last: dollars for a thousand searches
    event_sink=show,
)
result = agent.run_sync("What is new in Python 3.14?")
print(result.text)
print(f"charged: ${result.cost}")
