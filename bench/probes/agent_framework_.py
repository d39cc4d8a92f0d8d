"""Microsoft Agent Framework. Limits: the function invocation configuration of a chat client."""

import asyncio
from importlib.metadata import version

import common
from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool
from common import ANSWER, FILLER, PARENT_TURNS, PROMPT, TURNS, Counter


class Reader(FunctionInvocationLayer, BaseChatClient):
    def __init__(self, counter, calls="read_page", **configuration):
        super().__init__(function_invocation_configuration=configuration)
        self.counter, self.calls = counter, calls

    async def _inner_get_response(self, *, messages, stream, options, **kwargs):
        choice = options.get("tool_choice")
        choice = choice.get("mode") if isinstance(choice, dict) else choice
        last = choice == "none" or not options.get("tools")
        replies = sum(message.role == "assistant" for message in messages)
        self.counter.next(replies, last=last)
        number = str(self.counter.calls)
        contents = [Content.from_text(ANSWER if last else FILLER)]
        if not last:
            contents.append(
                Content.from_function_call(call_id=number, name=self.calls, arguments={"page": int(number)})
            )
        return ChatResponse(messages=[Message(role="assistant", contents=contents)], response_id=number)


@tool(approval_mode="never_require")
def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def ask(agent):
    return asyncio.run(agent.run(PROMPT)).text


def turns():
    counter = Counter()
    agent = Agent(client=Reader(counter, max_iterations=TURNS), tools=[read_page])
    return common.seen(counter, lambda: ask(agent))


def child():
    counter = Counter()
    helper = Agent(client=Reader(counter), tools=[read_page])

    @tool(approval_mode="never_require")
    async def ask_helper(page: int) -> str:
        """Ask the helper."""
        return (await helper.run(PROMPT)).text

    parent = Agent(client=Reader(counter, "ask_helper", max_iterations=PARENT_TURNS), tools=[ask_helper])
    return common.seen(counter, lambda: ask(parent))


if __name__ == "__main__":
    common.report(version("agent-framework-core"), turns=turns(), tokens=None, shared=None, child=child())
