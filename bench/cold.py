"""A first scripted result in a fresh process, tool call included: CPU time of the process, and what it has imported.

    python bench/cold.py            # its figures as JSON
    python bench/cold.py --base     # asyncio and msgspec alone

Run it twice: the first time compiles. `bench/wide.py` runs it many times, and `tests/bench/test_cold_start.py` looks at
the modules.
"""

import json
import sys
import time


def base() -> None:
    import asyncio

    import msgspec

    async def nothing() -> None:
        msgspec.json.encode({})

    asyncio.run(nothing())


def first_result() -> None:
    import asyncio

    from glidepath import Agent, Limits, tool
    from glidepath.testing import ScriptedModel, call, say

    @tool
    async def lookup(query: str) -> str:
        """Look something up."""
        return f"{query}: found 7 entries"

    async def first() -> str:
        model = ScriptedModel([call("lookup", query="a"), say("done")])
        return (await Agent(model=model, tools=[lookup], limits=Limits(max_iterations=5)).run("Go.")).text

    assert asyncio.run(first()) == "done"


def main() -> None:
    base() if "--base" in sys.argv else first_result()
    spent = time.process_time()  # with the start of the interpreter
    print(json.dumps({"cost_us": spent * 1e6, "modules": sorted(sys.modules)}))


if __name__ == "__main__":
    main()
