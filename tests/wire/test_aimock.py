"""The adapters against a server that somebody else wrote: `@copilotkit/aimock` speaks all four protocols."""

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome, tool
from glidepath.errors import RateLimitedError, TransientError
from glidepath.events import StreamChunk
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, UserMessage
from glidepath.models import (
    AnthropicModel,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolSpec,
)

from .server import run

pytestmark = [
    pytest.mark.process,
    # It says FUNCTION_CALL where Google says STOP, and Google's SDK warns about every word it does not know.
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]
MODELS = {
    "openai-chat": lambda url: OpenAIChatModel("gpt-4o", base_url=f"{url}/v1", api_key="mock-key"),
    "openai-responses": lambda url: OpenAIResponsesModel("gpt-5", base_url=f"{url}/v1", api_key="mock-key"),
    "anthropic": lambda url: AnthropicModel("claude-sonnet-4-5", base_url=url, api_key="mock-key"),
    "google": lambda url: GoogleModel("gemini-2.5-flash", base_url=url, api_key="mock-key"),
}
every = pytest.mark.parametrize("provider", MODELS)
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def streamed(model, prompt, **request):
    """The deltas of one request, and the error that ended it."""

    async def ask():
        deltas = []
        try:
            async for delta in model.stream(ModelRequest(messages=[UserMessage(prompt)], **request)):
                deltas.append(delta)  # noqa: PERF401 - what came before an error counts
        except Exception as error:
            return deltas, error
        finally:
            await model.aclose()
        return deltas, None

    return run(ask)


@every
def test_text_streams(provider, aimock):
    deltas, error = streamed(MODELS[provider](aimock), "say hello")
    assert error is None
    text = [delta.text for delta in deltas if type(delta) is TextDelta]
    assert "".join(text) == "Hello from the other side of the wire, in more than one piece."
    assert len(text) > 1
    assert deltas[-1].stop_reason == "end_turn"


@every
def test_parallel_calls_stream(provider, aimock):
    deltas, error = streamed(MODELS[provider](aimock), "add both", tools=(ADD,))
    assert error is None
    calls = {}
    for delta in deltas:
        if type(delta) is ToolCallDelta:
            calls[delta.index] = calls.get(delta.index, "") + delta.arguments.replace(" ", "")
    assert list(calls.values()) == ['{"a":1,"b":2}', '{"a":30,"b":4}']
    assert deltas[-1].stop_reason == "tool_use"


@every
def test_a_tool_loop_of_three_turns(provider, aimock):
    agent = Agent(model=MODELS[provider](aimock), tools=[add], limits=Limits(max_iterations=8, max_tokens=500_000))
    result = run(lambda: agent.run("add both"))
    assert (result.text, result.outcome, result.state) == ("It is 37.", LoopOutcome.DONE, AgentState.COMPLETED)
    assert (result.iterations, result.tool_calls) == (3, 3)


@every
def test_a_rate_limit_says_how_long(provider, aimock):
    _, error = streamed(MODELS[provider](aimock), f"too fast for {provider}")
    assert type(error) is RateLimitedError
    assert error.retry_after == 1
    deltas, error = streamed(MODELS[provider](aimock), f"too fast for {provider}")
    assert error is None
    assert deltas[-1].stop_reason == "end_turn"


@every
def test_an_overload_is_transient_and_ends_the_run_after_its_retries(provider, aimock):
    _, error = streamed(MODELS[provider](aimock), "overloaded")
    assert type(error) is TransientError
    agent = Agent(model=MODELS[provider](aimock), limits=Limits(max_iterations=2), max_retries=0)
    result = run(lambda: agent.run("overloaded"))
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert "529" in result.cause.reason


@every
def test_a_line_that_is_dead_from_the_start_is_transient(provider, aimock):
    deltas, error = streamed(MODELS[provider](aimock), "hang up first")
    assert deltas == []
    assert type(error) is TransientError


@every
def test_a_line_that_dies_in_mid_stream_is_transient_and_its_text_is_kept(provider, aimock):
    deltas, error = streamed(MODELS[provider](aimock), "hang up amid")
    text = "".join([delta.text for delta in deltas if type(delta) is TextDelta])
    assert text.startswith("This answer is cut")
    assert "done." not in text
    assert type(error) is TransientError
    assert not [delta for delta in deltas if type(delta) is StreamEnd]
    seen = []
    agent = Agent(
        model=MODELS[provider](aimock), limits=Limits(max_iterations=2), max_retries=0, event_sink=seen.append
    )
    result = run(lambda: agent.run("hang up amid"))
    assert (result.outcome, result.partial) == (LoopOutcome.FAILED, True)
    assert result.text.startswith("This answer is cut")
    assert len([event for event in seen if type(event) is StreamChunk and event.finished]) == 1


@every
def test_a_text_that_hits_its_cap_goes_on(provider, aimock):
    agent = Agent(model=MODELS[provider](aimock), system_prompt="count", limits=Limits(max_iterations=4))
    result = run(lambda: agent.run("be long"))
    assert result.text == "One, two, three."


@every
def test_a_call_that_hits_the_cap_never_runs(provider, aimock):
    ran = []

    @tool
    def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    agent = Agent(
        model=MODELS[provider](aimock), tools=[write], system_prompt="writer", limits=Limits(max_iterations=4)
    )
    result = run(lambda: agent.run("write it all"))
    assert ran == []
    assert result.text == "Sorry, in short then."
