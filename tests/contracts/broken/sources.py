"""Sources of tools that break one clause each."""

import asyncio

from tests.contracts.examine import breaks

from glidepath.conformance import ToolSourceContract
from glidepath.tools import SourceError, Tool, ToolSource, ToolSupply, tool


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def wait(seconds: int) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


class Supply(ToolSupply):
    """Two functions, after a moment; a task of its own stands for a connection."""

    def __init__(self, source):
        self.source = source
        self.task = None

    async def tools(self):
        if not self.source.there:
            raise SourceError(f"source {self.source.name!r} is not there: start it")
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="connection")
        await asyncio.sleep(0.001)
        return self.source.offered

    async def close(self):
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None


class Source(ToolSource):
    """A source in this process."""

    supply = Supply
    offered = (add, wait)

    def __init__(self, name="shelf", *, there=True):
        self.name = name
        self.there = there

    def open(self):
        return self.supply(self)


class SourceTrial(ToolSourceContract):
    """The contract, with a source that keeps it."""

    kind = Source
    answered = ("add", {"a": 2, "b": 3}, "5")
    slow = ("wait", {"seconds": 60})

    def make_source(self):
        return self.kind()

    def unreachable(self):
        return self.kind(there=False)


class Eager(Source):
    def open(self):
        supply = super().open()
        supply.task = asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="connection")
        return supply


@breaks("SRC-1")
class StartsAtOnce(SourceTrial):
    """Starts when it is opened."""

    kind = Eager


class Forgetful(Source):
    class supply(Supply):  # noqa: N801
        async def tools(self):
            return [one.renamed(one.name) for one in await super().tools()]


@breaks("SRC-2", "SRC-3")
class OtherObjects(SourceTrial):
    """Makes its tools anew for everybody."""

    kind = Forgetful


class Jealous(Source):
    class supply(Supply):  # noqa: N801
        asked = 0

        async def tools(self):
            self.asked += 1
            first = self.asked == 1
            found = await super().tools()
            self.asked -= 1
            return found if first else [one.renamed(one.name) for one in found]


@breaks("SRC-3")
class OneAtATime(SourceTrial):
    """Gives those who come second something else."""

    kind = Jealous


class Mute(Source):
    offered = (tool(add.fn, name="plus"), wait)


@breaks("SRC-4", "SRC-8", "SRC-9")
class OtherNames(SourceTrial):
    """Offers its tools under other names than it says."""

    kind = Mute


class Vague(Source):
    class supply(Supply):  # noqa: N801
        async def tools(self):
            try:
                return await super().tools()
            except SourceError:
                raise SourceError("something went wrong") from None


@breaks("SRC-5")
class NamesNobody(SourceTrial):
    """Does not say which source it is."""

    kind = Vague


class Lingering(Source):
    class supply(Supply):  # noqa: N801
        async def close(self):
            self.task = None


@breaks("SRC-6", "SRC-4")
class LeavesItsTask(SourceTrial):
    """Leaves its connection open."""

    kind = Lingering


class Fragile(Source):
    class supply(Supply):  # noqa: N801
        broken = False

        async def tools(self):
            try:
                if self.broken:
                    raise SourceError(f"source {self.source.name!r} is broken")
                return await super().tools()
            except asyncio.CancelledError:
                self.broken = True
                raise


@breaks("SRC-7")
class BreaksWhenCancelled(SourceTrial):
    """Does not survive a caller who was cancelled."""

    kind = Fragile


@tool(name="wait")
async def stubborn(seconds: int) -> str:
    """Wait, whatever happens."""
    for _ in range(30):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue
    return f"waited {seconds}"


class Stubborn(Source):
    offered = (add, stubborn)


@breaks("SRC-8")
class IgnoresCancel(SourceTrial):
    """Goes on with a call that was cancelled."""

    kind = Stubborn


async def anything(**_given):
    """Add."""
    return "5"


class Lenient(Source):
    offered = (Tool(name="add", description="Add.", parameters={"type": "object"}, fn=anything), wait)


@breaks("SRC-9")
class TakesAnything(SourceTrial):
    """Does not look at the arguments."""

    kind = Lenient
