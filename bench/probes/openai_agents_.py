"""OpenAI Agents. Limits: max_turns; an error handler can turn its exception into a result."""

from importlib.metadata import version

import common
from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.testing import assistant_message, function_call
from agents.usage import Usage
from common import ANSWER, FILLER, PARENT_TURNS, PROMPT, TURNS, Counter

set_tracing_disabled(disabled=True)


class Reader(Model):
    def __init__(self, counter, calls="read_page"):
        self.counter, self.calls = counter, calls

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):  # noqa: A002
        replies = 0 if isinstance(input, str) else sum(item.get("type") == "function_call" for item in input)
        used = self.counter.next(replies, last=not tools)
        usage = Usage(requests=1, input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
        if not tools:
            return ModelResponse(output=[assistant_message(ANSWER)], usage=usage, response_id=None)
        number = str(self.counter.calls)
        asked = {"page": int(number)} if self.calls == "read_page" else {"input": number}
        output = [assistant_message(FILLER), function_call(self.calls, asked, call_id=number)]
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


@function_tool
def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def run(agent, **options):
    return Runner.run_sync(agent, PROMPT, run_config=RunConfig(tracing_disabled=True), **options).final_output


def turns():
    counter = Counter()
    agent = Agent(name="reader", model=Reader(counter), tools=[read_page])
    return common.seen(counter, lambda: run(agent, max_turns=TURNS))


def turns_handler():
    counter = Counter()
    agent = Agent(name="reader", model=Reader(counter), tools=[read_page])
    return common.seen(counter, lambda: run(agent, max_turns=TURNS, error_handlers={"max_turns": lambda _: "Enough."}))


def child():
    counter = Counter()
    helper = Agent(name="helper", model=Reader(counter), tools=[read_page])
    tool = helper.as_tool("ask_helper", "Ask the helper.")
    parent = Agent(name="parent", model=Reader(counter, "ask_helper"), tools=[tool])
    return common.seen(counter, lambda: run(parent, max_turns=PARENT_TURNS))


if __name__ == "__main__":
    common.report(
        version("openai-agents"), turns=turns(), turns_other=turns_handler(), tokens=None, shared=None, child=child()
    )
