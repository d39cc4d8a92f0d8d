from pydantic_ai import Agent
from pydantic_ai.capabilities import WebSearch

agent = Agent("openai:gpt-5-mini", capabilities=[WebSearch(allowed_domains=["example.org"])])
print(agent.run_sync("Search the web for rules.").output)
