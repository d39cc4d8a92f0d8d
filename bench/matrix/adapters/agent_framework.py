"""Microsoft Agent Framework: limits on iterations, function calls and time of the function invocation loop."""

import asyncio

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    tool,
)
from agent_framework.exceptions import AgentFrameworkException
from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth

NAME = "Microsoft Agent Framework"
PACKAGES = ("agent-framework-core",)
LACKS = ("tokens",)
REASONS = {"stop": "stop", "calls": "tool_calls", "length": "length"}


class CaseClient(BaseChatClient):
    truth: Truth

    def _inner_get_response(self, *, messages, stream, options, **more):
        return self._build_response_stream(self.updates(messages, options))

    async def updates(self, messages, options):
        prompt = [
            (str(message.role), message.text or " ".join(str(content.result) for content in message.contents))
            for message in messages
        ]
        offered = bool(options.get("tools")) and options.get("tool_choice") != "none"
        calls = 0
        async for piece in self.truth.answer(prompt, offered=offered, cap=options.get("max_tokens")):
            if isinstance(piece, Text):
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(piece.text)])
            elif isinstance(piece, Call):
                name = f"call_{self.truth.turns}_{calls}"
                calls += 1
                call = Content.from_function_call(call_id=name, name=piece.name, arguments=piece.json)
                yield ChatResponseUpdate(role="assistant", contents=[call])
            else:
                counted = {"input_token_count": piece.input, "output_token_count": piece.output}
                usage = Content.from_usage(usage_details=counted)
                yield ChatResponseUpdate(role="assistant", contents=[usage], finish_reason=REASONS[piece.reason])


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, CaseClient):
    """With the layers that the clients of the package have."""


def configure(client, tools, budget):
    client.function_invocation_configuration["max_iterations"] = budget.turns
    client.function_invocation_configuration["max_function_calls"] = budget.tools
    client.function_invocation_configuration["max_duration_seconds"] = budget.seconds
    return Agent(client, tools=tools)


def make_agent(case: Case, truth: Truth):
    tools = [tool(function, name=name, approval_mode="never_require") for name, function in truth.functions().items()]

    @tool(approval_mode="never_require")
    async def delegate(task: str) -> str:
        """Give a task to another agent."""
        return (await make_agent(case, truth).run(task, stream=True).get_final_response()).text

    if "delegate" in case.tools:
        tools.append(delegate)
    client = Client()
    client.truth = truth
    return configure(client, tools, case.budget)


async def consume(agent):
    reply = agent.run(PROMPT, stream=True)
    async for _ in reply:
        pass
    return await reply.get_final_response()


async def fly(case: Case, truth: Truth) -> Ending:
    task = asyncio.ensure_future(consume(make_agent(case, truth)))
    truth.cancel = task.cancel  # a run is stopped by cancelling its task
    try:
        response = await task
    except asyncio.CancelledError:
        return Ending("cancelled", detail="asyncio.CancelledError")
    except (AgentFrameworkException, RateLimited) as error:
        return Ending("failed", detail=f"{type(error).__name__}: {error}")
    reason = str(response.finish_reason)
    # Its own documentation: a reached limit forces a text response. Nothing in the response says so.
    return Ending("failed" if reason == "length" else "done", response.text, f"finish_reason={reason}")
