"""Agno. Limits: tool_call_limit; there is none on turns, tokens or money."""

import json
from importlib.metadata import version

import common
from agno.agent import Agent
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.response import ModelResponse
from common import ANSWER, FILLER, PARENT_TURNS, PROMPT, TURNS, Counter


class Reader(Model):
    def __init__(self, counter, calls="read_page"):
        super().__init__(id="reader")
        self.counter, self.calls = counter, calls

    def invoke(self, messages, *args, tools=None, **kwargs):
        replies = sum(message.role == "assistant" for message in messages)
        refused = any("limit" in str(message.content) for message in messages if message.role == "tool")
        used = self.counter.next(replies, last=not tools or refused)
        usage = MessageMetrics(input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
        if not tools or refused:  # a model that listens
            return ModelResponse(role="assistant", content=ANSWER, response_usage=usage)
        number = self.counter.calls
        asked = {"name": self.calls, "arguments": json.dumps({"page": number})}
        call = {"id": str(number), "type": "function", "function": asked}
        return ModelResponse(role="assistant", content=FILLER, tool_calls=[call], response_usage=usage)

    async def ainvoke(self, *args, **kwargs):
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args, **kwargs):
        raise NotImplementedError

    def ainvoke_stream(self, *args, **kwargs):
        raise NotImplementedError

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def turns():
    counter = Counter()
    agent = Agent(model=Reader(counter), tools=[read_page], tool_call_limit=TURNS, telemetry=False)
    return common.seen(counter, lambda: agent.run(PROMPT).content)


def child():
    counter = Counter()
    helper = Agent(model=Reader(counter), tools=[read_page], telemetry=False)

    def ask_helper(page: int) -> str:
        """Ask the helper."""
        return helper.run(PROMPT).content

    parent = Agent(
        model=Reader(counter, "ask_helper"), tools=[ask_helper], tool_call_limit=PARENT_TURNS, telemetry=False
    )
    return common.seen(counter, lambda: parent.run(PROMPT).content)


if __name__ == "__main__":
    common.report(version("agno"), turns=turns(), tokens=None, shared=None, child=child())
