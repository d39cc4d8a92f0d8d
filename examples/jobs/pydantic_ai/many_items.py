import asyncio

from pydantic_ai import Agent, RunUsage, UsageLimitExceeded, UsageLimits

agent = Agent("openai:gpt-5-mini", model_settings={"max_tokens": 100})
items = [f"Translate word {number}." for number in range(30)]


async def main() -> None:
    # by hand: how many at a time, one budget for all, and what happens when it is used up
    usage, limits, places = (
        RunUsage(),
        UsageLimits(total_tokens_limit=100_000, request_limit=None),
        asyncio.Semaphore(10),
    )

    async def translate(item: str) -> str | None:
        async with places:
            try:
                return (await agent.run(item, usage=usage, usage_limits=limits)).output
            except UsageLimitExceeded:
                return None

    results = await asyncio.gather(*map(translate, items))
    print(sum(result is not None for result in results), "of", len(results))


asyncio.run(main())
