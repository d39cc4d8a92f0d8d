"""Which messages of a transcript go into a view, by whole units, looking back only as far as the view reaches.

A unit is one message, or an assistant message with tool calls together with all its results. A result belongs to
the nearest call before it that carries its id; a result that belongs to none is never part of a view. Because
results follow their call, a view that is a suffix of the transcript can only ever lose a call, never a result alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from glidepath._wire import Record
from glidepath.kernel.context.measure import Estimate, message_size
from glidepath.spi import Shaped
from glidepath.values import AssistantMessage, Message, SystemMessage, ToolCall, ToolResultMessage, UserMessage

MARKER_REASON = "compacted"

_LOOK_BACK = 256  # how many user messages after an open batch still leave it open; bounds the search for it
_WIDEST_COUNT = 999_999_999
_MAX_DIGITS = 12


class Selection(Record):
    """What a view holds, as ascending indices: `pinned` and its groups, `kept` units, and how many are left out.

    `old_markers` are kept where they are; a new marker, when `left_out` asks for one, belongs before index `cut`.
    """

    pinned: list[int]
    kept: list[int]
    old_markers: list[int]
    cut: int
    left_out: int


# --- the marker -----------------------------------------------------------------------------------------------


def make_marker(count: int) -> UserMessage:
    """The message that replaces `count` earlier ones."""
    what = "message was" if count == 1 else "messages were"
    return UserMessage(f"[{count} earlier {what} left out here to fit the context.]", True, MARKER_REASON)


def marker_size(estimate: Estimate) -> int:
    """Tokens of any marker. The same for every count, so that what fits does not depend on it."""
    return message_size(make_marker(_WIDEST_COUNT), estimate)


def is_marker(message: Message) -> bool:
    """True for a marker that an earlier shaping left."""
    return type(message) is UserMessage and message.internal and message.reason == MARKER_REASON


def _count(message: Message) -> int:
    digits = message.text[1:].partition(" ")[0]
    return int(digits) if digits.isdecimal() and len(digits) <= _MAX_DIGITS else 0


# --- units ----------------------------------------------------------------------------------------------------


def has_calls(message: Message) -> bool:
    """True for an assistant message that asks for tools."""
    return type(message) is AssistantMessage and any(type(block) is ToolCall for block in message.blocks)


def _claim(message: AssistantMessage, pending: dict[str, list[int]]) -> list[int]:
    """The results of this message's calls, taken from those found so far, back to front: the earliest is the last."""
    claimed = []
    for call in message.tool_calls:
        waiting = pending.get(call.id)
        if waiting:
            claimed.append(waiting.pop())
    return claimed


def _group_around(messages: Sequence[Message], index: int) -> list[int]:
    """The whole unit that a message belongs to; empty for an orphan result."""
    start = index
    if type(messages[index]) is ToolResultMessage:
        while start > 0 and type(messages[start]) is not AssistantMessage:
            start -= 1
    elif not has_calls(messages[index]):
        return [index]
    head = messages[start]
    wanted = [call.id for call in head.tool_calls] if type(head) is AssistantMessage else []
    unit = [start]
    for i in range(start + 1, len(messages)):
        message = messages[i]
        if not wanted or type(message) is AssistantMessage:
            break
        if type(message) is ToolResultMessage and message.call_id in wanted:
            wanted.remove(message.call_id)
            unit.append(i)
    return unit if index in unit and type(head) is AssistantMessage else []


def find_newest_group(messages: Sequence[Message]) -> int:
    """Where the newest group begins: the open batch with all that was said since, else the last message."""
    last = count = len(messages)
    said = 0
    for i in range(count - 1, -1, -1):
        message = messages[i]
        kind = type(message)
        if kind is AssistantMessage:
            if last == count or has_calls(message):
                return i
            break
        if (kind is UserMessage or kind is SystemMessage) and not is_marker(message):
            last = i if last == count else last
            said += 1
            if said > _LOOK_BACK:
                break
    return last


# --- the selection --------------------------------------------------------------------------------------------


def select(
    messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int], mark: int
) -> Selection:
    """The pinned and the newest units within `budget`, of which `mark` is set aside if anything is left out."""
    count = len(messages)
    fixed = {i for index in pinned if 0 <= index < count for i in _group_around(messages, index)}
    newest = cut = find_newest_group(messages)
    markers = {i + 1 for i in (-1, *fixed) if i + 1 < count and i + 1 not in fixed and is_marker(messages[i + 1])}
    spent = sum([sizes[i] for i in fixed])
    kept: list[int] = []
    safe = 0  # so many of `kept` leave room for the marker
    pending: dict[str, list[int]] = {}
    complete = True
    for i in range(count - 1, -1, -1):
        if i in fixed:
            continue
        message = messages[i]
        unit = [i]
        if type(message) is ToolResultMessage:
            pending.setdefault(message.call_id, []).append(i)
            continue
        if type(message) is AssistantMessage:
            unit += _claim(message, pending)
        elif type(message) is not UserMessage and type(message) is not SystemMessage:
            continue  # never sent
        elif is_marker(message):
            markers.add(i)
            continue
        size = sum([sizes[j] for j in unit])
        if i < newest and spent + size > budget:
            complete = False
            break
        spent += size
        kept += unit
        if i >= newest or spent + mark <= budget:
            safe, cut = len(kept), i

    whole = complete and safe == len(kept) and not markers
    if whole or (complete and spent + sum([sizes[i] for i in markers]) <= budget):
        return Selection(sorted(fixed), sorted(kept), sorted(markers), cut, 0)
    left_out = count - len(fixed) - safe - len(markers) + sum([_count(messages[i]) for i in markers])
    return Selection(sorted(fixed), sorted(kept[:safe]), [], cut, left_out)


def make_view(
    messages: Sequence[Message], sizes: Sequence[int], budget: int, chosen: Selection, mark: int | None
) -> Shaped:
    """The chosen messages in their order, with a marker of size `mark` when something is left out and it fits."""
    order = sorted(chosen.pinned + chosen.kept + chosen.old_markers)
    shaped = Shaped(
        messages=[messages[i] for i in order],
        sizes=[sizes[i] for i in order],
        dropped=len(messages) - len(order),
    )
    if mark is not None and chosen.left_out > 0 and shaped.tokens + mark <= budget:
        place = bisect_left(order, chosen.cut)
        shaped.messages.insert(place, make_marker(chosen.left_out))
        shaped.sizes.insert(place, mark)
    return shaped
