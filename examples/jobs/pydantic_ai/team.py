import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, RunUsage, UsageLimits


class Review(BaseModel):
    good: bool
    advice: str


planner = Agent("openai:gpt-5-mini", output_type=list[str])
worker = Agent("openai:gpt-5-mini")
reviewer = Agent("openai:gpt-5-mini", output_type=Review)


async def main(goal: str) -> None:
    # by hand: the order of the work, what each is told, and one budget
    shared = {"usage": RunUsage(), "usage_limits": UsageLimits(total_tokens_limit=100_000)}
    done = ""
    for step in (await planner.run(f"Make a plan for this goal: {goal}", **shared)).output:
        advice = ""
        for _ in range(3):
            task = f"Goal: {goal}\nDone so far: {done}\nYour step: {step}\n{advice}"
            work = (await worker.run(task, **shared)).output
            review = (await reviewer.run(f"You review the work of others. Step: {step}\nWork: {work}", **shared)).output
            if review.good:
                break
            advice = f"Your work was {work!r}; {review.advice}."
        done = work
    print(done)


asyncio.run(main("Tell me how bees talk."))
