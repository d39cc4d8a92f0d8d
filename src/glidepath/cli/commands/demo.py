"""See an agent fly on the embedded model: no key, no account, no network once the model is here.

A real model of 135 million parameters answers a question with a tool, under a budget. It is small, so do not expect
much of what it says; look at what the runtime does.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from glidepath.cli.world import World

__all__ = ["NEXT", "TASK", "add_arguments", "execute"]

EMBEDDED = "local:smollm2"
TASK = "What does the atlas say about Lisbon?"
ATLAS = {
    "Lisbon": "Lisbon is the capital of Portugal. It lies on the river Tagus and has 548,000 people.",
    "Oslo": "Oslo is the capital of Norway. It lies on a fjord and has 710,000 people.",
    "Wellington": "Wellington is the capital of New Zealand. It lies on Cook Strait and has 213,000 people.",
}
NEXT = """\
Now with a model of your choice, on the folder you are in:
  export ANTHROPIC_API_KEY=...
  glidepath run --model anthropic:claude-sonnet-4-5 --max-budget-usd 0.50 "what is in this folder?"
  glidepath chat --model anthropic:claude-sonnet-4-5
`glidepath models` lists the others, `glidepath run --help` every flag.
"""
_MEGA = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath demo` takes."""
    parser.add_argument("task", nargs="?", default=TASK, help=f"what to ask (default: {TASK!r})")
    parser.add_argument("--model", metavar="NAME", default=EMBEDDED, help=f"another model (default: {EMBEDDED})")


def execute(options: argparse.Namespace, world: World) -> int:
    """Fetch the model if needed, fly, and say what to do next."""
    import asyncio

    from glidepath.agent import Agent, Limits
    from glidepath.cli.assemble import make_model
    from glidepath.cli.commands.run import fly, make_screen
    from glidepath.cli.layers import gather

    settings = gather(argparse.Namespace(no_config=True), world)
    own = options.model == EMBEDDED
    if own:
        _fetch(world)
    model = make_model(options.model, world)
    limits = Limits(max_iterations=4, max_tokens=4000, timeout=120)
    agent = Agent(model=model, tools=[_atlas()], limits=limits, temperature=0 if own else None, max_output_tokens=256)
    world.write(f"model  {options.model}\ntool   atlas\nlimits 4 turns, 4k tokens, 2 minutes\n\n> {options.task}\n")
    try:
        code = asyncio.run(fly(agent, options.task, make_screen(settings, agent, world), settings, world))
    finally:
        getattr(model, "close", _nothing)()
    if code == 0:
        world.write("\n" + NEXT)
    return code


def _atlas() -> Any:
    from glidepath.tools import tool

    @tool(read_only=True, idempotent=True)
    async def atlas(city: str) -> str:
        """Look a city up in the atlas."""
        return ATLAS.get(city.strip(), f"{city} is not in the atlas. It has {', '.join(ATLAS)}.")

    return atlas


def _fetch(world: World) -> None:
    from glidepath import models
    from glidepath.errors import ConfigurationError

    pull: Any = getattr(models, "pull", None)
    if pull is None:
        raise ConfigurationError("the embedded model is not available in this version; name another with --model")
    pull("smollm2", progress=progress_line(world))


def progress_line(world: World) -> Callable[[int, int], None]:
    """A line that shows how much is here; only on a terminal, and only when something is fetched."""
    live = world.is_terminal(world.stderr)
    last = [-1]

    def show(done: int, total: int) -> None:
        share = min(100, done * 100 // total) if total else 100
        if share == last[0] or (last[0] < 0 and share == 100):  # noqa: PLR2004 - it was here already
            return
        last[0] = share
        if live:
            end = "\n" if share == 100 else ""  # noqa: PLR2004
            world.stderr.write(f"\rfetching the model {share:3d} % of {total // _MEGA} MB{end}")
            world.stderr.flush()

    return show


def _nothing() -> None:
    pass
