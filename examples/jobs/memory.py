import sys

from glidepath import Agent, Limits

agent = Agent("openai:gpt-5-mini", store="memory.db", limits=Limits(max_iterations=3))
print(agent.run_sync(sys.argv[1], session="eve").text)
