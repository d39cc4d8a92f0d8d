from glidepath import Agent, Limits, approve, tool


@tool
def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: 4900 cents"


@tool(requires_approval=True)
def refund(number: int, cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents} cents of order {number}"


@tool
def read_page(page: int) -> str:
    """Read one page of the handbook."""
    return f"Page {page}: rule {page} changed."


clerk = Agent(
    model="openai-chat:gpt-5-mini",
    tools=[find_order, refund],
    system_prompt="You handle refunds.",
    limits=Limits(max_iterations=6, max_cost="0.10", timeout=60),
)
paused = clerk.run_sync("Refund order 1001.")
for waiting in paused.pending:
    print("approve", waiting.call.name, dict(waiting.call.arguments))
decisions = {waiting.call.id: approve() for waiting in paused.pending}
print(clerk.resume_sync(paused, decisions=decisions).text)

print("--- four turns are not enough")
reader = Agent(
    model="openai-chat:gpt-5-mini",
    tools=[read_page],
    limits=Limits(max_iterations=4, max_cost="0.10", timeout=60),
)
result = reader.run_sync("Read the whole handbook. Which rules changed?")
print(result.outcome.name, result.text)
