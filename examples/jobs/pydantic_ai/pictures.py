from pathlib import Path

from pydantic_ai import Agent, BinaryContent

agent = Agent("openai:gpt-5-mini")
folder = Path(__file__).parent.parent
photo, report = BinaryContent.from_path(folder / "dot.png"), BinaryContent.from_path(folder / "page.pdf")
print(agent.run_sync(["What are these?", photo, report]).output)
