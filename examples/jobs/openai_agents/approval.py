from pathlib import Path

from agents import Agent, Runner, RunState, function_tool
from fastapi import FastAPI


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


agent = Agent(name="desk", model="gpt-5-mini", tools=[refund])
app = FastAPI()


@app.post("/ask/{session}")
async def ask(session: str, text: str) -> dict[str, str]:
    result = await Runner.run(agent, text)
    # by hand: a store
    Path(f"{session}.json").write_text(result.to_state().to_string())
    return {item.call_id: f"{item.name} {item.arguments}" for item in result.interruptions}


@app.post("/decide/{session}/{call}")
async def decide(session: str, call: str, yes: bool) -> str:
    state = await RunState.from_string(agent, Path(f"{session}.json").read_text())
    item = next(item for item in state.get_interruptions() if item.call_id == call)
    if yes:
        state.approve(item)
    else:
        state.reject(item)
    result = await Runner.run(agent, state)
    Path(f"{session}.json").write_text(result.to_state().to_string())
    return result.final_output
