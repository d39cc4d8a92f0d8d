"""Error streaks, and reading without acting."""

from __future__ import annotations

from typing import Any

from glidepath.guards.withdrawing import repeatable_calls, restore_state, shorten_text, take_away
from glidepath.spi import GuardVerdict, Step
from glidepath.values import ResultKind, Texts, ToolResultMessage, pluralize

_NEITHER = frozenset(kind.value for kind in ResultKind if not kind.failed)
"""Results of calls that did not run: a person, a hook or a limit said no. They are neither failures nor successes."""

_NO_STREAKS: dict[str, list[Any]] = {}  # of a run in which nothing has failed; never changed, as the next one
_NO_ROW = [0, 0]


class ErrorStreakGuard:
    """Notices a tool that fails with the same error text again and again, whatever its arguments, with no success.

    With a limit of n: a nudge at n - 2 equal errors, the tool withdrawn at n, the next one lands the run. Other texts
    are other errors: n steps in a row that bring nothing but errors earn a nudge, and nothing more. Any result that is
    not an error ends every streak. Unknown tool names are one streak, whatever the name, and land the run at n: there
    is nothing to withdraw. After the wind-down notice there is no nudge, and n is one less.
    """

    name = "error_streak"
    __slots__ = ("_limit", "_nudge_at", "_row", "_state", "_texts", "streaks")
    before = None  # errors are known only afterwards

    def __init__(self, limit: int, state: dict[str, Any], texts: Texts | None = None) -> None:
        self._limit = limit
        self._nudge_at = max(1, limit - 2) if limit > 1 else 0
        self._texts = texts or Texts()
        self._state = state
        self.streaks: dict[str, list[Any]] = _NO_STREAKS  # tool: text, times, kind; made when something fails
        self._row: list[int] = _NO_ROW  # steps of errors only, nudges in them
        if state:
            self.streaks, self._row = restore_state(state, "streaks", {}), restore_state(state, "row", [0, 0])
            if len(self._row) != 2 or any(len(streak) != 3 for streak in self.streaks.values()):  # noqa: PLR2004
                self.new_run()  # an imported journal may say anything

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        if self.streaks is not _NO_STREAKS:
            self.streaks.clear()
            self._row[:] = _NO_ROW

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:
        """Count the streaks."""
        for result in results:
            if not result.is_error:
                if self.streaks:
                    self.new_run()
                return None
        failed: dict[str, list[tuple[str, str]]] = {}
        for result in results:
            if result.kind not in _NEITHER:
                known = result.kind != "unknown_tool" and result.tool_name in step.tools
                failed.setdefault(result.tool_name if known else "", []).append(_identify_error(step, result))
        if not failed:
            return None
        if self.streaks is _NO_STREAKS:
            self.streaks, self._row = {}, [*_NO_ROW]
        self._state["streaks"], self._state["row"] = self.streaks, self._row
        self._row[0] += 1
        return self._judge(step, {tool: self._extend_streak(tool, errors) for tool, errors in failed.items()})

    def _extend_streak(self, tool: str, errors: list[tuple[str, str]]) -> int:
        """One step more of the tool's streak, or the first of another."""
        streak = self.streaks.get(tool)
        if streak is None or streak[0] not in [text for text, _ in errors]:
            text, kind = errors[0]
            self.streaks[tool] = streak = [text, 0, kind]
        streak[1] += 1
        return int(streak[1])

    def _judge(self, step: Step, counts: dict[str, int]) -> GuardVerdict | None:
        limit = self._limit - 1 if step.wound_down and self._limit > 1 else self._limit
        if spent := {tool: count for tool, count in counts.items() if count >= limit}:
            tools = frozenset() if "" in spent else frozenset(spent)  # an unknown name decides: nothing to withdraw
            return take_away(step, tools, self._describe_streaks(spent), self.name, self._texts)
        if step.wound_down or self._limit == 1:
            return None
        if nudged := {tool: count for tool, count in counts.items() if count == self._nudge_at}:
            reason = self._describe_streaks(nudged)
            notice = self._texts.fill("error_streak", reason=reason)
        elif self._row[0] == self._limit and not self._row[1]:
            reason = f"{pluralize(self._limit, 'step')} in a row produced only errors"
            notice = self._texts.fill("only_errors", times=self._limit)
        else:
            return None
        self._row[1] += 1
        return GuardVerdict(action="nudge", reason=reason, notice=notice, notice_reason=self.name)

    def _describe_streaks(self, counts: dict[str, int]) -> str:
        return "; ".join(
            f"{tool or 'a tool that does not exist'} failed {pluralize(count, 'time')} in a row "
            f"with {self.streaks[tool][2]}"
            for tool, count in counts.items()
        )


def _identify_error(step: Step, result: ToolResultMessage) -> tuple[str, str]:
    """What makes an error the same error, and what to call it. Unreadable JSON is one error wherever it breaks off."""
    kind = result.kind or "error"
    if kind == ResultKind.UNKNOWN_TOOL:
        return kind, kind
    if kind == ResultKind.INVALID_ARGUMENTS:
        for call in step.calls:
            if call.id == result.call_id and call.malformed is not None:
                return "malformed", kind
    return shorten_text(" ".join(result.text.split())) or kind, shorten_text(kind)


class ReadOnlyGuard:
    """Nudges a run that has only looked at things for n steps; once, until it does something."""

    name = "read_only"
    __slots__ = ("_limit", "_state", "_texts")
    before = None  # looking is allowed

    def __init__(self, limit: int, state: dict[str, Any], texts: Texts | None = None) -> None:
        self._limit = limit
        self._state = state
        self._texts = texts or Texts()
        restore_state(state, "steps", 0)

    def new_run(self) -> None:
        """Forget what an earlier run did."""
        self._state["steps"] = 0

    def after(self, step: Step, results: tuple[ToolResultMessage, ...]) -> GuardVerdict | None:  # noqa: ARG002
        """Count steps made only of read-only tools; polling is not looked at."""
        tools = [step.tools.get(call.name) for call in repeatable_calls(step)]
        if not tools:
            return None
        if not all(tool is not None and tool.read_only for tool in tools):
            self._state["steps"] = 0
            return None
        self._state["steps"] += 1
        if self._state["steps"] != self._limit or step.wound_down:
            return None
        notice = self._texts.fill("read_only", steps=self._limit)
        reason = f"{pluralize(self._limit, 'step')} of read-only tools"
        return GuardVerdict(action="nudge", reason=reason, notice=notice, notice_reason="read_only")
