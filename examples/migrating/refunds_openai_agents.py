import json

from agents import Agent, MaxTurnsExceeded, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool
def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: 4900 cents"


@function_tool(needs_approval=True)
def refund(number: int, cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents} cents of order {number}"


@function_tool
def read_page(page: int) -> str:
    """Read one page of the handbook."""
    return f"Page {page}: rule {page} changed."


clerk = Agent(
    name="clerk",
    model="gpt-5-mini",
    instructions="You handle refunds.",
    tools=[find_order, refund],
)
paused = Runner.run_sync(clerk, "Refund order 1001.", max_turns=6)
state = paused.to_state()
for item in paused.interruptions:
    print("approve", item.name, json.loads(item.arguments))
    state.approve(item)
print(Runner.run_sync(clerk, state).final_output)

print("--- four turns are not enough")
reader = Agent(name="reader", model="gpt-5-mini", tools=[read_page])
question = "Read the whole handbook. Which rules changed?"
try:
    print(Runner.run_sync(reader, question, max_turns=4).final_output)
except MaxTurnsExceeded as error:
    print("no answer:", type(error).__name__)
