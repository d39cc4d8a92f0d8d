"""What the landing call sees: the task and the newest work, cut to a reserve however small."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath._wire import replace
from glidepath.kernel.context.groups import Selection, has_calls, make_marker, make_view, marker_size, select
from glidepath.kernel.context.measure import Estimate, char_estimate, guard_estimate, message_size
from glidepath.kernel.context.trimming import replace_text, text_with_placeholders, trim_message, trim_text
from glidepath.spi import Shaped
from glidepath.values import Message, ToolResultMessage, UserMessage, origins_of

_LEAST_TEXT = 32  # tokens of text below which a trimmed message says nothing
_TASK_LEAVES = 3  # a task too long for the budget leaves a third of it to the newest work
_MARK_SHARE = 4  # the marker is worth at most a quarter of what is left for the newest work


def landing_view(
    messages: Sequence[Message],
    sizes: Sequence[int],
    budget: int,
    pinned: Sequence[int],
    *,
    estimate: Estimate = char_estimate,
) -> Shaped:
    """A view within `budget` that always holds the task: as `Compact` makes it, trimmed further when that is too large.

    When the task and the newest group do not fit, the results of that group are trimmed to their beginning and end;
    when its calls alone do not fit, the group becomes one internal message that tells what the calls returned; and
    when nothing of it fits, it is left out. Only here is a task longer than the budget trimmed. The view is over the
    budget only when that cannot even hold a few words of every pinned message.
    """
    estimate = guard_estimate(estimate)
    mark = marker_size(estimate)
    chosen = select(messages, sizes, budget, pinned, mark)
    shaped = make_view(messages, sizes, budget, chosen, mark)
    return shaped if shaped.tokens <= budget else _Squeeze(messages, sizes, estimate).make_view(chosen, budget, mark)


class _Squeeze:
    """One attempt to make the pinned messages and the newest group fit."""

    def __init__(self, messages: Sequence[Message], sizes: Sequence[int], estimate: Estimate) -> None:
        self._messages = messages
        self._sizes = sizes
        self._estimate = estimate
        self._parts: dict[int, tuple[Message, int]] = {}

    def make_view(self, chosen: Selection, budget: int, mark: int) -> Shaped:
        need = self._total(chosen.kept)
        if self._total(chosen.pinned) > budget:
            self._fit(chosen.pinned, budget - min(budget // _TASK_LEAVES, need))
        else:
            self._keep(chosen.pinned)
        room = budget - sum([size for _, size in self._parts.values()])
        marked = chosen.left_out > 0 and mark * _MARK_SHARE <= room
        told = self._fit_newest_group(chosen.kept, room - mark if marked else room)

        order = sorted(self._parts)
        shaped = Shaped(
            messages=[self._parts[i][0] for i in order],
            sizes=[self._parts[i][1] for i in order],
            dropped=len(self._messages) - len(order) - told,
        )
        if marked:
            place = sum([i < chosen.cut for i in order])
            shaped.messages.insert(place, make_marker(chosen.left_out))
            shaped.sizes.insert(place, mark)
        return shaped

    def _fit_newest_group(self, kept: list[int], room: int) -> int:
        """Fit the newest group; returns how many messages live on inside another one."""
        said = [i for i in kept if not self._is_in_batch(i)]
        batch = [i for i in kept if self._is_in_batch(i)]
        short = sum([self._least_size_of(i) for i in said]) - room
        while said and short > 0:
            short -= self._least_size_of(said.pop(0))
        room -= self._fit(said, room)
        if not batch:
            return 0
        call, *results = batch
        if self._sizes[call] + sum([self._least_size_of(i) for i in results]) <= room:
            self._keep([call])
            self._fit(results, room - self._sizes[call])
            return 0
        digest = _digest_batch(self._messages[call], [self._messages[i] for i in results], room, self._estimate)
        if digest is None:
            return 0
        self._parts[call] = (digest, message_size(digest, self._estimate))
        return len(results)

    def _fit(self, indices: list[int], room: int) -> int:
        """Give each message its least and an even share of the rest; returns what they take together."""
        least = {i: self._least_size_of(i) for i in indices}
        spare = max(room - sum(least.values()), 0)
        taken = 0
        for rank, i in enumerate(sorted(indices, key=lambda i: self._sizes[i] - least[i])):
            part, size = self._messages[i], self._sizes[i]
            allowed = least[i] + spare // (len(indices) - rank)
            if size > allowed:
                part = trim_message(part, allowed, self._estimate)
                size = message_size(part, self._estimate)
            self._parts[i] = (part, size)
            taken += size
            spare -= max(size - least[i], 0)
        return taken

    def _keep(self, indices: list[int]) -> None:
        self._parts.update({i: (self._messages[i], self._sizes[i]) for i in indices})

    def _total(self, indices: list[int]) -> int:
        return sum([self._sizes[i] for i in indices])

    def _least_size_of(self, index: int) -> int:
        """The smallest size to which this message is trimmed."""
        bare = message_size(replace_text(self._messages[index], ""), self._estimate)
        return min(self._sizes[index], bare + _LEAST_TEXT)

    def _is_in_batch(self, index: int) -> bool:
        message = self._messages[index]
        return type(message) is ToolResultMessage or has_calls(message)


def _digest_batch(call: Message, results: Sequence[Message], room: int, estimate: Estimate) -> UserMessage | None:
    """What a batch of calls returned, as plain text in `room` tokens; None when that would say nothing."""
    bare = UserMessage("", internal=True, reason="flattened")
    room -= message_size(bare, estimate)
    if room < _LEAST_TEXT:
        return None
    share = max(room // max(len(results), 1) - _LEAST_TEXT // 2, _LEAST_TEXT)
    lines = ["[The last tool calls, shortened to fit.]", trim_text(call.text, share, estimate)]
    for result in [message for message in results if isinstance(message, ToolResultMessage)]:
        verb = "failed" if result.is_error else "returned"
        lines.append(f"{result.tool_name} {verb}: {trim_text(text_with_placeholders(result), share, estimate)}")
    text = trim_text("\n".join([line for line in lines if line]), room, estimate)
    return replace(bare, content=text, origins=origins_of(results))
