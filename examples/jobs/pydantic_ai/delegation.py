from pydantic_ai import Agent, RunContext, UsageLimits

researcher = Agent("openai:gpt-5-mini")
writer = Agent("openai:gpt-5-mini")


@researcher.tool_plain
def search(words: str) -> str:
    """Search the library."""
    return f"{words}: bees dance"


# by hand: the tool that runs the other agent
@writer.tool
async def research(context: RunContext, task: str) -> str:
    """Research a topic."""
    return (await researcher.run(task, usage=context.usage)).output


print(writer.run_sync("Write about bees.", usage_limits=UsageLimits(request_limit=6)).output)
