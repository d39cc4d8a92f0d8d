from agents import Agent, Runner, WebSearchTool
from openai.types.responses.web_search_tool import Filters

search = WebSearchTool(filters=Filters(allowed_domains=["example.org"]))
agent = Agent(name="clerk", model="gpt-5-mini", tools=[search])
print(Runner.run_sync(agent, "Search the web for rules.").final_output)
