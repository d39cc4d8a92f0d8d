"""glidepath, with the limits as documented."""

import asyncio

import common
from common import ANSWER, FILLER, MANY, PARENT_TURNS, PROMPT, REPLY, TOKENS, TURNS, Counter

import glidepath
from glidepath import Agent, Budget, Limits, Usage, tool
from glidepath.testing import ScriptedModel, call, say


@tool
async def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def reader(counter, name="read_page"):
    def turn(request):
        replies = sum(message.role == "assistant" for message in request.messages)
        last = not request.tools
        used = Usage(*counter.next(replies, last=last, cap=request.max_output_tokens))
        if last:
            return say(ANSWER, usage=used)
        if used.output < REPLY:  # a provider cuts at the cap
            return say(FILLER[: 4 * used.output], usage=used, stop_reason="max_tokens")
        arguments = {"page": counter.calls} if name == "read_page" else {"task": f"part {counter.calls}"}
        return call(name, **arguments).with_text(FILLER).with_usage(used)

    return ScriptedModel(max_output_tokens=REPLY).forever(turn)


def turns():
    counter = Counter()
    agent = Agent(model=reader(counter), tools=[read_page], limits=Limits(max_iterations=TURNS))
    return common.seen(counter, lambda: agent.run_sync(PROMPT).text)


def tokens():
    counter = Counter()
    agent = Agent(model=reader(counter), tools=[read_page], limits=Limits(max_tokens=TOKENS))
    return common.seen(counter, lambda: agent.run_sync(PROMPT).text)


def shared():
    counter = Counter()
    agent = Agent(model=reader(counter), tools=[read_page])

    async def fleet():
        budget = Budget(Limits(max_tokens=TOKENS))
        results = await asyncio.gather(*[agent.run(PROMPT, parent=budget) for _ in range(MANY)])
        return "\n".join(result.text for result in results)

    return common.seen(counter, lambda: asyncio.run(fleet()))


def child():
    counter = Counter()
    helper = Agent(model=reader(counter), tools=[read_page], unbounded=True)
    parent = Agent(
        model=reader(counter, "ask_helper"),
        tools=[helper.as_tool("ask_helper", "Ask the helper.")],
        limits=Limits(max_iterations=PARENT_TURNS),
    )
    return common.seen(counter, lambda: parent.run_sync(PROMPT).text)


if __name__ == "__main__":
    common.report(glidepath.__version__, turns=turns(), tokens=tokens(), shared=shared(), child=child())
