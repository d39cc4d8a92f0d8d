from glidepath import Agent, Limits
from glidepath.cli import main

agent = Agent("openai:gpt-5-mini", store="costs.db", limits=Limits(max_cost="0.10"))
for user in ("eve", "bob", "eve"):
    agent.run_sync("Hello, bill me.", user=user)
main(["sessions", "report", "--by", "user", "--month", "--store", "costs.db"])
