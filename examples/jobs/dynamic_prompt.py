from glidepath import Agent, Limits
from glidepath.spi import PromptContext


def write(context: PromptContext[str]) -> str:
    return f"You help {context.deps}. Today is {context.date:%A}."


agent = Agent("openai:gpt-5-mini", system_prompt=write, deps_type=str, limits=Limits(max_iterations=3))
print(agent.run_sync("Who am I, and what day is it?", deps="Eve").text)
