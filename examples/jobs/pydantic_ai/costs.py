import sqlite3
from datetime import UTC, datetime

from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini")
# by hand: what is kept, and the report
bills = sqlite3.connect("costs.db")
bills.execute("CREATE TABLE IF NOT EXISTS bills (user TEXT, month TEXT, cents REAL)")
month = f"{datetime.now(UTC):%Y-%m}"
for user in ("eve", "bob", "eve"):
    result = agent.run_sync("Hello, bill me.")
    cost = sum(float(message.cost().total_price) for message in result.new_messages() if message.kind == "response")
    with bills:
        bills.execute("INSERT INTO bills VALUES (?, ?, ?)", (user, month, 100 * cost))
rows = bills.execute(
    "SELECT user, COUNT(*), SUM(cents) > 0 FROM bills WHERE month = ? GROUP BY user ORDER BY user", (month,)
)
for user, runs, paid in rows:
    print(user, runs, bool(paid))
