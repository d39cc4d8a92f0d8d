"""What type checkers must accept, and the types they must find."""

from typing import Any, assert_type

from pydantic import BaseModel

from glidepath import Agent, Limits, RunResult, tool
from glidepath.testing import ScriptedModel


class Invoice(BaseModel):
    total: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shout(text: str) -> str:
    """Shout."""
    return text.upper()


model = ScriptedModel(["hello"])
plain = Agent(model=model, tools=[add, shout], limits=Limits(max_iterations=3), temperature=0.2)
typed = Agent(model="openai:gpt-5", output_type=Invoice, limits=Limits(max_cost="1"))

assert_type(plain, Agent[None])
assert_type(typed, Agent[Invoice])
assert_type(typed.run_sync("Bill me."), RunResult[Invoice])
assert_type(typed.run_sync("Bill me.", session="s", user="u").output, Invoice | None)
assert_type(typed.replace(limits=Limits(max_iterations=1)), Agent[Invoice])
assert_type(plain.run_sync("Hi.").ok, bool)


async def go() -> None:
    result = await typed.run("Bill me.")
    assert_type(result.output, Invoice | None)
    async with typed.stream("Bill me.") as stream:
        async for _ in stream:
            pass
    assert_type(stream.result.output, Invoice | None)


def generic(result: RunResult[Any]) -> str:
    return result.text
