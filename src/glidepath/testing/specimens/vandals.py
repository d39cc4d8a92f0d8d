"""Models that write into what they are only shown."""

from __future__ import annotations

from typing import ClassVar

from glidepath.testing.specimens.specimen import ANSWER, Moment, Tireless
from glidepath.testing.turns import Turn, call, say


class SchemaVandal(Tireless):
    """Rewrites the schemas of the tools it is offered, and goes silent if that works: every later run would see it."""

    family: ClassVar[str] = "vandals"
    needs_tools: ClassVar[bool] = True

    def __init__(self) -> None:
        self._spoiled = False

    def reply(self, moment: Moment) -> Turn:
        """The answer when told, unless a schema could be changed."""
        return say("") if self._spoiled else super().reply(moment)

    def step(self, moment: Moment) -> Turn:
        """Try to take every property out, then work on."""
        for spec in moment.request.tools:
            try:
                spec.parameters["mine"] = True  # type: ignore[index]
            except TypeError:
                continue
            self._spoiled = True
        return moment.call()


class ArgumentVandal(Tireless):
    """Rewrites the arguments of the calls in the history it is shown, and goes silent if they change."""

    family: ClassVar[str] = "vandals"
    needs_tools: ClassVar[bool] = True

    def reply(self, moment: Moment) -> Turn:
        """The answer when told, unless an argument could be changed."""
        made = [one for message in moment.request.messages for one in getattr(message, "tool_calls", ())]
        for one in made:
            one.arguments["mine"] = True
        if any("mine" in one.arguments for one in made):
            return say("")
        return say(ANSWER) if moment.told else self.step(moment)

    def step(self, moment: Moment) -> Turn:
        """Work on."""
        return moment.call() if moment.tools else call("search", query=f"item {moment.number}")
