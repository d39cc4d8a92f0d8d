"""LangGraph with LangChain's create_agent. Limits: recursion_limit, and the middleware that LangChain documents."""

from importlib.metadata import version

import common
from common import ANSWER, FILLER, PARENT_TURNS, PROMPT, TURNS, Counter
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class Reader(BaseChatModel):
    counter: object
    calls: str = "read_page"
    bound: bool = False

    @property
    def _llm_type(self):
        return "reader"

    def bind_tools(self, tools, **kwargs):
        return self.model_copy(update={"bound": bool(tools)})

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        replies = sum(message.type == "ai" for message in messages)
        used = self.counter.next(replies, last=not self.bound)
        usage = {"input_tokens": used[0], "output_tokens": used[1], "total_tokens": sum(used)}
        number = self.counter.calls
        asked = [{"name": self.calls, "args": {"page": number}, "id": str(number)}] if self.bound else []
        message = AIMessage(FILLER if asked else ANSWER, tool_calls=asked, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_page(page: int) -> str:
    """Read one page."""
    return f"Page {page}: rule {page} changed."


def ask(agent, **config):
    return agent.invoke({"messages": [("user", PROMPT)]}, config)["messages"][-1].content


def turns():
    counter = Counter()
    agent = create_agent(Reader(counter=counter), [read_page])
    return common.seen(counter, lambda: ask(agent, recursion_limit=2 * TURNS))


def turns_middleware():
    counter = Counter()
    agent = create_agent(Reader(counter=counter), [read_page], middleware=[ModelCallLimitMiddleware(run_limit=TURNS)])
    return common.seen(counter, lambda: ask(agent))


def child():
    counter = Counter()
    helper = create_agent(Reader(counter=counter), [read_page])

    @tool
    def ask_helper(page: int) -> str:
        """Ask the helper."""
        return ask(helper)

    parent = create_agent(
        Reader(counter=counter, calls="ask_helper"),
        [ask_helper],
        middleware=[ModelCallLimitMiddleware(run_limit=PARENT_TURNS)],
    )
    return common.seen(counter, lambda: ask(parent))


if __name__ == "__main__":
    common.report(
        version("langgraph"), turns=turns(), turns_other=turns_middleware(), tokens=None, shared=None, child=child()
    )
