import json
from collections.abc import AsyncIterator

from agents import Agent, Runner
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

agent = Agent(name="writer", model="gpt-5-mini")
app = FastAPI()


async def write(question: str) -> AsyncIterator[str]:
    async for event in Runner.run_streamed(agent, question).stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield f"data: {json.dumps(event.data.delta)}\n\n"


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    return StreamingResponse(write(question), media_type="text/event-stream")
