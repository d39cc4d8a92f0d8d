import sys

from agents import Agent, Runner, SQLiteSession

agent = Agent(name="friend", model="gpt-5-mini")
print(Runner.run_sync(agent, sys.argv[1], session=SQLiteSession("eve", "memory.db")).final_output)
