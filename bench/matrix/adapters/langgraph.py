"""LangGraph through create_agent, with the limit and retry middleware of langchain and a step timeout."""

import asyncio

from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ModelRetryMiddleware, ToolCallLimitMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import StructuredTool
from langgraph.errors import GraphRecursionError

NAME = "LangGraph"
PACKAGES = ("langchain", "langgraph")
LACKS = ("tokens",)
REASONS = {"stop": "stop", "calls": "tool_calls", "length": "length"}
ROLES = {"ai": "assistant", "human": "user"}


class CaseModel(BaseChatModel):
    truth: object
    offered: bool = False

    @property
    def _llm_type(self) -> str:
        return "case"

    def bind_tools(self, tools, **more):
        return self.model_copy(update={"offered": bool(tools)})

    def _generate(self, *args, **more):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **more):
        prompt = [(ROLES.get(m.type, m.type), m.text) for m in messages]
        calls = 0
        async for piece in self.truth.answer(prompt, offered=self.offered):
            if isinstance(piece, Text):
                chunk = AIMessageChunk(content=piece.text)
            elif isinstance(piece, Call):
                call = {"index": calls, "id": f"call_{self.truth.turns}_{calls}", "name": piece.name}
                calls += 1
                chunk = AIMessageChunk(
                    content="", tool_call_chunks=[{**call, "args": piece.json, "type": "tool_call_chunk"}]
                )
            else:
                total = piece.input + piece.output
                usage = {"input_tokens": piece.input, "output_tokens": piece.output, "total_tokens": total}
                reason = {"finish_reason": REASONS[piece.reason]}
                chunk = AIMessageChunk(content="", usage_metadata=usage, response_metadata=reason)
            yield ChatGenerationChunk(message=chunk)


def configure(model, tools, budget):
    agent = create_agent(
        model,
        tools,
        middleware=[
            ModelCallLimitMiddleware(run_limit=budget.turns, exit_behavior="end"),
            ToolCallLimitMiddleware(run_limit=budget.tools, exit_behavior="continue"),
            ModelRetryMiddleware(max_retries=3, initial_delay=0.2, on_failure="error"),
        ],
    )
    agent.step_timeout = budget.seconds
    return agent


def make_agent(case: Case, truth: Truth):
    functions = truth.functions()
    if "delegate" in case.tools:

        async def delegate(task: str) -> str:
            """Give a task to another agent."""
            result = await make_agent(case, truth).ainvoke({"messages": [{"role": "user", "content": task}]})
            return result["messages"][-1].text

        functions["delegate"] = delegate
    tools = [StructuredTool.from_function(coroutine=function, name=name) for name, function in functions.items()]
    return configure(CaseModel(truth=truth), tools, case.budget)


async def consume(agent) -> tuple[str, str]:
    """The text of the last assistant message of the run, and why it ended."""
    question = {"messages": [{"role": "user", "content": PROMPT}]}
    last, reason = "", ""
    limit = {"recursion_limit": 10_000}  # the middleware counts model calls; this counts steps of the graph
    async for mode, values in agent.astream(question, limit, stream_mode=["messages", "values"]):
        if mode == "values" and values["messages"][-1].type == "ai":
            last = values["messages"][-1].text
            reason = values["messages"][-1].response_metadata.get("finish_reason", "")
    return last, reason


async def fly(case: Case, truth: Truth) -> Ending:
    task = asyncio.ensure_future(consume(make_agent(case, truth)))
    truth.cancel = task.cancel  # a run is stopped by cancelling its task
    try:
        text, reason = await task
    except asyncio.CancelledError:
        return Ending("cancelled", detail="asyncio.CancelledError")
    except GraphRecursionError as error:
        return Ending("limit", detail=str(error))
    except (TimeoutError, RateLimited) as error:
        kind = "limit" if isinstance(error, TimeoutError) else "failed"
        return Ending(kind, detail=f"{type(error).__name__}: {error}")
    if text.startswith(("Model call limits exceeded", "Tool call limit")):
        return Ending("limit in text", text, text)
    return Ending("failed" if reason == "length" else "done", text, f"finish_reason={reason}")
