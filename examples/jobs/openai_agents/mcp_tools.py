import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

program = str(Path(__file__).parent.with_name("calculator_server.py"))


async def main() -> None:
    async with MCPServerStdio({"command": sys.executable, "args": [program]}) as calculator:
        agent = Agent(name="clerk", model="gpt-5-mini", mcp_servers=[calculator])
        print((await Runner.run(agent, "What is 2 and 3?")).final_output)


asyncio.run(main())
