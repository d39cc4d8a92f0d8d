from pathlib import Path

from glidepath import Agent, Limits
from glidepath.mcp import McpServer

program = Path(__file__).with_name("calculator_server.py")
agent = Agent("openai:gpt-5-mini", tools=[McpServer("calculator", command=program)], limits=Limits(max_iterations=5))
print(agent.run_sync("What is 2 and 3?").text)
