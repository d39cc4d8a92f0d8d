import sys
from pathlib import Path

from pydantic_ai import Agent, ModelMessagesTypeAdapter

agent = Agent("openai:gpt-5-mini")
# by hand: a store
file = Path("eve.json")
history = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else None
result = agent.run_sync(sys.argv[1], message_history=history)
file.write_bytes(result.all_messages_json())
print(result.output)
