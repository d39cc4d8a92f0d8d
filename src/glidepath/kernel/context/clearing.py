"""Old results are cleared before whole groups go: that a call was made stays in view, and so it is not made again."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath import _wire
from glidepath._wire import replace
from glidepath.kernel.context.groups import find_newest_group, is_marker, make_view, select
from glidepath.kernel.context.measure import Estimate, char_estimate, message_size
from glidepath.kernel.context.strategies import Compact
from glidepath.spi import Shaped
from glidepath.values import AssistantMessage, Message, ToolCall, ToolResultMessage, add_origins, origins_of, pluralize

NOTE = " of this result: cleared to save room. The call was made and is done.]"
WORDS = 32  # tokens of the words around that list
LEDGER_SHARE = 6  # what is done takes at most a sixth of the view
LONGEST = 60  # characters of one call's arguments in that list


class ClearResults(Compact):
    """Clears old results, the oldest first, and drops whole groups as `Compact` does where that is not enough.

    A cleared result keeps its place and always has the same words, so that what was cleared before stays part of the
    prefix that a provider has cached. Errors stay, they are short, and so do pinned results. The marker for what is
    dropped lists the calls that were made in it, so that a step that is done is not done again.
    """

    name: str = "clear"

    def __init__(self, estimate: Estimate = char_estimate) -> None:
        super().__init__(estimate)
        self._estimate = estimate

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The transcript with old results cleared; without its oldest groups where it does not fit even so."""
        view, smaller = self._clear_results(messages, sizes, budget, frozenset(pinned))
        shaped = make_view(view, smaller, budget, select(view, smaller, budget, pinned, self._mark), self._mark)
        if not _find_gone_calls(shaped, messages):
            return shaped
        room = min(budget // LEDGER_SHARE, 2_000)
        chosen = select(view, smaller, budget - room, pinned, self._mark)
        shaped = make_view(view, smaller, budget, chosen, self._mark)
        self._tell_what_is_done(shaped, messages, room)
        return shaped

    def _clear_results(
        self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: frozenset[int]
    ) -> tuple[list[Message], list[int]]:
        view, smaller, total = list(messages), list(sizes), sum(sizes)
        for place in range(find_newest_group(messages)):
            if total <= budget:
                break
            message = messages[place]
            if place in pinned or type(message) is not ToolResultMessage:
                continue
            if message.is_error or message.text.endswith(NOTE):
                continue
            cleared = clear_result(message)
            size = message_size(cleared, self._estimate)
            if size < sizes[place]:
                view[place], smaller[place] = cleared, size
                total -= sizes[place] - size
        return view, smaller

    def _tell_what_is_done(self, shaped: Shaped, messages: Sequence[Message], room: int) -> None:
        """Add the calls that are no longer in view to the marker, the newest of them first to be kept."""
        place = next((place for place, message in enumerate(shaped.messages) if is_marker(message)), None)
        if place is None:
            return
        shown = {id(message) for message in shaped.messages}
        lines = [_describe_call(call) for call in _find_gone_calls(shaped, messages)]
        counted = _count_repeats(lines)
        listed = len(counted)
        while counted and self._estimate("; ".join(counted)) > room - WORDS:
            del counted[: max(1, len(counted) // 8)]
        if not counted:
            return
        if len(counted) < listed:
            counted.insert(0, f"{listed - len(counted)} that are not listed")
        marker = shaped.messages[place]
        text = f"{marker.text[:-1]} Calls made in them, all of them done: {'; '.join(counted)}]"
        told = add_origins(replace(marker, content=text), origins_of(one for one in messages if id(one) not in shown))
        shaped.messages[place], shaped.sizes[place] = told, message_size(told, self._estimate)


def clear_result(message: ToolResultMessage) -> ToolResultMessage:
    """The message with a note in place of what the tool returned: always the same for the same result."""
    size = pluralize(len(message.text), "character")
    return replace(message, content=f"[{size}{NOTE}")


def _find_gone_calls(shaped: Shaped, messages: Sequence[Message]) -> list[ToolCall]:
    """The calls that are no longer in view, but for those that failed."""
    shown = {id(message) for message in shaped.messages}
    failed = {one.call_id for one in messages if type(one) is ToolResultMessage and one.is_error}
    gone = [one for one in messages if type(one) is AssistantMessage and id(one) not in shown]
    return [call for one in gone for call in one.tool_calls if call.id not in failed]


def _describe_call(call: ToolCall) -> str:
    try:
        text = _wire.encode(dict(call.arguments)).decode()
    except Exception:  # what JSON cannot hold
        text = "..."
    text = " ".join(text.split())
    return f"{call.name} {text if len(text) <= LONGEST else f'{text[: LONGEST - 3]}...'}"


def _count_repeats(lines: Sequence[str]) -> list[str]:
    times: dict[str, int] = {}
    for line in lines:
        times[line] = times.pop(line, 0) + 1
    return [line if count == 1 else f"{line} ({count} times)" for line, count in times.items()]
