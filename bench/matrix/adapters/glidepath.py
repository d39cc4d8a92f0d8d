"""glidepath: limits and a tool timeout; every guard is its default."""

from contextlib import aclosing

from cases import PROMPT, Call, Case, Ending, RateLimited, Text, Truth

from glidepath import Agent, CancelToken, Limits, LoopOutcome, ToolContext, Usage, tool
from glidepath.errors import RateLimitedError
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta

NAME = "glidepath"
PACKAGES = ("glidepath",)
LACKS = ()
REASONS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}


class CaseModel:
    name = "case"
    max_output_tokens = 64_000

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    async def stream(self, request):
        prompt = [("tool" if m.role == "tool_result" else m.role, m.text) for m in request.messages]
        calls = 0
        try:
            reply = self.truth.answer(prompt, offered=bool(request.tools), cap=request.max_output_tokens)
            async with aclosing(reply) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Text):
                        yield TextDelta(text=piece.text)
                    elif isinstance(piece, Call):
                        name = f"call_{self.truth.turns}_{calls}"
                        yield ToolCallDelta(index=calls, id=name, name=piece.name, arguments=piece.json)
                        calls += 1
                    else:
                        usage = Usage(input=piece.input, output=piece.output)
                        yield StreamEnd(stop_reason=REASONS[piece.reason], usage=usage)
        except RateLimited as error:
            raise RateLimitedError(str(error), retry_after=error.after) from error


def configure(model, tools, budget):
    return Agent(
        model=model,
        tools=tools,
        tool_timeout=budget.seconds / 2,
        limits=Limits(
            max_iterations=budget.turns,
            max_tokens=budget.tokens,
            timeout=budget.seconds,
            max_tool_calls=budget.tools,
        ),
    )


def make_agent(case: Case, truth: Truth):
    tools = [tool(function, name=name) for name, function in truth.functions().items()]

    @tool
    async def delegate(task: str, ctx: ToolContext) -> str:
        """Give a task to another agent."""
        return (await ctx.spawn(make_agent(case, truth), task)).text

    if "delegate" in case.tools:
        tools.append(delegate)
    return configure(CaseModel(truth), tools, case.budget)


async def fly(case: Case, truth: Truth) -> Ending:
    stop = CancelToken()
    truth.cancel = stop.cancel
    result = await make_agent(case, truth).run(PROMPT, cancel=stop)
    detail = f"{result.outcome.name}, {result.state.name}, {result.cause}"
    if result.outcome is LoopOutcome.CANCELLED:
        return Ending("cancelled", result.text, detail)
    if result.cause is None:
        return Ending("done", result.text, detail)
    return Ending("failed" if result.outcome is LoopOutcome.FAILED else "limit", result.text, detail)
