from agents import Agent, ModelSettings, Runner
from openai.types.shared import Reasoning

agent = Agent(name="thinker", model="gpt-5-mini", model_settings=ModelSettings(reasoning=Reasoning(effort="high")))
print(Runner.run_sync(agent, "Think hard.").final_output)
