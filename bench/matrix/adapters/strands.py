"""Strands Agents: limits per invocation, a cancel signal set by a timer, and its retry strategy."""

import asyncio
import threading

from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth
from strands import Agent, ModelRetryStrategy, tool
from strands.models.model import Model
from strands.types.exceptions import MaxTokensReachedException, ModelThrottledException

NAME = "Strands Agents"
PACKAGES = ("strands-agents",)
LACKS = ("tools",)
REASONS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}


def roles(messages, system) -> list[tuple[str, str]]:
    prompt = [("system", system)] if system else []
    for message in messages:
        for block in message["content"]:
            if "toolResult" in block:
                prompt.append(("tool", str(block["toolResult"]["content"])))
            else:
                prompt.append((message["role"], block.get("text") or str(block)))
    return prompt


class CaseModel(Model):
    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def update_config(self, **more):
        raise NotImplementedError

    def get_config(self):
        return {"model_id": "case"}

    async def structured_output(self, *args, **more):
        raise NotImplementedError
        yield

    async def stream(self, messages, tool_specs=None, system_prompt=None, **more):
        yield {"messageStart": {"role": "assistant"}}
        calls, writing = 0, False
        try:
            async for piece in self.truth.answer(roles(messages, system_prompt), offered=bool(tool_specs)):
                if writing and not isinstance(piece, Text):
                    yield {"contentBlockStop": {}}
                if isinstance(piece, Text):
                    if not writing:
                        yield {"contentBlockStart": {"start": {}}}
                    writing = True
                    yield {"contentBlockDelta": {"delta": {"text": piece.text}}}
                    continue
                writing = False
                if isinstance(piece, Call):
                    use = {"name": piece.name, "toolUseId": f"call_{self.truth.turns}_{calls}"}
                    calls += 1
                    yield {"contentBlockStart": {"start": {"toolUse": use}}}
                    yield {"contentBlockDelta": {"delta": {"toolUse": {"input": piece.json}}}}
                    yield {"contentBlockStop": {}}
                else:
                    yield {"messageStop": {"stopReason": REASONS[piece.reason]}}
                    total = piece.input + piece.output
                    usage = {"inputTokens": piece.input, "outputTokens": piece.output, "totalTokens": total}
                    yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}
        except RateLimited as error:
            raise ModelThrottledException(str(error)) from error


def configure(model, tools, budget):
    agent = Agent(
        model=model,
        tools=tools,
        callback_handler=None,
        retry_strategy=ModelRetryStrategy(max_attempts=4, initial_delay=0.2, max_delay=1),
    )
    limits = {"turns": budget.turns, "total_tokens": budget.tokens}
    signal = threading.Event()
    asyncio.get_running_loop().call_later(budget.seconds, signal.set)
    return agent, limits, signal


def make_agent(case: Case, truth: Truth):
    tools = [tool(function, name=name) for name, function in truth.functions().items()]

    @tool
    async def delegate(task: str) -> str:
        """Give a task to another agent."""
        child, limits, signal = make_agent(case, truth)
        return str(await child.invoke_async(task, limits=limits, cancel_signal=signal))

    if "delegate" in case.tools:
        tools.append(delegate)
    return configure(CaseModel(truth), tools, case.budget)


async def fly(case: Case, truth: Truth) -> Ending:
    agent, limits, signal = make_agent(case, truth)
    truth.cancel = agent.cancel
    try:
        result = await agent.invoke_async(PROMPT, limits=limits, cancel_signal=signal)
    except (MaxTokensReachedException, ModelThrottledException) as error:
        return Ending("failed", detail=f"{type(error).__name__}: {error}")
    text, reason = str(result), result.stop_reason
    if reason == "end_turn":
        return Ending("done", text, reason)
    if reason == "cancelled" and case.cancel_at is not None:
        return Ending("cancelled", text, reason)
    return Ending("limit", text, reason)
