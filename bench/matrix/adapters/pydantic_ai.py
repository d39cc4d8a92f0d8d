"""Pydantic AI: usage limits on requests, tokens and tool calls, timeouts for run and tools, a cancellation token."""

from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth
from pydantic_ai import Agent, CancellationToken, RunContext, Tool, UsageLimits
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelHTTPError,
    RunCancelled,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.models.function import FunctionModel, FunctionStreamedResponse
from pydantic_ai.usage import RequestUsage

NAME = "Pydantic AI"
PACKAGES = ("pydantic-ai-slim",)
LACKS = ()
REASONS = {"stop": "stop", "calls": "tool_call", "length": "length"}
ROLES = {"user-prompt": "user", "system-prompt": "system", "tool-return": "tool", "retry-prompt": "tool"}


def roles(messages) -> list[tuple[str, str]]:
    prompt = []
    for message in messages:
        for part in message.parts:
            said = getattr(part, "content", None) or getattr(part, "args", "") or ""
            role = ROLES.get(part.part_kind, "assistant")
            if part.part_kind == "retry-prompt" and not part.tool_name:
                role = "user"
            prompt.append((role, str(said)))
    return prompt


class CaseStream(FunctionStreamedResponse):
    async def _get_event_iterator(self):
        calls = 0
        async for piece in self._iter:
            if isinstance(piece, Text):
                for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=piece.text):
                    yield event
            elif isinstance(piece, Call):
                calls += 1
                for event in self._parts_manager.handle_tool_call_delta_events(
                    vendor_part_id=calls, tool_name=piece.name, args=piece.json
                ):
                    yield event
            else:
                self._usage = RequestUsage(input_tokens=piece.input, output_tokens=piece.output)
                self.finish_reason = REASONS[piece.reason]


class CaseModel(FunctionModel):
    def __init__(self, truth: Truth) -> None:
        async def unused(messages, info):
            yield ""

        super().__init__(stream_function=unused, model_name="case")
        self.truth = truth

    @asynccontextmanager
    async def request_stream(self, messages, model_settings, model_request_parameters, run_context=None):
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        cap, offered = (settings or {}).get("max_tokens"), bool(parameters.function_tools)

        async def pieces():
            try:
                async for piece in self.truth.answer(roles(messages), offered=offered, cap=cap):
                    yield piece
            except RateLimited as error:
                raise ModelHTTPError(429, "case", str(error)) from error

        async with aclosing(pieces()) as reply:
            yield CaseStream(model_request_parameters=parameters, _model_name="case", _iter=reply)

    async def request(self, messages, model_settings, model_request_parameters):
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()


def configure(model, tools, budget):
    agent = Agent(model, tools=tools, tool_timeout=budget.seconds / 2, retries=2)
    limits = UsageLimits(
        request_limit=budget.turns,
        total_tokens_limit=budget.tokens,
        tool_calls_limit=budget.tools,
    )
    return agent, limits


@dataclass
class Shared:
    """What the runs of a tree share."""

    case: Case
    truth: Truth


def make_agent(shared: Shared):
    tools = [Tool(function, name=name, takes_ctx=False) for name, function in shared.truth.functions().items()]
    agent, limits = configure(CaseModel(shared.truth), tools, shared.case.budget)
    if "delegate" in shared.case.tools:

        @agent.tool
        async def delegate(ctx: RunContext, task: str) -> str:
            """Give a task to another agent."""
            child, same = make_agent(shared)
            return (await child.run(task, usage=ctx.usage, usage_limits=same)).output

    return agent, limits


async def fly(case: Case, truth: Truth) -> Ending:
    agent, limits = make_agent(Shared(case, truth))
    token = CancellationToken()
    truth.cancel = token.cancel
    try:
        result = await agent.run(PROMPT, usage_limits=limits, timeout=case.budget.seconds, cancellation_token=token)
    except UsageLimitExceeded as error:
        return Ending("limit", detail=str(error))
    except RunCancelled as error:
        kind = "cancelled" if case.cancel_at else "limit"
        return Ending(kind, detail=f"{type(error).__name__}: {error}")
    except (AgentRunError, UnexpectedModelBehavior, TimeoutError) as error:
        kind = "limit" if isinstance(error, TimeoutError) else "failed"
        return Ending(kind, detail=f"{type(error).__name__}: {error}")
    reason = result.response.finish_reason
    return Ending("failed" if reason == "length" else "done", result.output, f"finish_reason={reason}")
