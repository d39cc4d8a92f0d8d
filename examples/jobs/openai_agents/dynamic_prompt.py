from datetime import date

from agents import Agent, RunContextWrapper, Runner


def write(wrapper: RunContextWrapper[str], agent: Agent[str]) -> str:
    return f"You help {wrapper.context}. Today is {date.today():%A}."


agent = Agent[str](name="friend", model="gpt-5-mini", instructions=write)
print(Runner.run_sync(agent, "Who am I, and what day is it?", context="Eve").final_output)
