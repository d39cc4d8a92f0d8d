from dataclasses import dataclass

from glidepath import Agent, Limits, ToolContext, tool


@dataclass
class Bank:
    user: str
    balances: dict[str, int]


@tool
def balance(context: ToolContext[Bank]) -> str:
    """The user's balance."""
    return f"{context.deps.balances[context.deps.user]} euros"


agent = Agent("openai:gpt-5-mini", tools=[balance], deps_type=Bank, limits=Limits(max_iterations=3))
print(agent.run_sync("How much do I have?", deps=Bank("eve", {"eve": 3})).text)
