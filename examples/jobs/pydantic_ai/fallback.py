from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel

agent = Agent(FallbackModel("openai-chat:gpt-5-mini", "openai:gpt-5-mini"))
print(agent.run_sync("Hello.").output)
