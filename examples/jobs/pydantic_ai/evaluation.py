from pydantic_ai import Agent
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected

agent = Agent("openai:gpt-5-mini")


async def ask(prompt: str) -> str:
    return (await agent.run(prompt)).output


pairs = {"2 + 2": "4", "3 + 3": "6", "5 + 5": "10"}
cases = [Case(inputs=prompt, expected_output=expected) for prompt, expected in pairs.items()]
Dataset(name="sums", cases=cases, evaluators=[EqualsExpected()]).evaluate_sync(ask, progress=False).print()
