"""Where the vendor itself has compacted the conversation: what came before that is no longer sent, once it is too much.

The vendor reads nothing before its own summary. It is still sent while it fits, because the request then begins
as the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath import _wire
from glidepath.values import AssistantMessage, Message, ReasoningBlock

if TYPE_CHECKING:
    from glidepath.run import Plan, Run


def leave_out_compacted(
    messages: Sequence[Message], sizes: Sequence[int], pinned: Sequence[int], plan: Plan
) -> tuple[Sequence[Message], Sequence[int], Sequence[int]]:
    """What a view is made from, its sizes and its pins, without what the vendor's last summary replaces."""
    first = next((place for place in range(len(messages) - 1, -1, -1) if _is_compaction(messages[place], plan)), None)
    if first is None:
        return messages, sizes, pinned
    head = [place for place in pinned if place < first]
    places = [*head, *range(first, len(messages))]
    later = [place - first + len(head) for place in pinned if place > first]
    kept = [*range(len(head) + 1), *later]  # the summary itself must stay, too
    return [messages[place] for place in places], [sizes[place] for place in places], kept


def restore_compacted(run: Run) -> None:
    """Another vendor answers, which cannot read the summary: show it the conversation itself."""
    messages, sizes = run.transcript.list_shapeable()
    run.set_view(list(messages), sum(sizes))


def _is_compaction(message: Message, plan: Plan) -> bool:
    return type(message) is AssistantMessage and any(
        type(block) is ReasoningBlock and block.vendor == plan.vendor and _has_summary(block.opaque)
        for block in message.blocks
    )


def _has_summary(opaque: str) -> bool:
    """True for a summary; one that failed is empty, and the vendor reads on before it."""
    if "compaction" not in opaque:
        return False
    try:
        item = _wire.loads(opaque)["item"]
        return item["type"] == "compaction" and bool(item.get("content") or item.get("encrypted_content"))
    except Exception:  # of another shape
        return False
