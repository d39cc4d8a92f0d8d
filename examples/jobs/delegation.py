from glidepath import Agent, Limits, tool


@tool
def search(words: str) -> str:
    """Search the library."""
    return f"{words}: bees dance"


researcher = Agent("openai:gpt-5-mini", agent_name="researcher", tools=[search])
research = researcher.as_tool("research", "Research a topic.")
writer = Agent("openai:gpt-5-mini", tools=[research], limits=Limits(max_iterations=6))
print(writer.run_sync("Write about bees.").text)
