import sqlite3

from pydantic_ai import Agent, RunContext

pages = sqlite3.connect(":memory:", check_same_thread=False)
pages.execute("CREATE VIRTUAL TABLE pages USING fts5(title, body)")
pages.execute("INSERT INTO pages VALUES ('Leave', 'Everybody has 30 days of leave a year.')")
agent = Agent("openai:gpt-5-mini", deps_type=sqlite3.Connection)


@agent.tool
def search(context: RunContext[sqlite3.Connection], words: str) -> str:
    """Search the handbook."""
    rows = context.deps.execute("SELECT title, body FROM pages WHERE pages MATCH ? LIMIT 3", (words,))
    return "\n".join(f"{title}: {body}" for title, body in rows) or "Nothing found."


print(agent.run_sync("How much leave do I have?", deps=pages).output)
