import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from glidepath import Agent, Limits

agent = Agent("openai:gpt-5-mini", limits=Limits(max_iterations=8, timeout=60))
app = FastAPI()


async def write(question: str) -> AsyncIterator[str]:
    async with agent.stream(question) as stream:
        async for text in stream.text():
            yield f"data: {json.dumps(text)}\n\n"


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    return StreamingResponse(write(question), media_type="text/event-stream")
