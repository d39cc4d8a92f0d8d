from pathlib import Path

from fastapi import FastAPI
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter, ToolDenied

agent = Agent("openai:gpt-5-mini", output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


app = FastAPI()


@app.post("/ask/{session}")
async def ask(session: str, text: str) -> dict[str, str]:
    result = await agent.run(text)
    # by hand: a store
    Path(f"{session}.json").write_bytes(result.all_messages_json())
    waiting = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
    return {call.tool_call_id: f"{call.tool_name} {call.args_as_dict()}" for call in waiting}


@app.post("/decide/{session}/{call}")
async def decide(session: str, call: str, yes: bool) -> str:
    history = ModelMessagesTypeAdapter.validate_json(Path(f"{session}.json").read_bytes())
    decisions = DeferredToolResults(approvals={call: True if yes else ToolDenied("no")})
    result = await agent.run(message_history=history, deferred_tool_results=decisions)
    Path(f"{session}.json").write_bytes(result.all_messages_json())
    return result.output
