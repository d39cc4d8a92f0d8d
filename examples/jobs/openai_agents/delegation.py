from agents import Agent, Runner, function_tool


@function_tool
def search(words: str) -> str:
    """Search the library."""
    return f"{words}: bees dance"


# missing: a limit that both share; each has turns of its own
researcher = Agent(name="researcher", model="gpt-5-mini", tools=[search])
research = researcher.as_tool("research", "Research a topic.", max_turns=6)
writer = Agent(name="writer", model="gpt-5-mini", tools=[research])
print(Runner.run_sync(writer, "Write about bees.", max_turns=6).final_output)
