"""Loops: the same calls again, the same errors again, looking without doing. Nudge, then withdraw, then land."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from glidepath import _wire
from glidepath.messages import ToolCall, ToolResultMessage
from glidepath.spi import GuardVerdict, Step

__all__ = ["ErrorStreakGuard", "ReadOnlyGuard", "RepetitionGuard"]

PERIODS = (1, 2, 3, 4)
_LONGEST = PERIODS[-1]
_SHORT = 120  # a plain signature no longer than this is kept as it is
_NEITHER = frozenset({"withdrawn", "hidden_tool", "skipped", "cancelled", "blocked", "aborted", "interrupted"})


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _short(text: str) -> str:
    """The text itself, or its hash when it is long or a store might not be able to write it.

    The two callers on the way of every step look first, to save the call.
    """
    if len(text) <= _SHORT and text.isascii():
        return text
    return _digest(text.encode("utf-8", "surrogatepass"))


def _call_signature(call: ToolCall) -> str:
    """Tool and arguments, whatever the order of the keys; the whole of them, however long."""
    try:
        data = _wire.canonical(call.arguments if call.malformed is None else call.malformed)
    except Exception:  # what JSON cannot hold still has a face
        data = repr(call.arguments if call.malformed is None else call.malformed).encode("utf-8", "surrogatepass")
    text = f"{call.name} {str(data, 'utf-8', 'replace') if len(data) <= _SHORT else _digest(data)}"
    return text if len(text) <= _SHORT and text.isascii() else _short(text)


def _result_signature(result: ToolResultMessage) -> str:
    content = result.content
    if type(content) is str:
        text = content if len(content) <= _SHORT and content.isascii() else _short(content)
    else:  # an image is a result too, although it has no text
        try:
            text = _digest(_wire.canonical(content))
        except Exception:
            text = _digest(repr(content).encode("utf-8", "surrogatepass"))
    return f"!{text}" if result.is_error else text


def _names(tools: Iterable[str]) -> str:
    return ", ".join(sorted(tools)) or "a tool that does not exist"


def _counted(step: Step) -> tuple[ToolCall, ...]:
    """The calls whose repetition means something: polling tools are meant to be repeated."""
    tools = step.tools
    return tuple([call for call in step.calls if (tool := tools.get(call.name)) is None or not tool.polling])


def _outcome(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> str:
    """The signature of the results that belong to these calls."""
    counted = {call.id for call in calls}
    return _short("\n".join(sorted([_result_signature(result) for result in results if result.call_id in counted])))


def _kept(state: dict[str, Any], key: str, fresh: Any) -> Any:
    """What an earlier process kept under this key; `fresh` when it kept nothing, or nothing of this shape."""
    kept = state.get(key)
    if type(kept) is not type(fresh):
        kept = state[key] = fresh
    return kept


def _take_away(step: Step, tools: frozenset[str], reason: str, guard: str) -> GuardVerdict:
    """Withdraw these tools; land when there is nothing left to withdraw."""
    if tools <= step.withdrawn:
        return GuardVerdict(action="land", reason=reason, tools=tools)
    notice = f"{_names(tools)} can no longer be used: {reason}. Give your final answer with what you know."
    return GuardVerdict(action="withdraw", reason=reason, tools=tools, notice=notice, notice_reason=guard)


class RepetitionGuard:
    """Notices calls that repeat without a new result, alone or in cycles of up to four steps.

    With a limit of n: a nudge after n - 1 repeats, the repeated tools withdrawn at the n-th (which does not run), and
    the next such call lands the run. The same tool answering the same to different arguments is noticed after 2n - 1.
    After the wind-down notice there is no nudge and each step comes one earlier. A limit of 1 never nudges. Unknown
    names cannot be withdrawn: they land the run instead.
    """

    name = "repetition"
    __slots__ = (
        "_calls",
        "_counted",
        "_hot",
        "_known",
        "_limit",
        "_results",
        "_runs",
        "_same",
        "_seen",
        "_signature",
        "_tools",
    )

    def __init__(self, limit: int, state: dict[str, Any]) -> None:
        self._limit = limit
        self._hot = bool(state)  # something may be counted
        self._seen: Step | None = None
        self._counted: tuple[ToolCall, ...] = ()
        self._known: list[str] = []
        self._signature = ""
        self._calls: list[str] = _kept(state, "calls", [])  # signatures of the last four sets of calls
        self._results: list[str] = _kept(state, "results", [])  # and of what they returned
        self._tools: list[list[str]] = _kept(state, "tools", [])  # and the tools in them that can be withdrawn
        self._runs: list[int] = _kept(state, "runs", [0] * len(PERIODS))  # steps in a row equal to one period before
        self._same: list[Any] = _kept(state, "same", ["", 0])  # a tool, and how often in a row it answered the same
        whole = len(self._calls) == len(self._results) == len(self._tools) <= len(PERIODS)
        if not whole or len(self._runs) != len(PERIODS) or len(self._same) != 2:  # noqa: PLR2004 - written by another version
            self.new_run()

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        self._calls.clear()
        self._results.clear()
        self._tools.clear()
        self._runs[:] = [0] * len(PERIODS)
        self._same[:] = ["", 0]

    def _read(self, step: Step) -> tuple[ToolCall, ...]:
        """The calls that count, and their signature in `_signature`; worked out once for each step."""
        if self._seen is not step:
            self._seen = step
            calls = step.calls
            if len(calls) == 1 and ((tool := step.tools.get(calls[0].name)) is None or not tool.polling):
                self._counted = calls
                if tool is None:
                    self._known = []
                elif self._known != [calls[0].name]:  # most steps use the tool of the one before
                    self._known = [calls[0].name]
                self._signature = _call_signature(calls[0])
            else:
                self._counted = _counted(step)
                self._known = sorted({call.name for call in self._counted if call.name in step.tools})
                self._signature = _short("\n".join(sorted([_call_signature(call) for call in self._counted])))
        return self._counted

    def before(self, step: Step) -> GuardVerdict | None:
        """Withdraw the tools of a cycle when this batch would complete one repeat too many."""
        if not self._read(step) or self._signature not in self._calls:
            return None
        limit = self._limit - 1 if step.wound_down and self._limit > 1 else self._limit
        for period in range(1, len(self._calls) + 1):
            if self._calls[-period] == self._signature and (self._runs[period - 1] + 1) // period >= limit:
                tools = frozenset([name for names in self._tools[-period:] for name in names])
                self._note(step, self._results[-period])  # kept back, but asked for: the next one lands
                reason = f"the same calls were repeated {limit} times without a new result"
                return _take_away(step, tools, reason, self.name)
        return None

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:
        """Count the repeats; nudge when the last one before the withdrawal is complete."""
        counted = self._read(step)
        if not counted:
            return None
        alone = len(results) == 1
        outcome = _result_signature(results[0]) if alone else _outcome(counted, results)
        self._seen, self._counted = None, ()  # the step is over
        return self._note(step, outcome, results[0] if alone else None)

    def _note(self, step: Step, outcome: str, alone: ToolResultMessage | None = None) -> GuardVerdict | None:
        """Keep what was asked and what came of it; the verdict on it, if any."""
        calls, past, signature = self._calls, self._results, self._signature
        verdict = None
        if signature in calls or outcome in past:
            verdict = self._count(step, outcome)
            if alone is not None and past[-1] == outcome and self._known:
                verdict = self._same_answer(step, self._known[0], alone) or verdict
        elif self._hot:
            self._cool()
        calls.append(signature)
        past.append(outcome)
        self._tools.append(self._known)
        if len(calls) > _LONGEST:
            del calls[0], past[0], self._tools[0]
        return verdict

    def _cool(self) -> None:
        """Neither the calls nor the results are among the last four: whatever was repeated, it is over."""
        self._hot = False
        self._runs[:] = [0] * len(PERIODS)
        self._same[1] = 0

    def _count(self, step: Step, outcome: str) -> GuardVerdict | None:
        """Count the repeats of every period; the nudge, when one is due."""
        calls, past, runs = self._calls, self._results, self._runs
        verdict = None
        self._hot = True
        if past[-1] != outcome or not self._known:
            self._same[1] = 0
        for period in range(1, len(calls) + 1):
            if calls[-period] == self._signature and past[-period] == outcome:
                runs[period - 1] = run = runs[period - 1] + 1
                if verdict is None and run % period == 0 and run // period == self._limit - 1 and not step.wound_down:
                    tools = frozenset([name for names in self._tools[-period:] for name in names])
                    verdict = self._nudge(tools, run // period)
            else:
                runs[period - 1] = 0
        return verdict

    def _same_answer(self, step: Step, name: str, result: ToolResultMessage) -> GuardVerdict | None:
        """The second counter: one tool, other arguments, the same answer again and again."""
        same = self._same
        if result.is_error or same[0] != name or not same[1]:
            same[:] = [name, 0 if result.is_error else 2 if set(self._tools[-1]) == {name} else 1]
        else:
            same[1] += 1
        if same[1] >= max(2, 2 * self._limit - 1 if step.wound_down else 2 * self._limit):
            reason = f"{name} gave the same answer {same[1]} times in a row"
            return _take_away(step, frozenset([name]), reason, self.name)
        if same[1] == 2 * self._limit - 1 and not step.wound_down:
            return self._nudge(frozenset([name]), same[1], what="gave the same answer to different arguments")
        return None

    def _nudge(
        self, tools: frozenset[str], times: int, what: str = "was repeated without a new result"
    ) -> GuardVerdict:
        notice = (
            f"You are going in circles: {_names(tools)} {what} ({times} times). "
            "Try something different, or answer with what you know."
        )
        reason = f"{_names(tools)} {what} {times} times"
        return GuardVerdict(action="nudge", reason=reason, tools=tools, notice=notice, notice_reason="repetition")


class ErrorStreakGuard:
    """Notices a tool that fails the same way again and again, whatever its arguments, with no success in between.

    With a limit of n: a nudge at n - 2 failures, the tool withdrawn at n, the next failure lands the run. Any result
    that is not an error ends every streak. Unknown tool names are one streak, whatever the name, and land the run at
    n: there is nothing to withdraw. After the wind-down notice there is no nudge, and n is one less.
    """

    name = "error_streak"
    __slots__ = ("_limit", "_nudge_at", "_state", "_streaks")
    before = None  # errors are known only afterwards

    def __init__(self, limit: int, state: dict[str, Any]) -> None:
        self._limit = limit
        self._nudge_at = max(1, limit - 2) if limit > 1 else 0
        self._state = state
        self._streaks: dict[str, list[Any]] = _kept(state, "streaks", {}) if state else {}

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        self._streaks.clear()

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:
        """Count the streaks."""
        failed: dict[str, list[str]] = {}
        for result in results:
            if not result.is_error:
                if self._streaks:
                    self._streaks.clear()
                return None
            if result.kind not in _NEITHER:
                known = result.kind != "unknown_tool" and result.tool_name in step.tools
                failed.setdefault(result.tool_name if known else "", []).append(_short(result.kind or "error"))
        return (
            self._judge(step, {tool: self._lengthen(tool, kinds) for tool, kinds in failed.items()}) if failed else None
        )

    def _lengthen(self, tool: str, kinds: list[str]) -> int:
        """One step more of the tool's streak, or the first of another."""
        streak = self._streaks.get(tool)
        if streak is None or streak[0] not in kinds:
            self._streaks[tool] = streak = [kinds[0], 0]
            self._state["streaks"] = self._streaks
        streak[1] += 1
        return int(streak[1])

    def _judge(self, step: Step, counts: dict[str, int]) -> GuardVerdict | None:
        limit = self._limit - 1 if step.wound_down and self._limit > 1 else self._limit
        if spent := {tool: count for tool, count in counts.items() if count >= limit}:
            tools = frozenset() if "" in spent else frozenset(spent)  # an unknown name decides: nothing to withdraw
            return _take_away(step, tools, self._story(spent), self.name)
        nudged = {tool: count for tool, count in counts.items() if count == self._nudge_at}
        if step.wound_down or not nudged:
            return None
        reason = self._story(nudged)
        notice = f"This does not work: {reason}. Change the approach, or answer with what you know."
        return GuardVerdict(action="nudge", reason=reason, notice=notice, notice_reason="error_streak")

    def _story(self, counts: dict[str, int]) -> str:
        return "; ".join(
            f"{tool or 'a tool that does not exist'} failed {count} times in a row with {self._streaks[tool][0]}"
            for tool, count in counts.items()
        )


class ReadOnlyGuard:
    """Nudges a run that has only looked at things for n steps; once, until it does something."""

    name = "read_only"
    __slots__ = ("_limit", "_state")
    before = None  # looking is allowed

    def __init__(self, limit: int, state: dict[str, Any]) -> None:
        self._limit = limit
        self._state = state
        _kept(state, "steps", 0)

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        self._state["steps"] = 0

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:  # noqa: ARG002
        """Count steps made only of read-only tools; polling is not looked at."""
        tools = [step.tools.get(call.name) for call in _counted(step)]
        if not tools:
            return None
        if not all(tool is not None and tool.read_only for tool in tools):
            self._state["steps"] = 0
            return None
        self._state["steps"] += 1
        if self._state["steps"] != self._limit or step.wound_down:
            return None
        notice = f"You have only read things for {self._limit} steps. Act on what you know, or answer."
        reason = f"{self._limit} steps of read-only tools"
        return GuardVerdict(action="nudge", reason=reason, notice=notice, notice_reason="read_only")
