from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, UsageLimitExceeded, UsageLimits


def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: 4900 cents"


def read_page(page: int) -> str:
    """Read one page of the handbook."""
    return f"Page {page}: rule {page} changed."


clerk = Agent(
    "openai-chat:gpt-5-mini",
    tools=[find_order],
    instructions="You handle refunds.",
    output_type=[str, DeferredToolRequests],
)


@clerk.tool_plain(requires_approval=True)
def refund(number: int, cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents} cents of order {number}"


limits = UsageLimits(request_limit=6)
paused = clerk.run_sync("Refund order 1001.", usage_limits=limits)
for waiting in paused.output.approvals:
    print("approve", waiting.tool_name, waiting.args_as_dict())
decisions = {waiting.tool_call_id: True for waiting in paused.output.approvals}
done = clerk.run_sync(
    message_history=paused.all_messages(),
    deferred_tool_results=DeferredToolResults(approvals=decisions),
    usage_limits=limits,
)
print(done.output)

print("--- four turns are not enough")
reader = Agent("openai-chat:gpt-5-mini", tools=[read_page])
question = "Read the whole handbook. Which rules changed?"
try:
    print(reader.run_sync(question, usage_limits=UsageLimits(request_limit=4)).output)
except UsageLimitExceeded as error:
    print("no answer:", type(error).__name__)
