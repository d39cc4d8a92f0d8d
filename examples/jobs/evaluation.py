import asyncio

from glidepath import Agent, Limits
from glidepath.evals import Case, Dataset, Exact, evaluate

agent = Agent("openai:gpt-5-mini", limits=Limits(max_iterations=2))
cases = [Case(prompt="2 + 2", expected="4"), Case(prompt="3 + 3", expected="6"), Case(prompt="5 + 5", expected="10")]
report = asyncio.run(evaluate(Dataset(cases, evaluators=[Exact()]), agent))
print(report.to_text())
