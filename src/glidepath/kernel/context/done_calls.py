"""What a marker says of the calls in what was left out: that they were made, so that they are not made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glidepath import _wire
from glidepath._wire import Record, replace
from glidepath.kernel.context.groups import is_marker
from glidepath.kernel.context.measure import Estimate, message_size
from glidepath.spi import ContextStrategy, Shaped
from glidepath.values import AssistantMessage, Message, ToolCall, ToolResultMessage, add_origins, origins_of

LISTED = " Calls made in them, all of them done: "
WORDS = 32  # tokens of the words around that list
LEDGER_SHARE = 6  # what is done takes at most a sixth of the view
LARGEST = 2_000  # tokens of the list
LONGEST = 60  # characters of one call's arguments in it
MOST_LINES = 1_000  # calls that are remembered for it
MOST_READ = 4_000  # messages that are looked through at once, where a session is long when its run begins
COUNT = 4  # tokens of how often a call was made
TRIES = 4
GROWTH = 1.2  # the list is a little longer once it has made room for itself


class _Line(Record, eq=False):
    """Calls that read the same: how many there are, and the size of one."""

    size: int
    count: int = 0


class DoneCalls(Record, eq=False):
    """The calls in the part of a transcript that is no longer in view. Each message is read once."""

    estimate: Estimate
    upto: int = 0
    lines: dict[str, _Line] = {}  # noqa: RUF012 - copied for each
    more: int = 0
    origins: tuple[str, ...] = ()

    def read(self, messages: Sequence[Message], upto: int) -> None:
        """Take in what has gone since the last time; all of it again where some has come back."""
        if upto < self.upto:
            self.upto, self.lines, self.more, self.origins = 0, {}, 0, ()
        gone = messages[max(self.upto, upto - MOST_READ) : upto]
        self.upto = upto
        self.origins = tuple(dict.fromkeys((*self.origins, *origins_of(gone))))
        for marker in filter(is_marker, gone):  # of a session that was compacted before
            self._add_words(marker.text.partition(LISTED)[2].removesuffix("]").split("; "))
        self.add(list_done_calls(gone, gone))
        while len(self.lines) > MOST_LINES:
            del self.lines[next(iter(self.lines))]
            self.more += 1

    def add(self, calls: Iterable[ToolCall]) -> None:
        """Add these calls, the newest of them last."""
        self._add_words(describe_call(call) for call in calls)

    def _add_words(self, calls: Iterable[str]) -> None:
        for words in filter(None, calls):
            line = self.lines.pop(words, None) or _Line(self.estimate(words) + 1)
            line.count += 1
            self.lines[words] = line

    def write(self, room: int) -> tuple[str, int]:
        """As many as fit, the newest first to be kept, how many there are beside; and the size of that."""
        # The sizes of the lines need not add up to that of the text: what is too long is made shorter by as much.
        limit = room = room - WORDS
        for _ in range(TRIES):
            text = self._join(limit)
            size = self.estimate(text) if text else 0
            if size <= room:
                return text, size + WORDS
            limit = limit * room // (size + 1)
        return "", WORDS

    def _join(self, room: int) -> str:
        counted: list[str] = []
        for words, line in reversed(self.lines.items()):
            room -= line.size + (0 if line.count == 1 else COUNT)
            if room < 0:
                break
            counted.append(words if line.count == 1 else f"{words} ({line.count} times)")
        more = self.more + len(self.lines) - len(counted)
        if counted and more:
            counted.append(f"{more} that are not listed")
        return "; ".join(reversed(counted))


def shape_with_done_calls(
    strategy: ContextStrategy,
    done: DoneCalls,
    messages: Sequence[Message],
    sizes: Sequence[int],
    budget: int,
    pinned: Sequence[int],
) -> Shaped:
    """The view that a strategy makes, within the budget; its marker lists the calls that are no longer in view."""
    shaped = strategy.shape(messages, sizes, budget, pinned)
    upto = _find_rest(shaped, messages)
    if upto is None:
        return shaped
    done.read(messages, upto)
    text, size = done.write(min(budget // LEDGER_SHARE, LARGEST))
    if not text:
        return shaped
    # What makes room for the list is listed as well.
    size = min(budget // LEDGER_SHARE, LARGEST, int(size * GROWTH))
    listed = strategy.shape(messages, sizes, budget - size, pinned)
    upto = _find_rest(listed, messages)
    if upto is None:
        return shaped  # there is room for one of the two
    done.read(messages, upto)
    mark_done_calls(listed, done.write(size)[0], done.origins, done.estimate)
    return listed if listed.tokens <= budget else shaped


def _find_rest(shaped: Shaped, messages: Sequence[Message]) -> int | None:
    """Where in the transcript that begins which the view has behind its marker; None without a marker."""
    place = next((place for place, message in enumerate(shaped.messages) if is_marker(message)), None)
    if place is None or place + 1 >= len(shaped.messages):
        return None
    first = shaped.messages[place + 1]
    return next((place for place in range(len(messages) - 1, -1, -1) if messages[place] is first), None)


def list_done_calls(gone: Iterable[Message], messages: Iterable[Message]) -> list[ToolCall]:
    """The calls of these messages, but for those that failed, which may be made again."""
    failed = {one.call_id for one in messages if type(one) is ToolResultMessage and one.is_error}
    calls = [call for one in gone if type(one) is AssistantMessage for call in one.tool_calls]
    return [call for call in calls if call.id not in failed]


def describe_call(call: ToolCall) -> str:
    """A call in a few words."""
    try:
        text = _wire.encode(dict(call.arguments)).decode()
    except Exception:  # what JSON cannot hold
        text = "..."
    text = " ".join(text.split())
    return f"{call.name} {text if len(text) <= LONGEST else f'{text[: LONGEST - 3]}...'}"


def mark_done_calls(shaped: Shaped, text: str, origins: tuple[str, ...], estimate: Estimate) -> None:
    """Add the list to the marker of a view that has one."""
    place = next(place for place, message in enumerate(shaped.messages) if is_marker(message))
    marker = shaped.messages[place]
    told = replace(marker, content=f"{marker.text[:-1]}{LISTED}{text}]")
    told = add_origins(told, origins)
    shaped.messages[place], shaped.sizes[place] = told, message_size(told, estimate)
