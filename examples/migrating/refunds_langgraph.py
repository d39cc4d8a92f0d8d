from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.types import Command


@tool
def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: 4900 cents"


@tool
def refund(number: int, cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents} cents of order {number}"


@tool
def read_page(page: int) -> str:
    """Read one page of the handbook."""
    return f"Page {page}: rule {page} changed."


clerk = create_agent(
    "openai:gpt-5-mini",
    [find_order, refund],
    system_prompt="You handle refunds.",
    middleware=[HumanInTheLoopMiddleware({"refund": True})],
    checkpointer=InMemorySaver(),
)
config = {"configurable": {"thread_id": "1"}, "recursion_limit": 20}
paused = clerk.invoke({"messages": [("user", "Refund order 1001.")]}, config)
requests = paused["__interrupt__"][0].value["action_requests"]
for asked in requests:
    print("approve", asked["name"], asked["args"])
decisions = {"decisions": [{"type": "approve"} for _ in requests]}
print(clerk.invoke(Command(resume=decisions), config)["messages"][-1].content)

print("--- four turns are not enough")
reader = create_agent("openai:gpt-5-mini", [read_page])
question = {"messages": [("user", "Read the whole handbook. Which rules changed?")]}
try:
    # a turn is two steps of the graph: the model, and its tools
    print(reader.invoke(question, {"recursion_limit": 8})["messages"][-1].content)
except GraphRecursionError as error:
    print("no answer:", type(error).__name__)
