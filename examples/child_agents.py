"""A chief hands questions to researchers. All spend from one budget; one of them gets no further than its limit."""

import asyncio
import textwrap

from glidepath import Agent, Limits, RunResult, tool
from glidepath.models import ModelRequest
from glidepath.testing import ScriptedModel, Turn, call, calls, say


@tool
async def search(query: str) -> str:
    """Search the archive."""
    await asyncio.sleep(0.01)
    return f"one note about {query}"


def thorough(request: ModelRequest) -> Turn:
    """Searches twice, then answers."""
    topic = request.messages[0].text
    notes = sum(message.role == "tool_result" for message in request.messages)
    if notes < 2 and request.tools:  # noqa: PLR2004 - twice
        return call("search", query=f"{topic}, part {notes + 1}")
    return say(f"{topic}: {notes} notes found.")


def endless(request: ModelRequest) -> Turn:
    """Searches for as long as it can."""
    topic = request.messages[0].text
    notes = sum(message.role == "tool_result" for message in request.messages)
    return (
        call("search", query=f"{topic}, part {notes + 1}") if request.tools else say(f"{topic}: {notes} notes so far.")
    )


def researcher(name: str, script) -> Agent:
    return Agent(model=ScriptedModel(name=name).forever(script), tools=[search], agent_name=name)


def show(result: RunResult, name: str, depth: int = 0) -> None:
    why = f" ({result.cause.source})" if result.cause else ""
    line = f"{result.outcome.name}{why}, {result.iterations} turns, {result.usage.total} tokens"
    print(f"{'  ' * depth}{name:<10} {line}")
    for child in result.children:
        show(child, "researcher", depth + 1)


async def main() -> None:
    ann, bob = researcher("ann", thorough), researcher("bob", endless)
    script = [
        calls(call("ask_ann", task="bees"), call("ask_bob", task="wasps")),
        lambda request: say(" ".join(m.text.splitlines()[-1] for m in request.messages if m.role == "tool_result")),
    ]
    chief = Agent(
        model=ScriptedModel(script, name="chief"),
        tools=[
            ann.as_tool("ask_ann", "Ask Ann, who is thorough."),
            bob.as_tool("ask_bob", "Ask Bob, who does not stop.", limits=Limits(max_iterations=4)),
        ],
        limits=Limits(max_iterations=20, max_tokens=50_000, timeout=30),
        agent_name="chief",
    )
    result = await chief.run("Compare bees and wasps.")
    print("What the chief's model read:")
    for message in result.messages:
        if message.role == "tool_result":
            for line in message.text.splitlines():
                print(textwrap.fill(line, 78, initial_indent="  ", subsequent_indent="    "))
    print("\nThe answer:\n  " + result.text + "\n")
    show(result, "chief")
    print("\nWho spent what:")
    for spend in result.breakdown:
        print(f"  {spend.kind:<6} {spend.name:<6} {spend.usage.total:>4} tokens in {spend.calls}")


if __name__ == "__main__":
    asyncio.run(main())
