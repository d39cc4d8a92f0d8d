import sqlite3

from agents import Agent, RunContextWrapper, Runner, function_tool

pages = sqlite3.connect(":memory:", check_same_thread=False)
pages.execute("CREATE VIRTUAL TABLE pages USING fts5(title, body)")
pages.execute("INSERT INTO pages VALUES ('Leave', 'Everybody has 30 days of leave a year.')")


@function_tool
def search(wrapper: RunContextWrapper[sqlite3.Connection], words: str) -> str:
    """Search the handbook."""
    rows = wrapper.context.execute("SELECT title, body FROM pages WHERE pages MATCH ? LIMIT 3", (words,))
    return "\n".join(f"{title}: {body}" for title, body in rows) or "Nothing found."


agent = Agent[sqlite3.Connection](name="clerk", model="gpt-5-mini", tools=[search])
print(Runner.run_sync(agent, "How much leave do I have?", context=pages).final_output)
