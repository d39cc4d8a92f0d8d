"""An agent behind FastAPI: its events as server-sent events, and a client that goes away stops the run.

`agent.stream` is a context manager, so leaving it lands the run: nobody pays for an answer that nobody reads. All
requests of a customer share one `Budget`. Serve it with `uvicorn fastapi_sse:app`; run as a program it asks itself.
"""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from glidepath import Agent, Budget, Limits, tool
from glidepath.events import AttemptDiscarded, Event, RunEnded, StreamChunk, ToolEnded, ToolStarted
from glidepath.testing import ScriptedModel, Turn, call, say

app = FastAPI()
budgets: dict[str, Budget] = {}


@tool(read_only=True)
async def opening_hours(day: str) -> str:
    """When the shop is open."""
    return f"{day}: 9 to 18"


def script(request) -> Turn:
    asked = any(message.role == "tool_result" for message in request.messages)
    return say("We are open from 9 to 18 on Monday.") if asked else call("opening_hours", day="Monday")


agent = Agent(
    model=ScriptedModel().forever(script),
    tools=[opening_hours],
    limits=Limits(max_iterations=8, timeout=60),  # of one question
)


def shown(event: Event) -> tuple[str, dict] | None:
    """What a browser gets to see of an event. Not all of it: arguments and tracebacks are yours."""
    match event:
        case StreamChunk(text=text) if text:
            return "text", {"text": text}
        case AttemptDiscarded():
            return "clear", {}  # what was shown of this attempt is taken back
        case ToolStarted(tool_name=name):
            return "tool", {"name": name, "state": "started"}
        case ToolEnded(tool_name=name):
            return "tool", {"name": name, "state": "ended"}
        case RunEnded(result=result):
            return "end", {"outcome": result.outcome.name, "text": result.text, "partial": result.partial}
    return None


async def answer(question: str, customer: str) -> AsyncIterator[str]:
    budget = budgets.setdefault(customer, Budget(Limits(max_tokens=20_000)))  # of all questions of a customer
    async with agent.stream(question, parent=budget) as stream:
        async for event in stream:
            if (pair := shown(event)) is not None:
                yield f"event: {pair[0]}\ndata: {json.dumps(pair[1])}\n\n"


@app.get("/ask")
async def ask(question: str, customer: str) -> StreamingResponse:  # who asks: from your log-in, not from the address
    return StreamingResponse(answer(question, customer), media_type="text/event-stream")


async def main() -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        question = {"question": "When are you open on Monday?", "customer": "eve"}
        async with client.stream("GET", "/ask", params=question) as response:
            print(response.status_code, response.headers["content-type"])
            async for line in response.aiter_lines():
                if line:
                    print(line[:80])


if __name__ == "__main__":
    asyncio.run(main())
