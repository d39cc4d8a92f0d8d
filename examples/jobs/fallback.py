from glidepath import Agent, Limits

agent = Agent("openai-chat:gpt-5-mini", fallback_models=["openai:gpt-5-mini"], limits=Limits(max_iterations=3))
print(agent.run_sync("Hello.").text)
