from dataclasses import dataclass

from pydantic_ai import Agent, RunContext


@dataclass
class Bank:
    user: str
    balances: dict[str, int]


agent = Agent("openai:gpt-5-mini", deps_type=Bank)


@agent.tool
def balance(context: RunContext[Bank]) -> str:
    """The user's balance."""
    return f"{context.deps.balances[context.deps.user]} euros"


print(agent.run_sync("How much do I have?", deps=Bank("eve", {"eve": 3})).output)
