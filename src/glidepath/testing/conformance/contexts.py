"""The contract of a `ContextStrategy`, clause by clause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from glidepath.spi import ContextStrategy, Shaped
from glidepath.testing import transcript_errors
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.testing.conformance.transcripts import long_talk, sizes_of
from glidepath.values import AssistantMessage, Message, TextBlock, ToolCall, ToolResultMessage, UserMessage

T = TypeVar("T")
BUDGETS = (300, 700, 1500, 4000)


class ContextStrategyContract(Contract):
    """Subclass this and provide `make_strategy`: a strategy that makes views fit."""

    def make_strategy(self) -> ContextStrategy:
        """The strategy as a user would create it."""
        raise NotImplementedError(missing(self, "make_strategy"))

    def _views(self) -> Iterator[tuple[list[Message], list[int], int, Shaped]]:
        """Views of several transcripts within several budgets, the first message and a later one pinned."""
        for turns in (1, 7, 60):
            messages = long_talk(turns)
            for budget in BUDGETS:
                pinned = _choose_pinned(messages)
                yield messages, pinned, budget, self.make_strategy().shape(messages, sizes_of(messages), budget, pinned)

    def test_ctx_1_the_view_fits(self) -> None:
        """CTX-1: the view is within the budget, wherever the pinned and the newest messages are."""
        for messages, _, budget, view in self._views():
            assert view.tokens <= budget, f"{view.tokens} tokens of {len(messages)} messages, {budget} allowed"

    def test_ctx_2_calls_and_results_stay_together(self) -> None:
        """CTX-2: a call is never separated from its result, even in a batch of several."""
        for _, _, budget, view in self._views():
            assert not transcript_errors(view.messages), budget

    def test_ctx_3_pinned_messages_stay(self) -> None:
        """CTX-3: a pinned message (the task) is in every view, even in one that cannot fit."""
        for messages, pinned, _, view in self._views():
            assert all(any(kept is messages[index] for kept in view.messages) for index in pinned)
        messages = long_talk(20)
        tight = self.make_strategy().shape(messages, sizes_of(messages), 1, [0])
        assert any(kept is messages[0] for kept in tight.messages)

    def test_ctx_4_the_order_stays(self) -> None:
        """CTX-4: every message that is kept is kept once, in its original order."""
        for messages, _, _, view in self._views():
            places = [_place(messages, kept) for kept in view.messages]
            known = [place for place in places if place is not None]
            assert known == sorted(set(known)), known

    def test_ctx_5_what_fits_is_left_alone(self) -> None:
        """CTX-5: a transcript that fits is shown whole, and nothing is reported as left out."""
        for turns in (0, 1, 10):
            messages = long_talk(turns)
            view = self.make_strategy().shape(messages, sizes_of(messages), 10**6, [0])
            assert list(view.messages) == messages
            assert view.dropped == 0

    def test_ctx_6_it_says_what_it_did(self) -> None:
        """CTX-6: the sizes are those of the messages shown, and `dropped` is how many of the transcript are missing."""
        for messages, _, _, view in self._views():
            assert len(view.sizes) == len(view.messages)
            kept = [(_place(messages, message), size) for message, size in zip(view.messages, view.sizes, strict=True)]
            sizes = sizes_of(messages)
            assert all(size == sizes[place] for place, size in kept if place is not None)
            assert view.dropped == len(messages) - len([place for place, _ in kept if place is not None])

    def test_ctx_7_the_newest_is_kept(self) -> None:
        """CTX-7: the latest message is in the view: the model must see what it has to answer."""
        for messages, _, _, view in self._views():
            assert view.messages[-1] is messages[-1]

    def test_ctx_8_the_same_input_gives_the_same_view(self) -> None:
        """CTX-8: the same input gives the same view, from the same object or another, whatever happened in between."""
        strategy = self.make_strategy()
        for _ in range(2):
            for messages, pinned, budget, view in self._views():
                again = strategy.shape(messages, sizes_of(messages), budget, pinned)
                assert list(again.messages) == list(view.messages)
                assert (list(again.sizes), again.dropped) == (list(view.sizes), view.dropped)

    def test_ctx_9_the_transcript_stays_as_it_is(self) -> None:
        """CTX-9: the transcript, the sizes and the pins it is given are not changed."""
        messages = long_talk(40)
        sizes, pinned = sizes_of(messages), _choose_pinned(messages)
        before = (list(messages), list(sizes), list(pinned))
        view = self.make_strategy().shape(messages, sizes, 700, pinned)
        assert view.messages is not messages
        assert (messages, sizes, pinned) == before

    def test_ctx_10_what_cannot_fit_is_as_small_as_it_gets(self) -> None:
        """CTX-10: a view that cannot fit is returned, not refused, with nothing in it that could be left out."""
        huge = [UserMessage("x" * 9_000), *long_talk(10)[1:], UserMessage("y" * 9_000)]
        view = self.make_strategy().shape(huge, sizes_of(huge), 100, [0])
        assert view.messages[0] is huge[0]
        assert view.messages[-1] is huge[-1]
        newest = max(number for number, message in enumerate(huge) if isinstance(message, AssistantMessage))
        kept = [place for message in view.messages[1:] if (place := _place(huge, message)) is not None]
        assert min(kept) >= newest, "older than the newest calls, and not pinned"

    def test_ctx_11_the_cost_follows_the_view(self) -> None:
        """CTX-11: it looks only as far back as it needs to: a transcript ten times as long costs no more reads."""
        reads = []
        for turns in (300, 3_000):
            messages: Any = _Counted(long_talk(turns))
            sizes: Any = _Counted(sizes_of(messages.items))
            self.make_strategy().shape(messages, sizes, 1_000, [0])
            reads.append(messages.reads + sizes.reads)
        assert reads[1] <= 1.5 * reads[0] + 50, f"{reads[0]} reads, then {reads[1]}"

    def test_ctx_12_an_open_batch_is_shown_whole(self) -> None:
        """CTX-12: a batch that has just been answered is shown with all its results, even when it does not fit."""
        calls = tuple(ToolCall(f"z{number}", "lookup", {}) for number in range(4))
        batch = [AssistantMessage((TextBlock("Now."), *calls))]
        results = [ToolResultMessage(call.id, "lookup", "word " * 100) for call in calls]
        messages: list[Message] = [*long_talk(10), *batch, *results]
        view = self.make_strategy().shape(messages, sizes_of(messages), 200, [0])
        assert all(any(kept is result for kept in view.messages) for result in results)
        assert not transcript_errors(view.messages)


class _Counted(Sequence[T]):
    """A sequence that counts how often it is read."""

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.reads = 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int | slice) -> Any:
        self.reads += len(range(*place.indices(len(self.items)))) if isinstance(place, slice) else 1
        return self.items[place]


def _choose_pinned(messages: Sequence[Message]) -> list[int]:
    return [0] if len(messages) < 20 else [0, 16]


def _place(messages: Sequence[Message], wanted: Message) -> int | None:
    return next((number for number, message in enumerate(messages) if message is wanted), None)
