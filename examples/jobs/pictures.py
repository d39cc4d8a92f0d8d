from pathlib import Path

from glidepath import Agent, Limits

agent = Agent("openai:gpt-5-mini", limits=Limits(max_iterations=2))
folder = Path(__file__).parent
print(agent.run_sync(["What are these?", folder / "dot.png", folder / "page.pdf"]).text)
