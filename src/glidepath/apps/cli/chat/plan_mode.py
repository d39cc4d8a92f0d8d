"""Plan mode: until the person leaves it, the model can read, and nothing that changes anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.spi import Block, Plugin, ToolCallContext

if TYPE_CHECKING:
    from glidepath.apps.cli.chat.chat_conversation import Conversation

_REFUSED = "plan mode: only tools that read run now. Write the plan, and stop; the person decides what happens next."
_BEGIN = "Plan first: read what you need, change nothing, and write down the steps you would take."
_END = "The plan may be carried out now."


class PlanMode(Plugin):
    """Blocks every tool that does not say that it only reads, while `on`."""

    name = "plan mode"

    def __init__(self) -> None:
        self.on = False

    def before_tool_call(self, context: ToolCallContext) -> Block | None:
        """Refuse what could change something."""
        return Block(_REFUSED) if self.on and not getattr(context.tool, "read_only", False) else None


def plan_command(talk: Conversation, text: str) -> str:
    """`/plan` begins planning, `/plan off` ends it."""
    if text not in ("", "on", "off"):
        return "/plan begins planning, /plan off ends it."
    wanted = text != "off"
    if talk.busy:
        return "A turn is running: Esc interrupts it."
    if wanted == talk.planning.on:
        return "Planning already: /plan off ends it." if wanted else "There is no plan mode to leave. /plan begins one."
    talk.planning.on = wanted
    talk.asides[:] = [one for one in talk.asides if one not in (_BEGIN, _END)]
    talk.asides.append(_BEGIN if wanted else _END)
    if wanted:
        return "Planning: only tools that read run, and the model is told with your next message. /plan off ends it."
    return "Planning is over: tools run again, and the model is told with your next message."
