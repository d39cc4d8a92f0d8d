"""Old results are cleared before whole groups go: that a call was made stays in view, and so it is not made again."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath._wire import replace
from glidepath.kernel.context.done_calls import LARGEST, LEDGER_SHARE, DoneCalls, list_done_calls, mark_done_calls
from glidepath.kernel.context.groups import find_newest_group, is_marker, make_view, select
from glidepath.kernel.context.measure import message_size
from glidepath.kernel.context.strategies import Compact
from glidepath.spi import Shaped
from glidepath.values import Message, ToolCall, ToolResultMessage, origins_of, pluralize

NOTE = " of this result: cleared to save room. The call was made and is done.]"


class ClearResults(Compact):
    """Clears old results, the oldest first, and drops whole groups as `Compact` does where that is not enough.

    A cleared result keeps its place and always has the same words, so that what was cleared before stays part of the
    prefix that a provider has cached. Errors stay, they are short, and so do pinned results. The marker for what is
    dropped lists the calls that were made in it, so that a step that is done is not done again.
    """

    name: str = "clear"
    lists_done_calls = False  # it does so by itself

    def shape(self, messages: Sequence[Message], sizes: Sequence[int], budget: int, pinned: Sequence[int]) -> Shaped:
        """The transcript with old results cleared; without its oldest groups where it does not fit even so."""
        view, smaller = self._clear_results(messages, sizes, budget, frozenset(pinned))
        shaped = make_view(view, smaller, budget, select(view, smaller, budget, pinned, self._mark), self._mark)
        if not _find_gone_calls(shaped, messages):
            return shaped
        room = min(budget // LEDGER_SHARE, LARGEST)
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
        if not any(is_marker(message) for message in shaped.messages):
            return
        shown = {id(message) for message in shaped.messages}
        done = DoneCalls(self._estimate)
        done.add(_find_gone_calls(shaped, messages))
        text, _ = done.write(room)
        if text:
            origins = origins_of(one for one in messages if id(one) not in shown)
            mark_done_calls(shaped, text, origins, self._estimate)


def clear_result(message: ToolResultMessage) -> ToolResultMessage:
    """The message with a note in place of what the tool returned: always the same for the same result."""
    size = pluralize(len(message.text), "character")
    return replace(message, content=f"[{size}{NOTE}")


def _find_gone_calls(shaped: Shaped, messages: Sequence[Message]) -> list[ToolCall]:
    """The calls that are no longer in view, but for those that failed."""
    shown = {id(message) for message in shaped.messages}
    return list_done_calls([one for one in messages if id(one) not in shown], messages)
