import asyncio
from contextlib import suppress

from agents import Agent, Runner
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json


class City(BaseModel):
    name: str
    people: int = 0


agent = Agent(name="geographer", model="gpt-5-mini", output_type=City)


async def main() -> None:
    # by hand: the answer as far as it is written
    written = ""
    async for event in Runner.run_streamed(agent, "Which is the largest city of Portugal?").stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            written += event.data.delta
            with suppress(ValidationError):
                print(City.model_validate(from_json(written, allow_partial="trailing-strings")))


asyncio.run(main())
