"""Pydantic AI. Limits: UsageLimits; a usage object is shared between runs as its page on delegation shows."""

import asyncio
from decimal import Decimal
from importlib.metadata import version

import common
from common import ANSWER, FILLER, MANY, PARENT_TURNS, PROMPT, TOKENS, TURNS, Counter
from pydantic_ai import Agent, RunContext, RunUsage, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage


def reader(counter, calls="read_page"):
    async def turn(messages, info):
        replies = sum(message.kind == "response" for message in messages)
        given, made = counter.next(replies, last=not info.function_tools)
        used = RequestUsage(input_tokens=given, output_tokens=made)
        await asyncio.sleep(0)
        if not info.function_tools:
            return ModelResponse(parts=[TextPart(ANSWER)], usage=used)
        return ModelResponse(parts=[TextPart(FILLER), ToolCallPart(calls, {"page": counter.calls})], usage=used)

    return FunctionModel(turn)


def agent_of(counter):
    agent = Agent(reader(counter))

    @agent.tool_plain
    def read_page(page: int) -> str:
        """Read one page."""
        return f"Page {page}: rule {page} changed."

    return agent


def turns():
    counter = Counter()
    agent = agent_of(counter)
    return common.seen(counter, lambda: agent.run_sync(PROMPT, usage_limits=UsageLimits(request_limit=TURNS)).output)


def tokens():
    counter = Counter()
    agent = agent_of(counter)
    return common.seen(
        counter, lambda: agent.run_sync(PROMPT, usage_limits=UsageLimits(total_tokens_limit=TOKENS)).output
    )


def unpriced():
    """A limit of one cent, and a model whose price nobody knows."""
    counter = Counter()
    agent = agent_of(counter)
    limits = UsageLimits(cost_limit=Decimal("0.01"))
    return common.seen(counter, lambda: agent.run_sync(PROMPT, usage_limits=limits).output)


def shared():
    counter = Counter()
    agent = agent_of(counter)

    async def fleet():
        usage, limits = RunUsage(), UsageLimits(total_tokens_limit=TOKENS)
        runs = [agent.run(PROMPT, usage=usage, usage_limits=limits) for _ in range(MANY)]
        results = await asyncio.gather(*runs, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        if len(failed) == MANY:
            raise failed[0]
        return "\n".join(result.output for result in results if result not in failed)

    return common.seen(counter, lambda: asyncio.run(fleet()))


def child():
    counter = Counter()
    helper = agent_of(counter)
    parent = Agent(reader(counter, "ask_helper"))

    @parent.tool
    async def ask_helper(context: RunContext, page: int) -> str:
        """Ask the helper."""
        return (await helper.run(PROMPT, usage=context.usage)).output

    limits = UsageLimits(request_limit=PARENT_TURNS)
    return common.seen(counter, lambda: parent.run_sync(PROMPT, usage_limits=limits).output)


if __name__ == "__main__":
    common.report(
        version("pydantic-ai-slim"),
        turns=turns(),
        tokens=tokens(),
        shared=shared(),
        child=child(),
        unpriced=unpriced(),
    )
