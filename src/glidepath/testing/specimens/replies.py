"""Replies that are not an answer: empty, cut, endless, garbled, refused."""

from __future__ import annotations

from typing import Any

from glidepath._wire import replace
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless, replying
from glidepath.testing.turns import Call, Turn, calls, empty, raw, refuse, say, thinking, truncated

__all__ = [
    "REPLYING",
    "CutCallThatParses",
    "DuplicateCallIds",
    "EmptyAfterError",
    "HugeArguments",
    "HugeReply",
    "NestedArguments",
    "TruncatedCall",
]

REPLYING = (
    *replying(
        "replies",
        {
            "empty_reply": (
                "Ends every stream before its first delta.",
                lambda _: empty(),
            ),
            "whitespace_reply": (
                "Answers with blanks, line ends and zero-width spaces.",
                lambda _: say(" \n\t \u200b\u200b  "),
            ),
            "truncated_forever": (
                "Every reply hits the output cap in mid-sentence.",
                lambda _: truncated("The first thing to know about this is that "),
            ),
            "thinks_only": (
                "Thinks at length and says nothing.",
                lambda _: thinking("Let me think about this. " * 50),
            ),
            "wrong_delta": (
                "Streams an object that is not a delta.",
                lambda _: raw("not a delta"),  # type: ignore[arg-type]
            ),
        },
        answers=False,
    ),
    *replying(
        "replies",
        {
            "refuses_task": (
                # DONE with stop_reason=refusal and a cause: typed, not silent
                "Refuses the task.",
                lambda _: refuse("I cannot help with that."),
            ),
        },
        answers=False,
        succeeds=True,
    ),
    *replying(
        "replies",
        {
            "unknown_stop_reason": (
                "Stops for a reason that nobody has heard of.",
                lambda _: say(ANSWER, stop_reason="guru_meditation"),
            ),
            "asks_back": (
                "Asks a question back instead of answering.",
                lambda _: say(f"{ANSWER} Which of the two do you mean?"),
            ),
            "garbled_text": (
                "Answers with NUL characters, half surrogate pairs and terminal control codes around its words.",
                lambda _: say(f"\x00\ud83d{ANSWER}\x1b[2J\udc00"),
            ),
        },
        succeeds=True,
    ),
)
"""Those that only reply."""


class EmptyAfterError(Specimen):
    """Goes silent after a tool has failed."""

    name = "empty_after_error"
    family = "replies"
    answers = False
    needs_tools = True

    def reply(self, moment: Moment) -> Turn:
        """One call, then blanks."""
        return moment.call() if moment.number == 1 else say("  ")

    async def work(self, number: int) -> Any:
        """Fail."""
        raise ConnectionError("backend is down")


class TruncatedCall(Specimen):
    """Every tool call hits the output cap inside its arguments."""

    name = "truncated_call"
    family = "replies"
    answers = False
    needs_tools = True

    def reply(self, moment: Moment) -> Turn:
        """Half a call."""
        return truncated(moment.call()) if moment.request.tools else truncated("I was going to ")


class CutCallThatParses(TruncatedCall):
    """A cut call whose arguments happen to parse: it must not run."""

    name = "cut_call_that_parses"

    def reply(self, moment: Moment) -> Turn:
        """A whole call in a cut reply."""
        return truncated(moment.call(), cut=10**6) if moment.request.tools else truncated("I was going to ")


class HugeReply(Specimen):
    """Writes a hundred thousand tokens in one reply, whatever cap it is given."""

    name = "huge_reply"
    family = "replies"

    def reply(self, moment: Moment) -> Turn:
        """The answer, and then everything else it can think of."""
        return raw(TextDelta(ANSWER), *[TextDelta("and another thing, " * 8)] * 2_600)


class DuplicateCallIds(Tireless):
    """Gives all its calls the same id."""

    name = "duplicate_call_ids"
    family = "replies"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """Two calls with one id."""
        both = calls(moment.call(2 * moment.number), moment.call(2 * moment.number + 1))
        return both.with_id("call_same", "call_same")

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"result {number}"


class HugeArguments(Tireless):
    """Sends a megabyte of arguments with every call."""

    name = "huge_arguments"
    family = "replies"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """A call with a megabyte in an extra field."""
        named = moment.call().calls[0]
        body = named.arguments.rstrip("}")
        comma = "," if body != "{" else ""
        first = ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=f'{body}{comma}"blob":"')
        middle = [ToolCallDelta(index=0, arguments="x" * 1000)] * 1000
        return raw(first, *middle, ToolCallDelta(index=0, arguments='"}'), StreamEnd("tool_use"))


class NestedArguments(Tireless):
    """Sends arguments nested ten thousand deep."""

    name = "nested_arguments"
    family = "replies"
    loops = True
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """A call that is all brackets."""
        turn = moment.call()
        deep = Call(name=turn.calls[0].name, arguments='{"query":' + "[" * 10_000 + "]" * 10_000 + "}")
        return replace(turn, parts=(deep,))
