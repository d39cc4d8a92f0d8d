from datetime import date

from pydantic_ai import Agent, RunContext

agent = Agent("openai:gpt-5-mini", deps_type=str)


@agent.instructions
def write(context: RunContext[str]) -> str:
    return f"You help {context.deps}. Today is {date.today():%A}."


print(agent.run_sync("Who am I, and what day is it?", deps="Eve").output)
