from glidepath import Agent, Limits
from glidepath.models import WebSearch

agent = Agent("openai:gpt-5-mini", tools=[WebSearch(allowed_domains=["example.org"])], limits=Limits(max_iterations=2))
print(agent.run_sync("Search the web for rules.").text)
