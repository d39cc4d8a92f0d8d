"""A plugin, a constraint and a tool for any glidepath agent that lists them by name."""

import re

from glidepath import Plugin, ResourceConstraint, ResourceContext, ResourceValidation, tool
from glidepath.spi import AfterDecision, ToolResultContext

LONG_NUMBER = re.compile(r"\d{8,}")


class RedactNumbers(Plugin):
    """Long numbers in tool results are taken out before they are in the transcript."""

    def after_tool_call(self, context: ToolResultContext) -> AfterDecision | None:
        redacted = LONG_NUMBER.sub("[number]", context.result.text)
        return AfterDecision(content=redacted) if redacted != context.result.text else None


class MostToolCalls(ResourceConstraint):
    """A run lands after this many tool calls."""

    def __init__(self, most: int) -> None:
        self.most = most

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        if context.tool_calls < self.most:
            return ResourceValidation.ok()
        return ResourceValidation.violation(f"{self.most} tool calls are enough", most=self.most)


def quiet_tools() -> MostToolCalls:
    """What the entry point names may be an object, its class, or a function that makes it."""
    return MostToolCalls(3)


@tool
async def count_words(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words, reference {abs(hash(text)) % 10**9 + 10**9}"
