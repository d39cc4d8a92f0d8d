"""OpenAI Agents SDK through Runner.run_streamed. Tracing, which exports to a server by default, is off."""

from pathlib import Path

from agents import (
    Agent,
    Model,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    function_tool,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

NAME = "OpenAI Agents"
PACKAGES = ("openai-agents",)
STATEMENT = "from agents import Agent, Runner"
STORE = "SQLiteSession"
EXTRAS = {"checks": "ten tool input guardrails (input guardrails run on the first turn only)"}


class FakeModel(Model):
    async def get_response(self, *args, **more):
        raise NotImplementedError

    async def stream_response(self, *args, **more):
        script = current()
        arguments = await script.next_call()
        item, number = f"message_{script.asked}", 0
        pieces = script.pieces()
        for number, text in enumerate(pieces, 1):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                item_id=item,
                output_index=0,
                content_index=0,
                sequence_number=number,
                delta=text,
                logprobs=[],
            )
        said = ResponseOutputText(type="output_text", text="".join(pieces), annotations=[], logprobs=[])
        output: list = [
            ResponseOutputMessage(id=item, type="message", role="assistant", status="completed", content=[said])
        ]
        if arguments is not None:
            call_id = script.call_id
            output.append(
                ResponseFunctionToolCall(
                    type="function_call", id=f"item_{call_id}", call_id=call_id, name=TOOL, arguments=arguments
                )
            )
        response = Response(
            id=f"response_{script.asked}",
            object="response",
            created_at=0,
            model="fake",
            output=output,
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=number + 1, response=response)


async def quiet(data):
    current().checked += 1
    return ToolGuardrailFunctionOutput.set_allowed_tools()


def make_agent(guardrails=()) -> Agent:
    @function_tool(name_override=TOOL, description_override=ABOUT, tool_input_guardrails=list(guardrails))
    async def lookup(query: str, limit: int, tags: list[str]) -> str:
        return await current().lookup(query, limit, tags)

    return Agent(name="agent", instructions="Work.", model=FakeModel(), tools=[lookup])


AGENTS = {
    None: make_agent(),
    "checks": make_agent([ToolInputGuardrail(guardrail_function=quiet) for _ in range(CHECKS)]),
}


async def play(script: Script) -> None:
    session = None
    if script.folder is not None:
        Path(script.folder).mkdir(parents=True)
        session = SQLiteSession(script.label, f"{script.folder}/session.db")
    result = Runner.run_streamed(
        AGENTS[script.extras],
        PROMPT,
        max_turns=script.turns + 2,
        session=session,
        run_config=RunConfig(tracing_disabled=True),
    )
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            script.saw(event.data.delta)
