from fastapi import FastAPI

from glidepath import Agent, Limits, approve, deny, tool


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


agent = Agent("openai:gpt-5-mini", tools=[refund], store="approval.db", limits=Limits(max_iterations=5))
app = FastAPI()


@app.post("/ask/{session}")
async def ask(session: str, text: str) -> dict[str, str]:
    result = await agent.run(text, session=session)
    return {pending.call.id: f"{pending.call.name} {pending.call.arguments}" for pending in result.pending}


@app.post("/decide/{session}/{call}")
async def decide(session: str, call: str, yes: bool) -> str:
    result = await agent.resume(session, decisions={call: approve() if yes else deny("no")})
    return result.text
