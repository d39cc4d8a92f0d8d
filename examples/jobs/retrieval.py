import sqlite3

from glidepath import Agent, Limits, ToolContext, tool

pages = sqlite3.connect(":memory:", check_same_thread=False)
pages.execute("CREATE VIRTUAL TABLE pages USING fts5(title, body)")
pages.execute("INSERT INTO pages VALUES ('Leave', 'Everybody has 30 days of leave a year.')")


@tool(read_only=True)
def search(words: str, context: ToolContext[sqlite3.Connection]) -> str:
    """Search the handbook."""
    rows = context.deps.execute("SELECT title, body FROM pages WHERE pages MATCH ? LIMIT 3", (words,))
    return "\n".join(f"{title}: {body}" for title, body in rows) or "Nothing found."


agent = Agent("openai:gpt-5-mini", tools=[search], deps_type=sqlite3.Connection, limits=Limits(max_iterations=5))
print(agent.run_sync("How much leave do I have?", deps=pages).text)
