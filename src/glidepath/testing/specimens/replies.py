"""Replies that are not an answer: empty, cut, endless, garbled, refused."""

from __future__ import annotations

from glidepath._wire import replace
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless, failing, specimen, table
from glidepath.testing.turns import Call, Turn, calls, empty, raw, refuse, say, thinking, truncated
from glidepath.values import StreamEnd, TextDelta, ToolCallDelta


class _Reply(Specimen):
    family = "replies"


class _NoAnswer(_Reply):
    answers = False


class _OddAnswer(_Reply):
    succeeds = True


class _CutCall(_NoAnswer):
    needs_tools = True
    cut: int | None

    def reply(self, moment: Moment) -> Turn:
        return truncated(moment.call(), cut=self.cut) if moment.request.tools else truncated("I was going to ")


REPLIES = (
    *table(
        _NoAnswer,
        "says",
        empty_reply=("Ends every stream before its first delta.", empty()),
        whitespace_reply=("Answers with blanks, line ends and zero-width spaces.", say(" \n\t \u200b\u200b  ")),
        truncated_forever=(
            "Every reply hits the output cap in mid-sentence.",
            truncated("The first thing to know about this is that "),
        ),
        thinks_only=("Thinks at length and says nothing.", thinking("Let me think about this. " * 50)),
        wrong_delta=("Streams an object that is not a delta.", raw("not a delta")),  # type: ignore[arg-type]
    ),
    specimen(
        "refuses_task",
        "Refuses the task.",
        _NoAnswer,
        says=refuse("I cannot help with that."),
        succeeds=True,  # DONE with stop_reason=refusal and a cause: typed, not silent
    ),
    *table(
        _OddAnswer,
        "says",
        unknown_stop_reason=(
            "Stops for a reason that nobody has heard of.",
            say(ANSWER, stop_reason="guru_meditation"),
        ),
        asks_back=("Asks a question back instead of answering.", say(f"{ANSWER} Which of the two do you mean?")),
        garbled_text=(
            "Answers with NUL characters, half surrogate pairs and terminal control codes around its words.",
            say(f"\x00\ud83d{ANSWER}\x1b[2J\udc00"),
        ),
    ),
    specimen(
        "huge_reply",
        "Writes a hundred thousand tokens in one reply, whatever cap it is given.",
        _Reply,
        says=raw(TextDelta(ANSWER), *[TextDelta("and another thing, " * 8)] * 2_600),
    ),
    specimen(
        "empty_after_error",
        "Goes silent after a tool has failed.",
        _NoAnswer,
        reply=lambda moment: moment.call() if moment.number == 1 else say("  "),
        work=failing(ConnectionError, "backend is down"),
        needs_tools=True,
    ),
    *table(
        _CutCall,
        "cut",
        truncated_call=("Every tool call hits the output cap inside its arguments.", None),
        cut_call_that_parses=("A cut call whose arguments happen to parse: it must not run.", 10**6),
    ),
)


class _Caller(Tireless):
    family = "replies"
    needs_tools = True


def _same_id(moment: Moment) -> Turn:
    both = calls(moment.call(2 * moment.number), moment.call(2 * moment.number + 1))
    return both.with_id("call_same", "call_same")


def _huge(moment: Moment) -> Turn:
    """A call with a megabyte in an extra field."""
    named = moment.call().calls[0]
    body = named.arguments.rstrip("}")
    comma = "," if body != "{" else ""
    first = ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=f'{body}{comma}"blob":"')
    middle = [ToolCallDelta(index=0, arguments="x" * 1000)] * 1000
    return raw(first, *middle, ToolCallDelta(index=0, arguments='"}'), StreamEnd("tool_use"))


def _make_nested_call(moment: Moment) -> Turn:
    turn = moment.call()
    deep = Call(name=turn.calls[0].name, arguments='{"query":' + "[" * 10_000 + "]" * 10_000 + "}")
    return replace(turn, parts=(deep,))


CALLS = (
    specimen(
        "duplicate_call_ids",
        "Gives all its calls the same id.",
        _Caller,
        step=_same_id,
        work=lambda number: f"result {number}",
    ),
    specimen("huge_arguments", "Sends a megabyte of arguments with every call.", _Caller, step=_huge),
    specimen(
        "nested_arguments", "Sends arguments nested ten thousand deep.", _Caller, step=_make_nested_call, loops=True
    ),
)
