import asyncio

from agents import Agent, ModelSettings, Runner

agent = Agent(name="translator", model="gpt-5-mini", model_settings=ModelSettings(max_tokens=100))
items = [f"Translate word {number}." for number in range(30)]


async def main() -> None:
    # by hand: how many at a time, and one budget for all, which is only looked at before a start
    left, places = 100_000, asyncio.Semaphore(10)

    async def translate(item: str) -> str | None:
        nonlocal left
        async with places:
            if left <= 0:
                return None
            result = await Runner.run(agent, item, max_turns=3)
            left -= result.context_wrapper.usage.total_tokens
            return result.final_output

    results = await asyncio.gather(*map(translate, items))
    print(sum(result is not None for result in results), "of", len(results))


asyncio.run(main())
