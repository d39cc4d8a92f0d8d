from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

program = Path(__file__).parent.with_name("calculator_server.py")
agent = Agent("openai:gpt-5-mini", toolsets=[MCPToolset(program)])
print(agent.run_sync("What is 2 and 3?").output)
