"""Transcripts for the property tests: healthy and damaged ones, and the rules a view must keep."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import settings, strategies as st

from glidepath.context import CharEstimator, message_size
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
)

quick = settings(deadline=None, max_examples=100)
estimate = CharEstimator().estimate
ids = st.sampled_from(["a", "b", "c", "a_2", "d", ""])
texts = st.one_of(st.text(max_size=12), st.integers(0, 600).map(lambda n: "x" * n))


def user(text, **more):
    return UserMessage(text, **more)


def say(text):
    return AssistantMessage((TextBlock(text),))


def asks(*call_ids, text="", tool="search"):
    head = (TextBlock(text),) if text else ()
    return AssistantMessage((*head, *[ToolCall(call_id, tool, {"q": call_id}) for call_id in call_ids]))


def gives(call_id, text="found"):
    return ToolResultMessage(call_id, "search", text)


def sizes_of(messages):
    return [message_size(message, estimate) for message in messages]


def shape(strategy, messages, budget, pinned=()):
    return strategy.shape(messages, sizes_of(messages), budget, pinned)


# Every message is an object of its own, so that a view can be traced back by identity.
noise = st.one_of(
    st.builds(lambda: user("wait")), st.builds(lambda: CustomMessage("note")), st.builds(lambda: say("hm"))
)


@st.composite
def batches(draw, *, call_ids=ids, damaged=False):
    calls = draw(st.lists(call_ids, min_size=1, max_size=4, unique=not damaged))
    results = [gives(call_id, draw(texts)) for call_id in calls]
    if damaged:
        results = draw(st.permutations(results))[draw(st.integers(0, 2)) :]
        doubles = [gives(result.call_id, "again") for result in results if draw(st.integers(0, 4)) == 0]
        between = draw(st.lists(noise, max_size=2))
        results = draw(st.permutations([*results, *doubles, *between]))
    reasoning = (ReasoningBlock("why", "0" * draw(st.integers(0, 50)), "v"),) if draw(st.booleans()) else ()
    head = asks(*calls, text=draw(texts))
    return [AssistantMessage(reasoning + head.blocks), *results]


plain = st.one_of(
    texts.map(user),
    texts.map(lambda text: user(text, internal=True, reason="notice")),
    texts.map(say),
    texts.map(SystemMessage),
    st.builds(lambda: CustomMessage("log", {"a": 1})),
    st.builds(lambda: UnknownMessage("later", b"{}")),
)
orphans = st.builds(gives, ids, texts)
old_markers = st.integers(1, 99).map(
    lambda n: user(f"[{n} earlier messages were left out here to fit the context.]", internal=True, reason="compacted")
)


@st.composite
def healthy(draw):
    """User, assistant and custom messages, and batches whose call ids are used once."""
    counter = iter(range(10_000))
    fresh = st.builds(lambda: f"call{next(counter)}")
    turns = draw(st.lists(st.one_of(plain.map(lambda m: [m]), batches(call_ids=fresh)), max_size=12))
    return [user(draw(texts)), *[message for turn in turns for message in turn]]


@st.composite
def damaged(draw, *, markers=True):
    """Anything: lost, doubled, moved and orphan results, ids used again, markers of an earlier shaping."""
    single = st.one_of(plain, orphans, *([old_markers] if markers else [])).map(lambda m: [m])
    turns = draw(st.lists(st.one_of(single, batches(), batches(damaged=True)), max_size=12))
    return [message for turn in turns for message in turn]


def pins(messages, *, only=(UserMessage, SystemMessage)):
    """Up to three pinned indices of a transcript."""
    able = [i for i, message in enumerate(messages) if isinstance(message, only) and not is_marker(message)]
    return st.lists(st.sampled_from(able), max_size=3, unique=True).map(sorted) if able else st.just([])


budgets = st.one_of(st.integers(0, 60), st.integers(0, 2_000), st.just(10**9))


@st.composite
def cases(draw, source, *, only=(UserMessage, SystemMessage)):
    messages = draw(source)
    return messages, draw(pins(messages, only=only)), draw(budgets)


# --- the rules ------------------------------------------------------------------------------------------------


def is_marker(message):
    return isinstance(message, UserMessage) and message.internal and message.reason == "compacted"


def places(view, messages):
    """Where each message of a view comes from (by identity, in order); a message made for the view has no place."""
    found, start = [], 0
    for message in view:
        at = next((i for i in range(start, len(messages)) if messages[i] is message), None)
        found.append(at)
        start = start if at is None else at + 1
    return found


def owners(messages):
    """For each result, by place, the place of its call: the nearest before it that has no result yet. None: orphan."""
    open_calls = [Counter(c.id for c in m.tool_calls) if isinstance(m, AssistantMessage) else {} for m in messages]
    found = {}
    for i, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            found[i] = next((j for j in range(i - 1, -1, -1) if open_calls[j].get(message.call_id)), None)
            if found[i] is not None:
                open_calls[found[i]][message.call_id] -= 1
    return found


def unsent(message):
    return isinstance(message, CustomMessage | UnknownMessage)


def is_valid(messages):
    """What a provider accepts: every batch is followed at once by its results, ids are unique, nothing else."""
    seen, rest = set(), list(messages)
    while rest:
        message = rest.pop(0)
        if isinstance(message, ToolResultMessage | CustomMessage | UnknownMessage):
            return False
        calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
        for call in calls:
            result = rest.pop(0) if rest else None
            if not isinstance(result, ToolResultMessage) or result.call_id != call.id or call.id in seen:
                return False
            seen.add(call.id)
    return True


class Counted(Sequence):
    """A sequence that counts how often it is read."""

    def __init__(self, items):
        self.items = items
        self.reads = 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        assert isinstance(index, int), "a slice copies"
        self.reads += 1
        return self.items[index]
