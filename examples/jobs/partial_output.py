import asyncio

from pydantic import BaseModel

from glidepath import Agent, Limits


class City(BaseModel):
    name: str
    people: int = 0


agent = Agent("openai:gpt-5-mini", output_type=City, limits=Limits(max_iterations=3))


async def main() -> None:
    async with agent.stream("Which is the largest city of Portugal?") as stream:
        async for city in stream.partial():
            print(city)


asyncio.run(main())
