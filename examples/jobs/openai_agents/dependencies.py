from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool


@dataclass
class Bank:
    user: str
    balances: dict[str, int]


@function_tool
def balance(wrapper: RunContextWrapper[Bank]) -> str:
    """The user's balance."""
    return f"{wrapper.context.balances[wrapper.context.user]} euros"


agent = Agent[Bank](name="teller", model="gpt-5-mini", tools=[balance])
print(Runner.run_sync(agent, "How much do I have?", context=Bank("eve", {"eve": 3})).final_output)
