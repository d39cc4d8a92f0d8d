import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini")
app = FastAPI()


async def write(question: str) -> AsyncIterator[str]:
    async with agent.run_stream(question) as stream:
        async for text in stream.stream_text(delta=True):
            yield f"data: {json.dumps(text)}\n\n"


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    return StreamingResponse(write(question), media_type="text/event-stream")
