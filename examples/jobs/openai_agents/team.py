import asyncio

from agents import Agent, Runner
from pydantic import BaseModel


class Review(BaseModel):
    good: bool
    advice: str


planner = Agent(name="planner", model="gpt-5-mini", output_type=list[str])
worker = Agent(name="worker", model="gpt-5-mini")
reviewer = Agent(name="reviewer", model="gpt-5-mini", output_type=Review)


async def main(goal: str) -> None:
    # by hand: the order of the work, and what each is told
    # missing: one budget
    done = ""
    for step in (await Runner.run(planner, f"Make a plan for this goal: {goal}")).final_output:
        advice = ""
        for _ in range(3):
            task = f"Goal: {goal}\nDone so far: {done}\nYour step: {step}\n{advice}"
            work = (await Runner.run(worker, task)).final_output
            review = (
                await Runner.run(reviewer, f"You review the work of others. Step: {step}\nWork: {work}")
            ).final_output
            if review.good:
                break
            advice = f"Your work was {work!r}; {review.advice}."
        done = work
    print(done)


asyncio.run(main("Tell me how bees talk."))
