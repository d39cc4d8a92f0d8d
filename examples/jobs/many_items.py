from glidepath import Agent, Limits

agent = Agent("openai:gpt-5-mini", limits=Limits(max_iterations=3), max_output_tokens=100)
items = [f"Translate word {number}." for number in range(30)]
results = agent.map_sync(items, budget=Limits(max_tokens=100_000), at_once=10)
print(sum(result.ok for result in results), "of", len(results))
