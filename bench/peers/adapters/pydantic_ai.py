"""Pydantic AI on its FunctionModel, streamed with run_stream_events. Instrumentation is off unless asked for."""

from dataclasses import dataclass

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import UsageLimits
from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

NAME = "Pydantic AI"
PACKAGES = ("pydantic-ai-slim",)
STATEMENT = "from pydantic_ai import Agent"
STORE = None  # durable runs need Temporal, DBOS, Prefect or the caller's own code
EXTRAS = {
    "checks": "ten capabilities with before_model_request",
    "plugins": "ten capabilities with before and after hooks of model requests and tool executions",
}


async def fake_stream(messages, info):
    script = current()
    arguments = await script.next_call()
    for text in script.pieces():
        yield text
    if arguments is not None:
        yield {1: DeltaToolCall(name=TOOL, json_args=arguments, tool_call_id=script.call_id)}


async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


lookup.__doc__ = ABOUT


@dataclass
class Quiet(AbstractCapability):
    async def before_model_request(self, ctx, request_context):
        current().checked += 1
        return request_context


@dataclass
class Idle(Quiet):
    async def after_model_request(self, ctx, *, request_context, response):
        current().checked += 1
        return response

    async def before_tool_execute(self, ctx, *, call, tool_def, args):
        current().checked += 1
        return args

    async def after_tool_execute(self, ctx, *, call, tool_def, args, result):
        current().checked += 1
        return result


def make_agent(capabilities=()) -> Agent:
    agent = Agent(FunctionModel(stream_function=fake_stream), capabilities=list(capabilities))
    agent.tool_plain(name=TOOL)(lookup)
    return agent


AGENTS = {
    None: make_agent(),
    "checks": make_agent(Quiet() for _ in range(CHECKS)),
    "plugins": make_agent(Idle() for _ in range(CHECKS)),
}


async def play(script: Script) -> None:
    limits = UsageLimits(request_limit=None)
    async with AGENTS[script.extras].run_stream_events(PROMPT, usage_limits=limits) as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                script.saw(event.delta.content_delta)
            elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                script.saw(event.part.content)
