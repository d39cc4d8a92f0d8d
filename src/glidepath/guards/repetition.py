"""Loops: the same calls with the same results. Nudge, then withdraw, then land.

Progress is what changes. Other arguments of a tool that acts are progress, whatever it answers; so is another answer.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from glidepath import _wire
from glidepath.guards.withdrawing import (
    SHORT,
    digest,
    join_tool_names,
    repeatable_calls,
    restore_state,
    shorten_text,
    take_away,
)
from glidepath.spi import GuardVerdict, Step
from glidepath.values import Texts, ToolCall, ToolResultMessage, pluralize, stored_arguments

_log = logging.getLogger("glidepath")
PERIODS = (1, 2, 3, 4)
_LONGEST = PERIODS[-1]
WINDOW = 10  # steps in which equal calls with equal results are counted, in a circle or not
_LEAST = 3  # equal pairs in a window before anybody is told
_PAIRS = 8  # pairs of a batch that are kept: the smallest hashes, so that equal pairs are kept every time
_LISTS = ("calls", "results", "tools", "parts")
_NOTHING_TOLD: list[str] = []  # never changed
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
        return shorten_text(f"{call.name} {digest(data)}")
    text = f"{call.name} {data.decode('utf-8', 'replace')}"
    return text if len(text) <= SHORT and text.isascii() else shorten_text(text)


def result_signature(result: ToolResultMessage) -> str:
    """What a tool answered; an error begins with an exclamation mark."""
    content = result.content
    if content.__class__ is str:
        if len(content) <= SHORT and content.isascii():
            return f"!{content}" if result.is_error else content
        text = shorten_text(content)
    else:  # an image is a result too, although it has no text
        try:
            text = digest(_wire.canonical(content))
        except Exception:
            text = digest(repr(content).encode("utf-8", "surrogatepass"))
    return f"!{text}" if result.is_error else text


def pair_signature(call: str, outcome: str) -> str:
    """A call together with its result, from their signatures."""
    return digest(f"{call}\0{outcome}".encode("utf-8", "surrogatepass"), 8)


def outcome_of(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> str:
    """The signature of what these calls returned; equal answers once, so that ten times "ok" is "ok"."""
    ours = {call.id for call in calls}
    return shorten_text("\n".join(sorted({result_signature(result) for result in results if result.call_id in ours})))


class RepetitionGuard:
    """Notices calls that repeat with the same result, in a circle of up to four steps or scattered among others.

    With a limit of n: a nudge when a call has had the same result n times (at least three) within ten steps. In a
    strict circle the repeated tools are withdrawn at the n-th repeat (which does not run), and the next such call lands
    the run. A call that is made again after another tool has changed something is a check, and counts from one.

    Other arguments are progress, whatever the answer. Only for `read_only` tools the same answer again and again counts
    too: a nudge at 4n - 2 steps, the tool withdrawn at 4n. After the wind-down notice there is no nudge and each
    withdrawal comes one step earlier. Unknown names cannot be withdrawn: they land the run instead.

    What it keeps is one window of the last steps, and everything is counted over that when it is asked. A step is three
    texts at the same place in three lists: what was called, what that returned, which tools can be withdrawn for it. A
    list of texts is nothing for the garbage collector, of which a thousand runs at a time have many.
    """

    name = "repetition"
    __slots__ = (
        "_calls",
        "_counted",
        "_hinted",
        "_limit",
        "_pairs",
        "_parts",
        "_results",
        "_saved",
        "_seen",
        "_signature",
        "_span",
        "_state",
        "_texts",
        "_told",
        "_tool_names",
        "_tools",
        "_unsaved",
        "_width",
    )

    def __init__(self, limit: int, state: dict[str, Any], texts: Texts | None = None) -> None:
        self._limit = limit
        self._span = max(WINDOW, _LONGEST * (limit - 1) + 1)  # steps in which equal pairs are counted
        self._width = max(self._span, _LONGEST * (limit + 1))  # steps that are kept: the longest circle, once too often
        self._texts = texts or Texts()
        self._hinted = False
        self._seen: Step | None = None
        self._counted: tuple[ToolCall, ...] = ()
        self._signature = ""
        self._tool_names = ""  # of the tools in this step that can be withdrawn
        self._pairs = ""
        self._unsaved = self._saved = 0  # steps that no journal has yet, and those of the window when it had all
        _fill_in(state, self._width)
        self._calls: list[str] = state["calls"]  # signatures of the last sets of calls
        self._results: list[str] = state["results"]  # and of what they returned
        self._tools: list[str] = state["tools"]  # and the tools in them that can be withdrawn
        self._parts: list[str] = state["parts"]  # and the pairs of call and result in them, where they were batches
        self._told: list[str] = state.get("told", _NOTHING_TOLD)  # the pairs that a nudge was about; made for the first
        self._state = state

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        for texts in (self._calls, self._results, self._tools, self._parts):
            texts.clear()
        self._told = _NOTHING_TOLD
        self._state.pop("told", None)

    def before(self, step: Step) -> GuardVerdict | None:
        """Withdraw the tools of a circle when this batch would complete one repeat too many."""
        self._read(step)
        signature, calls = self._signature, self._calls
        if signature not in calls or not self._counted:
            return None
        limit = self._limit - 1 if step.wound_down and self._limit > 1 else self._limit
        for period in range(1, min(_LONGEST, len(calls)) + 1):
            if calls[-period] == signature and (self._run_of(period) + 1) // period >= limit:
                tools = frozenset([name for lap in self._tools[-period:] for name in _read_names(lap)])
                self._pairs = self._parts[-period]
                self._note(step, self._results[-period])  # kept back, but asked for: the next one lands
                reason = f"the same calls were repeated {pluralize(limit, 'time')} without a new result"
                return take_away(step, tools, reason, self.name, self._texts, period)
        return None

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:
        """Count the repeats; nudge when there are too many."""
        if self._seen is not step:
            self._read(step)
        self._seen = None  # the step is over
        found = self._counted
        if not found:
            return None
        self._pairs = ""
        if len(results) == 1:
            outcome = result_signature(results[0])
        else:
            outcome = outcome_of(found, results)
            if len(found) > 1:
                self._pairs = " ".join(_pairs_of(found, results))
        past, used = self._results, self._tool_names
        if past and past[-1] == outcome and used and self._tools[-1] == used:
            return self._check_same_answer(step, outcome) or self._note(step, outcome)
        return self._note(step, outcome)

    def _read(self, step: Step) -> None:
        """Work out the calls that count, and their signature; once for each step."""
        self._seen = step
        calls, tools = step.calls, step.tools
        if len(calls) == 1 and (tool := tools.get(calls[0].name)) is not None and not tool.polling:
            self._counted, self._tool_names = calls, calls[0].name
            self._signature = call_signature(calls[0])
            return
        self._counted = found = repeatable_calls(step)
        self._tool_names = _write_names({call.name for call in found if call.name in tools})
        signatures = sorted([call_signature(call) for call in found])
        self._signature = signatures[0] if len(found) == 1 else shorten_text("\n".join(signatures))

    def _note(self, step: Step, outcome: str) -> GuardVerdict | None:
        """Keep what was asked and what it returned; the verdict on it, if any."""
        calls, verdict = self._calls, None
        if self._signature in calls or self._pairs or any(self._parts):
            verdict = self._count(step, outcome)
        calls.append(self._signature)
        self._results.append(outcome)
        self._tools.append(self._tool_names)
        self._parts.append(self._pairs)
        self._unsaved += 1
        if len(calls) > self._width:
            del calls[0], self._results[0], self._tools[0], self._parts[0]
        return verdict

    # --- what a journal writes ----------------------------------------------------------------------------------

    def take_changes(self) -> dict[str, Any] | None:
        """Patches for what came since this was last asked; None when a journal must compare the whole state.

        That is so once a nudge was told: from then on the window repeats itself, and most of it is as it was.
        """
        new, many = self._unsaved, len(self._calls)
        dropped = self._saved + new - many
        self._unsaved, self._saved = 0, many
        if self._told:
            return None
        if not new:
            return {}
        lists = zip(_LISTS, (self._calls, self._results, self._tools, self._parts), strict=True)
        return {name: ("[", dropped, texts[-new:]) for name, texts in lists}

    # --- circles ------------------------------------------------------------------------------------------------

    def _run_of(self, period: int) -> int:
        """How many steps in a row were equal to the one `period` before, call and result; up to the last one."""
        calls, past = self._calls, self._results
        for at in range(len(calls) - 1, period - 1, -1):
            if calls[at] != calls[at - period] or past[at] != past[at - period]:
                return len(calls) - 1 - at
        return max(0, len(calls) - period)

    def _count(self, step: Step, outcome: str) -> GuardVerdict | None:
        """Count the repeats of every period, and equal pairs wherever they are; the nudge, when one is due."""
        calls, past = self._calls, self._results
        times = 0
        for period in range(1, min(_LONGEST, len(calls)) + 1):
            if calls[-period] == self._signature and past[-period] == outcome:
                run = self._run_of(period) + 1
                if run % period == 0 and run // period == self._limit - 1:
                    times = self._limit
        if self._limit > 1:
            often = self._count_most_frequent(step, outcome)
            times = often if often >= max(_LEAST, self._limit) else times
        return self._nudge_once(outcome, times) if times and not step.wound_down else None

    # --- equal pairs of call and result -------------------------------------------------------------------------

    def _find_window_start(self) -> int:
        """The first step of those in which equal pairs are counted, this one included."""
        return max(0, len(self._calls) + 1 - self._span)

    def _count_most_frequent(self, step: Step, outcome: str) -> int:
        """How often a call of this step has had this result within the window, this time included."""
        calls, past = self._calls, self._results
        first = self._find_first_counted_step(step, outcome)
        if not self._pairs and not any(self._parts):  # nearly always
            return 1 + sum(calls[at] == self._signature and past[at] == outcome for at in range(first, len(calls)))
        seen = Counter([one for at in range(first, len(calls)) for one in self._pairs_at(at)])
        return 1 + max([seen[one] for one in self._own_pairs(outcome)])

    def _pairs_at(self, at: int) -> list[str]:
        """The pairs of call and result in a step that is kept."""
        return self._parts[at].split() or [pair_signature(self._calls[at], self._results[at])]

    def _own_pairs(self, outcome: str) -> list[str]:
        """Those of this step."""
        return self._pairs.split() or [pair_signature(self._signature, outcome)]

    def _find_first_counted_step(self, step: Step, outcome: str) -> int:
        """The step from which repeats count: since then these calls had no other result, and nothing was changed.

        Another tool has changed something when it acts, and acknowledges other arguments alike, in a few words. What
        fails again has not been helped by that.
        """
        calls, past = self._calls, self._results
        start, failed = self._find_window_start(), outcome.startswith("!")
        for at in range(len(calls) - 1, start - 1, -1):
            if calls[at] == self._signature and past[at] != outcome:
                return at
            if not failed and self._has_changed_something(step, at):
                return at
        return start

    def _has_changed_something(self, step: Step, at: int) -> bool:
        calls, past, tools = self._calls, self._results, self._tools
        acted, answer = _read_names(tools[at]), past[at]
        if not acted or len(answer) > _BRIEF or answer.startswith("!"):
            return False
        if not set(acted).isdisjoint(_read_names(self._tool_names)):
            return False
        if all(name in step.tools and step.tools[name].read_only for name in acted):
            return False
        return any(
            tools[other] == tools[at] and calls[other] != calls[at] and _are_alike(past[other], answer)
            for other in range(max(0, len(calls) - self._span), len(calls))
        )

    def _nudge_once(self, outcome: str, times: int) -> GuardVerdict | None:
        """Tell the model, once for each circle: not again while the last four steps are part of what it was told."""
        first = max(0, len(self._calls) - self._span)
        window = [self._pairs_at(at) for at in range(first, len(self._calls))]
        mine = self._own_pairs(outcome)
        known = {one for pairs in window for one in pairs}.intersection(self._told)
        fresh = known.isdisjoint(mine) and known.isdisjoint([one for pairs in window[-_LONGEST:] for one in pairs])
        self._told = self._state["told"] = sorted(known.union(mine))
        if not fresh:
            return None
        seen = Counter([one for pairs in [*window, mine] for one in pairs])
        tools = map(_read_names, self._tools[first:])
        again = [used for used, pairs in zip(tools, window, strict=True) if any(seen[one] > 1 for one in pairs)]
        # How many steps the circle has, when the last ones, this one included, are at least two laps of one.
        lap = next((period for period in PERIODS if self._closes_lap(period, outcome)), None)
        return self._make_nudge("repetition", frozenset(_read_names(self._tool_names)).union(*again), times, lap)

    def _closes_lap(self, period: int, outcome: str) -> bool:
        """Whether this step, with those before it, is the second lap of a circle of this many steps."""
        calls, past = self._calls, self._results
        if len(calls) < period or calls[-period] != self._signature or past[-period] != outcome:
            return False
        return self._run_of(period) + 1 >= period

    # --- the same answer, whatever is asked ---------------------------------------------------------------------

    def _check_same_answer(self, step: Step, outcome: str) -> GuardVerdict | None:
        """These tools answered as they did in the step before. For tools that only read this may be a circle."""
        if outcome.startswith("!"):
            return None
        tools, withdraw_at = _read_names(self._tool_names), _READS * self._limit
        times = 1
        for past, used in zip(reversed(self._results), reversed(self._tools), strict=True):
            if past != outcome or used != self._tool_names:
                break
            times += 1
        if not all(name in step.tools and step.tools[name].read_only for name in {call.name for call in self._counted}):
            if times == withdraw_at and not self._hinted:
                self._hinted = True
                _log.info(
                    "%s gave the same answer %d times in a row. That is fine for a tool that acts; if it only reads, "
                    "mark it read_only=True and the repetition guard will notice.",
                    join_tool_names(tools),
                    times,
                )
            return None
        if times >= max(2, withdraw_at - 1 if step.wound_down else withdraw_at):
            reason = f"{join_tool_names(tools)} gave the same answer {times} times in a row"
            self._note(step, outcome)
            return take_away(step, frozenset(tools), reason, self.name, self._texts)
        if times == withdraw_at - 2 and not step.wound_down:
            return self._note(step, outcome) or self._make_nudge("same_answer", frozenset(tools), times)
        return None

    def _make_nudge(self, text: str, tools: frozenset[str], times: int, period: int | None = None) -> GuardVerdict:
        """A nudge in these words."""
        what = "was repeated without a new result" if text == "repetition" else "gave the same answer"
        return GuardVerdict(
            action="nudge",
            reason=f"{join_tool_names(tools)} {what} {pluralize(times, 'time')}",
            tools=tools,
            notice=self._texts.fill(text, tools=join_tool_names(tools), times=times),
            notice_reason=self.name,
            period=period,
        )


def _write_names(tools: Iterable[str]) -> str:
    """The names of tools as one text."""
    return "\n".join(sorted(tools))


def _read_names(tools: str) -> list[str]:
    return tools.split("\n") if tools else []


def _are_alike(one: str, other: str) -> bool:
    """Whether two brief answers say the same about different things: "ok" and "ok", "wrote a.py" and "wrote b.py"."""
    return one == other or (len(one) <= _BRIEF and _first_word(one) == _first_word(other) != "")


def _first_word(text: str) -> str:
    found = re.match(_WORD, text)
    return "" if found is None else found[0].lower()


def _fill_in(state: dict[str, Any], width: int) -> None:
    """Make a list of texts under each key; a window that is not one is forgotten."""
    if not state:  # nothing was counted before
        state.update({key: [] for key in _LISTS})
        return
    for key in _LISTS:
        restore_state(state, key, [])
    told = state.get("told", _NOTHING_TOLD)
    steps = len(state["calls"])
    whole = type(told) is list and all(len(state[key]) == steps <= width for key in _LISTS)
    if not whole or not all(type(text) is str for texts in (*map(state.get, _LISTS), told) for text in texts):
        for key in _LISTS:
            state[key].clear()
        state.pop("told", None)


def _pairs_of(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> list[str]:
    """The pairs of call and result in a batch, each once; of a very large one the same sample every time."""
    asked = {call.id: call for call in calls}
    return sorted(
        {
            pair_signature(call_signature(asked[result.call_id]), result_signature(result))
            for result in results
            if result.call_id in asked
        }
    )[:_PAIRS]
