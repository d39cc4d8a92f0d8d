from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini", model_settings={"thinking": "high"})
print(agent.run_sync("Think hard.").output)
