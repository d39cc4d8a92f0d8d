import sqlite3
from datetime import UTC, datetime

from agents import Agent, Runner

agent = Agent(name="clerk", model="gpt-5-mini")
# by hand: prices, what is kept, and the report
INPUT, OUTPUT = 0.000025, 0.0002  # cents of a token
bills = sqlite3.connect("costs.db")
bills.execute("CREATE TABLE IF NOT EXISTS bills (user TEXT, month TEXT, cents REAL)")
month = f"{datetime.now(UTC):%Y-%m}"
for user in ("eve", "bob", "eve"):
    usage = Runner.run_sync(agent, "Hello, bill me.").context_wrapper.usage
    cents = usage.input_tokens * INPUT + usage.output_tokens * OUTPUT
    with bills:
        bills.execute("INSERT INTO bills VALUES (?, ?, ?)", (user, month, cents))
rows = bills.execute(
    "SELECT user, COUNT(*), SUM(cents) > 0 FROM bills WHERE month = ? GROUP BY user ORDER BY user", (month,)
)
for user, runs, paid in rows:
    print(user, runs, bool(paid))
