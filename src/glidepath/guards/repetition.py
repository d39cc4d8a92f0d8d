"""Loops: the same calls with the same results. Nudge, then withdraw, then land.

Progress is what changes. Other arguments of a tool that acts are progress, whatever it answers; so is another answer.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any

from glidepath import _wire
from glidepath.guards.withdrawing import SHORT, counted, digest, kept, names, short, take_away
from glidepath.messages import ToolCall, ToolResultMessage, stored_arguments
from glidepath.plurals import how_many
from glidepath.spi import GuardVerdict, Step
from glidepath.texts import Texts

_log = logging.getLogger("glidepath")
PERIODS = (1, 2, 3, 4)
_LONGEST = PERIODS[-1]
WINDOW = 10  # steps in which equal calls with equal results are counted, in a circle or not
_LEAST = 3  # equal pairs in a window before anybody is told
_PAIRS = 8  # pairs of a batch that are kept: the smallest hashes, so that equal pairs are kept every time
_ALONE: list[str] = []  # the pairs of a batch of one, which has its signature and its outcome; never changed
_NOBODY: list[str] = []  # what nobody was told; never changed, as the next three
_NO_BATCH: list[list[str]] = []
_NO_RUNS = [0] * len(PERIODS)
_NONE_SAME: list[Any] = ["", 0]
_NO_NEWS: dict[str, Any] = {}
_COUNTS: dict[str, list[Any]] = {"told": _NOBODY, "runs": _NO_RUNS, "same": _NONE_SAME}
_BRIEF = 30  # characters of an answer that only acknowledges; a hash is longer
_WORD = "[A-Za-z]{2,}"
_READS = 4  # times the limit: equal answers of a read-only tool until it is withdrawn; the nudge comes two before

_canonical, _loads, _Raw = _wire.canonical, _wire.loads, _wire.Raw


def call_signature(call: ToolCall) -> str:
    """Tool and arguments, whatever the order of the keys; the whole of them, however long."""
    given: Any = stored_arguments(call) if call.malformed is None else call.malformed
    try:
        data = _canonical(_loads(given) if given.__class__ is _Raw else given)
        text = f"{call.name} {data.decode()}"
        if len(text) <= SHORT and text.isascii():  # as most are
            return text
    except Exception:  # what JSON cannot hold can still be told apart
        data = repr(call.arguments if call.malformed is None else call.malformed).encode("utf-8", "surrogatepass")
    if len(data) > SHORT:
        return short(f"{call.name} {digest(data)}")
    text = f"{call.name} {data.decode('utf-8', 'replace')}"
    return text if len(text) <= SHORT and text.isascii() else short(text)


def result_signature(result: ToolResultMessage) -> str:
    """What a tool answered; an error begins with an exclamation mark."""
    content = result.content
    if content.__class__ is str:
        if len(content) <= SHORT and content.isascii():
            return f"!{content}" if result.is_error else content
        text = short(content)
    else:  # an image is a result too, although it has no text
        try:
            text = digest(_wire.canonical(content))
        except Exception:
            text = digest(repr(content).encode("utf-8", "surrogatepass"))
    return f"!{text}" if result.is_error else text


def pair(call: str, outcome: str) -> str:
    """A call together with its result, from their signatures."""
    return digest(f"{call}\0{outcome}".encode("utf-8", "surrogatepass"), 8)


def outcome_of(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> str:
    """The signature of what these calls returned; equal answers once, so that ten times "ok" is "ok"."""
    ours = {call.id for call in calls}
    return short("\n".join(sorted({result_signature(result) for result in results if result.call_id in ours})))


class RepetitionGuard:
    """Notices calls that repeat with the same result, in a circle of up to four steps or scattered among others.

    With a limit of n: a nudge when a call has had the same result n times (at least three) within ten steps. In a
    strict circle the repeated tools are withdrawn at the n-th repeat (which does not run), and the next such call lands
    the run. A call that is made again after another tool has changed something is a check, and counts from one.

    Other arguments are progress, whatever the answer. Only for `read_only` tools the same answer again and again counts
    too: a nudge at 4n - 2 steps, the tool withdrawn at 4n. After the wind-down notice there is no nudge and each
    withdrawal comes one step earlier. Unknown names cannot be withdrawn: they land the run instead.
    """

    name = "repetition"
    __slots__ = (
        "_again",
        "_batches",
        "_calls",
        "_counted",
        "_hinted",
        "_hot",
        "_known",
        "_limit",
        "_pairs",
        "_parts",
        "_results",
        "_runs",
        "_same",
        "_seen",
        "_signature",
        "_span",
        "_state",
        "_steps",
        "_texts",
        "_told",
        "_tools",
    )

    def __init__(self, limit: int, state: dict[str, Any], texts: Texts | None = None) -> None:
        self._limit = limit
        self._span = max(WINDOW, _LONGEST * (limit - 1) + 1)
        self._texts = texts or Texts()
        self._hot = bool(state)  # something may be counted
        self._hinted = False
        self._seen: Step | None = None
        self._counted: tuple[ToolCall, ...] = ()
        self._known: list[str] = []
        self._signature = ""
        self._steps = 0
        self._again = False  # these calls are among the last ones
        self._pairs = _ALONE
        self._state = state
        if self._hot:
            _fill_in(state, self._span)
        else:
            state.update(_fresh())
        self._calls: list[str] = state["calls"]  # signatures of the last sets of calls
        self._results: list[str] = state["results"]  # and of what they returned
        self._tools: list[list[str]] = state["tools"]  # and the tools in them that can be withdrawn
        self._parts: list[list[str]] = state["parts"]  # pairs of call and result in each step, once one was a batch
        # Nearly always nothing repeats, in a thousand runs at a time: what is counted then is made when it is needed.
        self._told: list[str] = state.get("told", _NOBODY)  # the pairs a nudge was about
        self._runs: list[int] = state.get("runs", _NO_RUNS)  # steps in a row equal to one period before
        self._same: list[Any] = state.get("same", _NONE_SAME)  # tools, and how often in a row they answered the same
        self._batches = sum(map(bool, self._parts)) if self._hot else 0

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        self._own()
        for steps in (self._calls, self._results, self._tools, self._parts, self._told):
            steps.clear()
        self._runs[:] = _NO_RUNS
        self._same[:] = _NONE_SAME
        self._batches = 0

    def _own(self) -> None:
        """Make the counters."""
        if self._runs is _NO_RUNS:
            state = self._state
            state["told"], state["runs"], state["same"] = self._told, self._runs, self._same = [], [*_NO_RUNS], ["", 0]

    def _read(self, step: Step) -> None:
        """Work out the calls that count, and their signature; once for each step."""
        self._seen = step
        calls = step.calls
        if len(calls) == 1 and (tool := step.tools.get(calls[0].name)) is not None and not tool.polling:
            self._counted, signature = calls, call_signature(calls[0])
            if self._known != [calls[0].name]:
                self._known = [calls[0].name]
            self._signature, self._again = signature, signature in self._calls
            return
        self._counted = found = counted(step)
        known = sorted({call.name for call in found if call.name in step.tools})
        if self._known != known:  # most steps use the tool of the one before
            self._known = known
        signatures = sorted([call_signature(call) for call in found])
        self._signature = signatures[0] if len(found) == 1 else short("\n".join(signatures))
        self._again = self._signature in self._calls

    def before(self, step: Step) -> GuardVerdict | None:
        """Withdraw the tools of a circle when this batch would complete one repeat too many."""
        self._read(step)
        if not self._again or not self._counted:
            return None
        limit = self._limit - 1 if step.wound_down and self._limit > 1 else self._limit
        for period in range(1, min(_LONGEST, len(self._calls)) + 1):
            if self._calls[-period] == self._signature and (self._runs[period - 1] + 1) // period >= limit:
                tools = frozenset([name for lap in self._tools[-period:] for name in lap])
                self._pairs = self._parts[-period] if self._parts else _ALONE
                self._note(step, self._results[-period])  # kept back, but asked for: the next one lands
                reason = f"the same calls were repeated {how_many(limit, 'time')} without a new result"
                return take_away(step, tools, reason, self.name, self._texts, period)
        return None

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:
        """Count the repeats; nudge when there are too many."""
        if self._seen is not step:
            self._read(step)
        found = self._counted
        if not found:
            return None
        pairs = _ALONE
        if len(results) == 1:
            outcome = result_signature(results[0])
        else:
            outcome = outcome_of(found, results)
            pairs = _pairs_of(found, results) if len(found) > 1 else _ALONE
        self._pairs = pairs
        self._seen = None  # the step is over
        past, known = self._results, self._known
        if past and past[-1] == outcome and known and self._tools[-1] == known:
            return self._same_answer(step, outcome) or self._note(step, outcome)
        if self._same[1]:
            self._same[1] = 0
        return self._note(step, outcome)

    def mark(self) -> tuple[int, int, bool] | None:
        """Where the window is, for a journal: steps so far, those that are kept, and whether all used the same tools.

        None when there is more to know: something repeats, or a step was a batch.
        """
        if self._parts or self._runs is not _NO_RUNS:
            return None
        tools = self._tools
        # Steps in a row with the same tools share one list, and any other step begins another.
        return self._steps, len(tools), bool(tools) and tools[0] is tools[-1]

    def since(self, before: tuple[int, int, bool]) -> tuple[tuple[int, int, bool], dict[str, Any]] | None:
        """The mark now, and what a journal that was written at another, earlier one must add; None as for `mark`."""
        if self._parts or self._runs is not _NO_RUNS:
            return None
        (then, kept, same), tools, steps = before, self._tools, self._steps
        if steps == then:
            return before, _NO_NEWS
        new, many = steps - then, len(tools)
        left, alike = kept + new - many, tools[0] is tools[-1]
        news = {"calls": ("[", left, self._calls[-new:]), "results": ("[", left, self._results[-new:])}
        if not (same and alike and left == new < many):  # else the tools are as they were
            news["tools"] = ("[", left, tools[-new:])  # type: ignore[assignment]
        return (steps, many, alike), news

    def _note(self, step: Step, outcome: str) -> GuardVerdict | None:
        """Keep what was asked and what it returned; the verdict on it, if any."""
        verdict = None
        if self._again or self._batches or self._pairs:
            verdict = self._count(step, outcome)
            self._keep_pairs()
        elif self._hot:
            self._hot = False
            self._own()
            self._runs[:] = _NO_RUNS
        calls = self._calls
        calls.append(self._signature)
        self._results.append(outcome)
        self._tools.append(self._known)
        self._steps += 1
        if len(calls) > self._span:  # as long as it may matter
            del calls[0], self._results[0], self._tools[0]
        return verdict

    def _keep_pairs(self) -> None:
        """Keep the pairs of this step, where it or one before it was a batch."""
        parts = self._parts
        if self._pairs:
            if not parts:
                self._parts = self._state["parts"] = parts = [_ALONE] * len(self._calls)
            self._batches += 1
        elif not self._batches:
            return
        parts.append(self._pairs)
        if len(parts) > self._span:
            self._batches -= bool(parts.pop(0))
            if not self._batches:
                parts.clear()

    def _count(self, step: Step, outcome: str) -> GuardVerdict | None:
        """Count the repeats of every period, and equal pairs wherever they are; the nudge, when one is due."""
        self._own()
        calls, past, runs = self._calls, self._results, self._runs
        self._hot = True
        times = 0
        for period in range(1, min(_LONGEST, len(calls)) + 1):
            if calls[-period] == self._signature and past[-period] == outcome:
                runs[period - 1] = run = runs[period - 1] + 1
                if run % period == 0 and run // period == self._limit - 1:
                    times = self._limit
            else:
                runs[period - 1] = 0
        if self._limit > 1:
            often = self._most_often(step, outcome)
            times = often if often >= max(_LEAST, self._limit) else times
        return self._nudge(outcome, times) if times and not step.wound_down else None

    # --- equal pairs of call and result -------------------------------------------------------------------------

    def _most_often(self, step: Step, outcome: str) -> int:
        """How often a call of this step has had this result within the window, this time included."""
        calls, past = self._calls, self._results
        first = self._first_that_counts(step, outcome)
        if not self._pairs and not self._batches:  # nearly always
            return 1 + sum(calls[at] == self._signature and past[at] == outcome for at in range(first, len(calls)))
        mine = self._pairs or [pair(self._signature, outcome)]
        seen = Counter([one for pairs in self._window()[first:] for one in pairs])
        return 1 + max([seen[one] for one in mine])

    def _window(self) -> list[list[str]]:
        """The pairs of call and result of each step that is kept."""
        steps = zip(self._calls, self._results, self._parts or [_ALONE] * len(self._calls), strict=True)
        return [parts or [pair(call, outcome)] for call, outcome, parts in steps]

    def _first_that_counts(self, step: Step, outcome: str) -> int:
        """The step from which repeats count: since then these calls had no other result, and nothing was changed.

        Another tool has changed something when it acts, and acknowledges other arguments alike, in a few words. What
        fails again has not been helped by that.
        """
        calls, past = self._calls, self._results
        start, failed = max(0, len(calls) + 1 - self._span), outcome.startswith("!")
        for at in range(len(calls) - 1, start - 1, -1):
            if calls[at] == self._signature and past[at] != outcome:
                return at
            if not failed and self._changed_something(step, at):
                return at
        return start

    def _changed_something(self, step: Step, at: int) -> bool:
        calls, past, tools = self._calls, self._results, self._tools
        acted, answer = tools[at], past[at]
        if not acted or len(answer) > _BRIEF or answer.startswith("!") or not set(acted).isdisjoint(self._known):
            return False
        if all(name in step.tools and step.tools[name].read_only for name in acted):
            return False
        return any(
            tools[other] == acted and calls[other] != calls[at] and _alike(past[other], answer)
            for other in range(len(calls))
        )

    def _nudge(self, outcome: str, times: int) -> GuardVerdict | None:
        """Tell the model, once for each circle: not again while the last four steps are part of what it was told."""
        window = self._window()
        mine = self._pairs or [pair(self._signature, outcome)]
        known = {one for step in window for one in step}.intersection(self._told)
        fresh = known.isdisjoint(mine) and known.isdisjoint([one for step in window[-_LONGEST:] for one in step])
        self._told[:] = sorted(known.union(mine))
        if not fresh:
            return None
        seen = Counter([one for step in [*window, mine] for one in step])
        again = [tools for tools, step in zip(self._tools, window, strict=True) if any(seen[one] > 1 for one in step)]
        # How many steps the circle has, when the last ones are at least two laps of one.
        lap = next((period for period in PERIODS if self._runs[period - 1] >= period), None)
        return self._say("repetition", frozenset(self._known).union(*again), times, lap)

    # --- the same answer, whatever is asked ---------------------------------------------------------------------

    def _same_answer(self, step: Step, outcome: str) -> GuardVerdict | None:
        """These tools answered as they did in the step before. For tools that only read this may be a circle."""
        self._own()
        same, tools = self._same, names(self._known)
        if outcome.startswith("!"):
            same[1] = 0
            return None
        same[:] = [tools, same[1] + 1 if same[0] == tools and same[1] else 2]
        times, withdraw_at = same[1], _READS * self._limit
        if not all(name in step.tools and step.tools[name].read_only for name in {call.name for call in self._counted}):
            if times == withdraw_at and not self._hinted:
                self._hinted = True
                _log.info(
                    "%s gave the same answer %d times in a row. That is fine for a tool that acts; if it only reads, "
                    "mark it read_only=True and the repetition guard will notice.",
                    tools,
                    times,
                )
            return None
        if times >= max(2, withdraw_at - 1 if step.wound_down else withdraw_at):
            reason = f"{tools} gave the same answer {times} times in a row"
            self._note(step, outcome)
            return take_away(step, frozenset(self._known), reason, self.name, self._texts)
        if times == withdraw_at - 2 and not step.wound_down:
            return self._note(step, outcome) or self._say("same_answer", frozenset(self._known), times)
        return None

    def _say(self, text: str, tools: frozenset[str], times: int, period: int | None = None) -> GuardVerdict:
        """A nudge in these words."""
        what = "was repeated without a new result" if text == "repetition" else "gave the same answer"
        return GuardVerdict(
            action="nudge",
            reason=f"{names(tools)} {what} {how_many(times, 'time')}",
            tools=tools,
            notice=self._texts.fill(text, tools=names(tools), times=times),
            notice_reason=self.name,
            period=period,
        )


def _alike(one: str, other: str) -> bool:
    """Whether two brief answers say the same about different things: "ok" and "ok", "wrote a.py" and "wrote b.py"."""
    return one == other or (len(one) <= _BRIEF and _first_word(one) == _first_word(other) != "")


def _first_word(text: str) -> str:
    found = re.match(_WORD, text)
    return "" if found is None else found[0].lower()


def _fresh() -> dict[str, list[Any]]:
    """The state of a new run."""
    return {"calls": [], "results": [], "tools": [], "parts": _NO_BATCH}


def _fill_in(state: dict[str, Any], span: int) -> None:
    """Add what an older session has not kept; what has another shape is dropped."""
    for key, fresh in _fresh().items():
        kept(state, key, fresh)
    steps = len(state["calls"])
    whole = steps == len(state["results"]) == len(state["tools"]) <= span and len(state["parts"]) in (0, steps)
    if not state.keys().isdisjoint(_COUNTS):
        for key, none in _COUNTS.items():
            kept(state, key, [*none])
        whole = whole and len(state["runs"]) == len(PERIODS) and len(state["same"]) == len(_NONE_SAME)
    if not whole:
        for key in _COUNTS:
            state.pop(key, None)
        state.update(_fresh())
    if not any(state["parts"]):
        state["parts"].clear()


def _pairs_of(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> list[str]:
    """The pairs of call and result in a batch, each once; of a very large one the same sample every time."""
    asked = {call.id: call for call in calls}
    return sorted(
        {
            pair(call_signature(asked[result.call_id]), result_signature(result))
            for result in results
            if result.call_id in asked
        }
    )[:_PAIRS]
