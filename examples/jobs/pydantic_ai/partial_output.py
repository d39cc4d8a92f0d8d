import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent


class City(BaseModel):
    name: str
    people: int = 0


agent = Agent("openai:gpt-5-mini", output_type=City)


async def main() -> None:
    async with agent.run_stream("Which is the largest city of Portugal?") as stream:
        async for city in stream.stream_output(debounce_by=None):
            print(city)


asyncio.run(main())
