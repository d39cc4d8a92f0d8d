from glidepath import Agent, Limits

agent = Agent("openai:gpt-5-mini", reasoning="high", limits=Limits(max_iterations=3))
print(agent.run_sync("Think hard.").text)
