"""Strands Agents. Limits: the `limits` of a call (turns, output_tokens, total_tokens)."""

import json
from importlib.metadata import version

import common
from common import ANSWER, FILLER, PARENT_TURNS, PROMPT, TOKENS, TURNS, Counter
from strands import Agent, tool
from strands.models import Model


class Reader(Model):
    def __init__(self, counter, calls="read_page"):
        self.counter, self.calls = counter, calls

    def update_config(self, **config): ...

    def get_config(self):
        return {}

    def structured_output(self, *args, **kwargs):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **kwargs):
        replies = sum(message["role"] == "assistant" for message in messages)
        used = self.counter.next(replies, last=not tool_specs)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": FILLER if tool_specs else ANSWER}}}
        yield {"contentBlockStop": {}}
        if tool_specs:
            number = self.counter.calls
            asked = {"page": number}
            yield {"contentBlockStart": {"start": {"toolUse": {"name": self.calls, "toolUseId": str(number)}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(asked)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if tool_specs else "end_turn"}}
        usage = {"inputTokens": used[0], "outputTokens": used[1], "totalTokens": sum(used)}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool
def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def agent_of(counter):
    return Agent(model=Reader(counter), tools=[read_page], callback_handler=None)


def turns():
    counter = Counter()
    return common.seen(counter, lambda: agent_of(counter)(PROMPT, limits={"turns": TURNS}))


def tokens():
    counter = Counter()
    return common.seen(counter, lambda: agent_of(counter)(PROMPT, limits={"total_tokens": TOKENS}))


def child():
    counter = Counter()

    @tool
    def ask_helper(page: int) -> str:
        """Ask the helper."""
        return str(agent_of(counter)(PROMPT))

    parent = Agent(model=Reader(counter, "ask_helper"), tools=[ask_helper], callback_handler=None)
    return common.seen(counter, lambda: parent(PROMPT, limits={"turns": PARENT_TURNS}))


if __name__ == "__main__":
    common.report(version("strands-agents"), turns=turns(), tokens=tokens(), shared=None, child=child())
