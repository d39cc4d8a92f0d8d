"""Bad ends: what is asked, how often, and what happens when it does not help."""

import pytest

from glidepath.guards import GuardrailsConfig, GuardSet, join_parts
from glidepath.messages import AssistantMessage
from glidepath.spi import Stop

CUT = {"text": "half an ans", "truncated": True}
EMPTY = {"text": ""}
AFTER_ERROR = {"text": "", "recent_error": True}
WHOLE = {"text": "an answer"}


class Ends:
    """Shows ends to the stop guards in their order, as the runtime does."""

    def __init__(self, **settings):
        self.metadata = {}
        self.guards = GuardSet(GuardrailsConfig(**settings)).make_stop_guards(self.metadata)

    def show(self, text, *, truncated=False, recent_error=False, can_continue=True):
        stop = Stop(
            reply=AssistantMessage(),
            text=text,
            truncated=truncated,
            recent_error=recent_error,
            can_continue=can_continue,
        )
        found = next((recovery for guard in self.guards if (recovery := guard.recover(stop))), None)
        return found and ("FAIL" if found.fail else found.reason)

    def all(self, *stops):
        return [self.show(**stop) for stop in stops]

    def progress(self):
        for guard in self.guards:
            guard.reset()


TRUNCATED, PREMATURE, SILENT = "max_tokens_recovery", "premature_end", "empty_answer"


@pytest.mark.parametrize(
    ("settings", "stops", "expected"),
    [
        ({}, [WHOLE], [None]),
        ({}, [CUT, CUT, CUT], [TRUNCATED, TRUNCATED, None]),
        ({"max_tokens_recoveries": 0}, [CUT], [None]),
        ({}, [{**CUT, "can_continue": False}], [None]),
        ({}, [EMPTY, EMPTY], [SILENT, "FAIL"]),
        ({}, [{"text": " \n\t\u00a0 "}], [SILENT]),
        ({"max_empty_recoveries": 0}, [EMPTY], ["FAIL"]),
        ({"max_empty_recoveries": 2}, [EMPTY, EMPTY, EMPTY], [SILENT, SILENT, "FAIL"]),
        ({}, [AFTER_ERROR] * 4, [PREMATURE, PREMATURE, SILENT, "FAIL"]),
        ({"max_premature_end_recoveries": 0}, [AFTER_ERROR] * 2, [SILENT, "FAIL"]),
        ({}, [{**WHOLE, "recent_error": True}], [None]),
        ({}, [{"text": "", "truncated": True}] * 3, [TRUNCATED, TRUNCATED, None]),
        ({}, [CUT, EMPTY, CUT, EMPTY], [TRUNCATED, SILENT, TRUNCATED, "FAIL"]),
    ],
)
def test_what_is_answered_to_a_bad_end(settings, stops, expected):
    assert Ends(**settings).all(*stops) == expected


def test_progress_gives_the_recoveries_back():
    ends = Ends()
    ends.all(CUT, CUT, EMPTY)
    ends.progress()
    assert ends.all(CUT, CUT, CUT) == [TRUNCATED, TRUNCATED, None]
    assert ends.all(EMPTY, EMPTY) == [SILENT, "FAIL"]


def test_a_continuation_is_asked_for_without_repetition():
    [guard, *_] = Ends().guards
    message = guard.recover(Stop(reply=AssistantMessage(), text="a", truncated=True, recent_error=False)).message
    assert "exactly where" in message
    assert "repeat" in message


TAIL = "the last words of a part that was cut"


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], ""),
        ([""], ""),
        (["one"], "one"),
        (["one ", "two"], "one two"),
        (["", "two", ""], "two"),
        ([f"Once, {TAIL}", f"{TAIL} off and on"], f"Once, {TAIL} off and on"),
        ([f"Once, {TAIL}", TAIL], f"Once, {TAIL}"),
        ([TAIL, f"{TAIL} off"], f"{TAIL} off"),
        (["x" + "0123456789abcde", "0123456789abcde" + "y"], "x0123456789abcde0123456789abcdey"),
        (["x" + "0123456789abcdef", "0123456789abcdef" + "y"], "x0123456789abcdefy"),
        (["a" * 40, "a" * 20], "a" * 40),
        ([f"{TAIL}!", f"{TAIL}?"], f"{TAIL}!{TAIL}?"),
        ([f"1 {TAIL}", f"{TAIL} 2 {TAIL}", f"{TAIL} 3"], f"1 {TAIL} 2 {TAIL} 3"),
    ],
)
def test_the_parts_of_an_answer_are_stitched(parts, whole):
    assert join_parts(parts) == whole


def test_only_the_end_is_searched_so_that_hostile_text_costs_little():
    part = "a" * 200_000 + "b"
    assert join_parts([part, part]) == part + part
