"""Trace the walks that the house tour draws: a plain run, a durable run, a landing and a resume.

python scripts/trace_walk.py                # the four walks, as the tour shows them
python scripts/trace_walk.py landing        # one of them
python scripts/trace_walk.py plain --calls  # every call of it, indented by depth
python scripts/trace_walk.py --write        # write the four walks into the tour

A walk names each file once, where it is entered first, with the function that was called there: what a reader opens, in
which order. `docs/house-tour.md` shows what this prints, and a test compares the two.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glidepath"
TOUR = ROOT / "docs" / "house-tour.md"
QUIET = ("_wire.py", "_lazy.py", "values/", "spi/", "testing/")
"""What every phase passes through: values that are made and read, and the fakes."""

Work: TypeAlias = Callable[[], Awaitable[Any]]


class Step(NamedTuple):
    """A call of ours."""

    depth: int
    file: str
    function: str


def trace(work: Work) -> list[Step]:
    """Run this and return every call of ours, in order."""
    found: list[Step] = []
    depth = 0

    def follow(frame: Any, event: str, _: object) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)):
            return
        if event == "call":
            depth += 1
            if code.co_name[0] != "<":
                file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
                found.append(Step(depth, file, code.co_qualname))
        elif event == "return":
            depth -= 1

    async def followed() -> None:
        sys.setprofile(follow)
        try:
            await work()
        finally:
            sys.setprofile(None)

    asyncio.run(followed())
    return found


def draw(steps: list[Step], known: Collection[str] = ()) -> str:
    """The walk: each file once, where it was entered first, with the function that was called there.

    Files of `known` are left out: what another walk has shown.
    """
    seen: dict[str, str] = {}
    for step in steps:
        if not step.file.startswith(QUIET) and step.file not in known:
            seen.setdefault(step.file, step.function)
    width = max(map(len, seen))
    return "\n".join(f"{file:<{width}}  {function}" for file, function in seen.items())


def _make_agent(*, calls: int = 1, turns: int = 5, asks: bool = False, store: Any = None) -> Any:
    from glidepath import Agent, Limits, tool
    from glidepath.testing import ScriptedModel, call, say

    @tool(idempotent=True, requires_approval=asks)
    async def look(place: str) -> str:
        """Look."""
        return f"saw {place}"

    said = [*(call("look", place=f"room {number}") for number in range(calls)), say("Done.")]
    return Agent(model=ScriptedModel(said), tools=[look], limits=Limits(max_iterations=turns), store=store)


def plain() -> Work:
    """A prompt, a tool call, an answer."""
    agent = _make_agent()
    return lambda: agent.run("go")


def durable() -> Work:
    """The same with a store: every turn is on disk before the next begins."""
    from glidepath.sessions import MemoryStore

    agent = _make_agent(store=MemoryStore())
    return lambda: agent.run("go", session="s")


def landing() -> Work:
    """The model wants more turns than it has: it is told so before the last one, and then asked for an answer."""
    agent = _make_agent(calls=3, turns=3)
    return lambda: agent.run("go")


def resume() -> Work:
    """A run that waited for a person goes on, from its journal."""
    from glidepath import approve
    from glidepath.sessions import MemoryStore

    agent = _make_agent(asks=True, store=MemoryStore())
    [waiting] = asyncio.run(agent.run("go", session="s")).pending
    return lambda: agent.resume("s", decisions={waiting.call.id: approve()})


SENTENCES = {
    "plain": "\nA plain run:",
    "durable": "\nA durable run",
    "landing": "\nA landing:",
    "resume": "\nA resume:",
}
"""How the tour's sentence about each walk begins."""

WALKS: dict[str, Callable[[], Work]] = {"plain": plain, "durable": durable, "landing": landing, "resume": resume}


def trace_all() -> dict[str, list[Step]]:
    """Every walk. Each is walked twice and the second time counts: what a process makes once is no part of it."""
    for walk in WALKS.values():
        asyncio.run(_run(walk()))
    return {name: trace(walk()) for name, walk in WALKS.items()}


async def _run(work: Work) -> None:
    await work()


def draw_all(walks: dict[str, list[Step]]) -> dict[str, str]:
    """Each walk as the tour shows it: the plain one whole, of the others the files that it does not have."""
    known = {step.file for step in walks["plain"]}
    return {name: draw(steps, () if name == "plain" else known) for name, steps in walks.items()}


def write(drawn: dict[str, str]) -> None:
    """Put the walks into the tour, each in the block that follows its sentence."""
    text = TOUR.read_text(encoding="utf-8")
    for name, lines in drawn.items():
        sentence = text.index(SENTENCES[name])
        begin = text.index("```text\n", sentence) + len("```text\n")
        text = f"{text[:begin]}{lines}\n{text[text.index('```', begin) :]}"
    TOUR.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walk", nargs="?", choices=tuple(WALKS))
    parser.add_argument("--calls", action="store_true", help="every call, indented by its depth")
    parser.add_argument("--write", action="store_true", help="write the walks into docs/house-tour.md")
    options = parser.parse_args()
    walks = trace_all()
    if options.write:
        write(draw_all(walks))
        return
    for name, drawn in draw_all(walks).items():
        if options.walk in (None, name):
            every = "\n".join(f"{'  ' * (one.depth - 1)}{one.file}: {one.function}" for one in walks[name])
            print(f"{name}\n{every if options.calls else drawn}\n")


if __name__ == "__main__":
    main()
