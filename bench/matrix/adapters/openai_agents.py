"""OpenAI Agents SDK: max_turns, tool timeouts, a model timeout, a retry policy and bounded tool concurrency."""

import asyncio

import httpx2 as httpx
import openai
from agents import (
    Agent,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Runner,
    ToolExecutionConfig,
    Usage,
    function_tool,
)
from agents.exceptions import AgentsException, MaxTurnsExceeded
from agents.retry import ModelRetryBackoffSettings, ModelRetrySettings, retry_policies
from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails, ResponseUsage

NAME = "OpenAI Agents"
PACKAGES = ("openai-agents",)
LACKS = ("tokens", "tools")


def roles(system, items) -> list[tuple[str, str]]:
    prompt = [("system", system)] if system else []
    if isinstance(items, str):
        return [*prompt, ("user", items)]
    for item in items:
        if item.get("type") == "function_call":
            prompt.append(("assistant", item["arguments"]))
        elif item.get("type") == "function_call_output":
            prompt.append(("tool", str(item["output"])))
        else:
            prompt.append((item.get("role", "user"), str(item.get("content"))))
    return prompt


def too_many(error: RateLimited) -> openai.RateLimitError:
    request = httpx.Request("POST", "https://model.invalid")
    response = httpx.Response(429, headers={"retry-after": str(error.after)}, request=request)
    return openai.RateLimitError(str(error), response=response, body=None)


class CaseModel(Model):
    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    async def stream_response(self, system_instructions, input, model_settings, tools, *args, **more):  # noqa: A002
        prompt, cap = roles(system_instructions, input), model_settings.max_tokens
        texts, calls, number = [], [], 0
        try:
            async for piece in self.truth.answer(prompt, offered=bool(tools), cap=cap):
                number += 1
                if isinstance(piece, Text):
                    texts.append(piece.text)
                    yield ResponseTextDeltaEvent(
                        type="response.output_text.delta",
                        item_id="message",
                        output_index=0,
                        content_index=0,
                        sequence_number=number,
                        delta=piece.text,
                        logprobs=[],
                    )
                elif isinstance(piece, Call):
                    calls.append(piece)
                else:
                    yield self.ended(piece, texts, calls, number)
        except RateLimited as error:
            raise too_many(error) from error

    def ended(self, end, texts, calls, number):
        turn = self.truth.turns
        said = ResponseOutputText(type="output_text", text="".join(texts), annotations=[], logprobs=[])
        message = ResponseOutputMessage(
            id=f"message_{turn}", type="message", role="assistant", status="completed", content=[said]
        )
        output = [message] if texts or not calls else []
        for index, call in enumerate(calls):
            # A tool made with as_tool calls its only argument "input".
            arguments = call.json.replace('"task"', '"input"') if call.name == "delegate" else call.json
            name = f"call_{turn}_{index}"
            output.append(
                ResponseFunctionToolCall(
                    type="function_call", id=f"item_{name}", call_id=name, name=call.name, arguments=arguments
                )
            )
        cut = end.reason == "length"
        response = Response(
            id=f"response_{turn}",
            object="response",
            created_at=0,
            model="case",
            output=output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            status="incomplete" if cut else "completed",
            incomplete_details=IncompleteDetails(reason="max_output_tokens") if cut else None,
            usage=ResponseUsage(
                input_tokens=end.input,
                output_tokens=end.output,
                total_tokens=end.input + end.output,
                input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0),
                output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
            ),
        )
        kind = ResponseIncompleteEvent if cut else ResponseCompletedEvent
        name = "response.incomplete" if cut else "response.completed"
        return kind(type=name, sequence_number=number + 1, response=response)

    async def get_response(self, *args, **more):
        """Agents as tools are run without streaming."""
        last = None
        async for event in self.stream_response(*args, **more):
            last = event.response if event.type != "response.output_text.delta" else None
        usage = Usage(
            requests=1,
            input_tokens=last.usage.input_tokens,
            output_tokens=last.usage.output_tokens,
            total_tokens=last.usage.total_tokens,
        )
        return ModelResponse(output=last.output, usage=usage, response_id=last.id)


def configure(model, functions, budget):
    tools = [
        function_tool(function, name_override=name, timeout=budget.seconds / 2) for name, function in functions.items()
    ]
    retry = ModelRetrySettings(
        max_retries=3,
        backoff=ModelRetryBackoffSettings(initial_delay=0.2, max_delay=1.0),
        policy=retry_policies.any(retry_policies.retry_after(), retry_policies.http_status([429, 500, 502, 503])),
    )
    agent = Agent(
        name="agent",
        instructions="Work.",
        model=model,
        tools=tools,
        model_settings=ModelSettings(timeout=budget.seconds, retry=retry),
    )
    options = RunConfig(tracing_disabled=True, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=8))
    return agent, options


def delegating(agent, budget) -> None:
    tool = agent.as_tool(tool_name="delegate", tool_description="Give a task to another agent.", max_turns=budget.turns)
    agent.tools.append(tool)


async def fly(case: Case, truth: Truth) -> Ending:
    agent, options = configure(CaseModel(truth), truth.functions(), case.budget)
    if "delegate" in case.tools:
        delegating(agent, case.budget)
    result = Runner.run_streamed(agent, PROMPT, max_turns=case.budget.turns, run_config=options)
    stopped = []

    def stop() -> None:
        stopped.append(True)
        result.cancel()

    truth.cancel = stop
    try:
        async for _ in result.stream_events():
            pass
    except MaxTurnsExceeded as error:
        return Ending("limit", detail=str(error))
    except (AgentsException, openai.OpenAIError, TimeoutError) as error:
        return Ending("failed", detail=f"{type(error).__name__}: {error}")
    except asyncio.CancelledError:
        return Ending("cancelled", detail="asyncio.CancelledError")
    text = "" if result.final_output is None else str(result.final_output)
    return Ending("cancelled" if stopped else "done", text, f"final_output={text[:60]!r}")
