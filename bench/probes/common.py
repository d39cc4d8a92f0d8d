"""What every probe shares: the sizes, a counter that ends a flight nothing else ends, and the form of an answer."""

import json
import sys
import warnings

warnings.simplefilter("ignore")
TURNS = 4  # model turns a run may take
PARENT_TURNS = 3  # the same for a parent, whose child has no limit of its own
TOKENS = 40_000  # tokens that a run may use, or several together
TASK, REPLY, LAST = 1_000, 3_000, 10  # tokens of the task, of each reply with a tool call, of the answer
MANY = 8  # agents at once on one limit
MOST = 200  # calls of the model after which the probe itself ends the flight
ANSWER = "These rules changed in the year: all of them."
PROMPT = ("Which rules changed? " * TASK)[: 4 * TASK]  # words, four characters for a token
FILLER = ("I go on reading. " * REPLY)[: 4 * REPLY]


class RunawayError(Exception):
    """Nothing had stopped the run."""


class Counter:
    """Counts what the calls of a model use, as an honest provider would."""

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = 0

    def next(self, replies: int, *, last: bool = False, cap: int | None = None) -> tuple[int, int]:
        """One more call, in a conversation that has so many replies already: its input and its output."""
        self.calls += 1
        if self.calls > MOST:
            raise RunawayError
        used = TASK + replies * REPLY, min(LAST if last else REPLY, cap or REPLY)
        self.tokens += sum(used)
        return used


def seen(counter, fly):
    """Fly and say how it ended: what the caller got, and what was spent."""
    try:
        text = str(fly() or "")
    except BaseException as error:  # whatever a caller would get
        ended, answer = type(error).__name__, False
        if isinstance(error, KeyboardInterrupt):
            raise
    else:
        ended, answer = "result", ANSWER in text
    runaway = counter.calls > MOST
    return {
        "ended": "nothing ended it" if runaway else ended,
        "answer": answer,
        "calls": min(counter.calls, MOST),
        "tokens": counter.tokens,
    }


def report(version, **probes):
    json.dump({"version": version, **probes}, sys.stdout)
