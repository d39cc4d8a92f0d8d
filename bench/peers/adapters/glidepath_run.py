"""The same agent through `run()`: nobody listens. For `bench/wide.py`; it is no framework of its own."""

from adapters.glidepath import AGENTS, EXTRAS, NAME, PACKAGES, STATEMENT, STORE
from script import PROMPT, Script

__all__ = ["EXTRAS", "NAME", "PACKAGES", "STATEMENT", "STORE", "play"]


async def play(script: Script) -> None:
    await AGENTS[None].run(PROMPT)
    script.seen = script.asked * script.deltas  # nobody has asked for them
