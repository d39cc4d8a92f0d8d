"""Pictures and files in the view: older ones give way when they are too many bytes, or when a request was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import broke_prefix
from glidepath.tools import picture_bytes
from glidepath.values import FileBlock, ImageBlock, Message, TextBlock

if TYPE_CHECKING:
    from glidepath.run import Run

FILL = 0.75  # of the bytes that pictures may have, once some are left out
LEFT_OUT = "[an image, left out]"


def shed_pictures(run: Run, most: int) -> bool:
    """Leave pictures out of the view until at most `most` bytes are left; False when that changes nothing.

    The newest stay; those of the task of this run always do. The transcript keeps them all.
    """
    transcript, before, allowed = run.transcript, run.transcript.view, most
    if most:  # a quarter more goes at once, or every further picture would change what was sent before
        newest = next(filter(None, [_count_pictures(message) for message in reversed(before)]), 0)
        allowed = max(int(most * FILL), min(newest, most))
    transcript.allow_pictures(allowed)
    view = drop_excess_pictures(run, before)
    transcript.recount_pictures(sum([_count_pictures(message) for message in view]))
    if view is before:
        return False
    known = dict(zip(map(id, run.transcript.messages), run.transcript.sizes, strict=True))
    tokens = sum([known.get(id(message)) or run.plan.size_of(message) for message in view])
    was = run.transcript.view_tokens
    run.set_view(view, tokens)
    broke_prefix(run, "older pictures were left out")
    from glidepath.kernel.model_call.prefix_cost import report_shaped

    report_shaped(run, "pictures", before, was, tokens, 0)
    return True


def drop_excess_pictures(run: Run, messages: list[Message]) -> list[Message]:
    """The messages without the pictures that are too many; the same list when none is."""
    task = (
        run.transcript.messages[run.transcript.pinned[-1]]
        if run.transcript.pinned and run.transcript.pinned[-1] >= run.transcript.first_new
        else None
    )
    left = run.transcript.most_pictures
    slim = list(messages)
    changed = False
    for place in range(len(slim) - 1, -1, -1):
        message: Any = slim[place]
        size = _count_pictures(message)
        if not size:
            continue
        if message is task or size <= left:
            left = max(0, left - size)
            continue
        slim[place] = replace_pictures_with_text(message)
        changed = True
    return slim if changed else messages


def _count_pictures(message: Message) -> int:
    return picture_bytes(getattr(message, "content", ""))


def replace_pictures_with_text(message: Any) -> Any:
    """The message with a text in place of each picture and file; the same message when it has none."""
    if not _count_pictures(message):
        return message
    blocks = [TextBlock(_TOLD[type(block)]) if type(block) in _TOLD else block for block in message.content]
    return replace(message, content=tuple(blocks))


_TOLD: dict[type, str] = {ImageBlock: LEFT_OUT, FileBlock: "[a file, left out]"}
