"""What type checkers must accept, and the types they must find."""

from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

from pydantic import BaseModel

from glidepath import Agent, Limits, RunResult, tool
from glidepath.errors import AskAgain
from glidepath.models import CodeExecution, WebSearch
from glidepath.spi import OutputContext
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
assert_type(plain.run_sync("Hi.").unwrap(), str)
assert_type(typed.run_sync("Bill me.").unwrap(), Invoice)
assert_type(typed.resume_sync("s").unwrap().total, int)
with typed.stream_sync("Bill me.") as events:
    for _ in events:
        pass
assert_type(events.result.unwrap(), Invoice)
plain.replace(limits=Limits(max_tokens="50k", timeout="5m", max_iterations=3, max_cost="$0.50"))
plain.replace(limits=Limits(timeout=timedelta(minutes=5)), tool_timeout="30s")
assert_type(Limits(max_tokens="50k").max_tokens, int | None)


async def go() -> None:
    result = await typed.run("Bill me.")
    assert_type(result.output, Invoice | None)
    async with typed.stream("Bill me.") as stream:
        async for _ in stream:
            pass
    assert_type(stream.result.output, Invoice | None)
    assert_type(stream.result.unwrap(), Invoice)
    assert_type((await typed.resume(result)).unwrap(), Invoice)


words = Agent(model=model, output_type=str, limits=Limits(max_iterations=1))
flag = Agent(model=model, output_type=bool, output_retries=3, limits=Limits(max_iterations=1))
many = Agent(model=model, output_type=list[Invoice], limits=Limits(max_iterations=1))
either = Agent(model=model, output_type=Invoice | str, limits=Limits(max_iterations=1))
first = Agent("openai:gpt-5", limits=Limits(max_iterations=1), handoffs=[plain, "triage"])
assert_type(first, Agent[None])
assert_type(words.run_sync("Hi.").unwrap(), str)
assert_type(flag.run_sync("Hi.").unwrap(), bool)
assert_type(many.run_sync("Hi.").unwrap(), list[Invoice])
assert_type(either.run_sync("Hi.").unwrap(), Invoice | str)


def positive(context: OutputContext[int]) -> None:
    if context.output < context.deps:
        raise AskAgain("too little")


checked = Agent(
    model=model, output_type=int, deps_type=int, output_validators=[positive], limits=Limits(max_iterations=1)
)
assert_type(checked.run_sync("Hi.", deps=3).unwrap(), int)
with many.stream_sync("Hi.") as pieces:
    for piece in pieces.partial():
        assert_type(piece, list[Invoice])


async def watch() -> None:
    async with either.stream("Hi.") as stream:
        async for so_far in stream.partial():
            assert_type(so_far, Invoice | str)


def generic(result: RunResult[Any]) -> str:
    assert_type(result.unwrap(), Any)
    return result.text


kept = Agent(model=ScriptedModel(["Hello."]), store="sessions.db", limits=Limits(max_iterations=3))
assert_type(kept.run_sync(["What is it?", Path("photo.png")]).unwrap(), str)
assert_type(Agent(store=Path("sessions.db"), unbounded=True, model=ScriptedModel(["Hi."])).run_sync(["a"]).text, str)


@tool(background=True)
async def slow(n: int) -> str:
    """Take a while."""
    return str(n)


searching = Agent(
    model=model,
    tools=[WebSearch(max_uses=2, allowed_domains=("example.com",)), CodeExecution(), slow],
    reasoning_tokens=2_000,
    limits=Limits(max_iterations=1),
)
named = Agent(model=model, hosted_tools={"web_search": {"max_uses": 2}}, limits=Limits(max_iterations=1))
