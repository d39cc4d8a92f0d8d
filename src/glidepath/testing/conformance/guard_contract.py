"""The contracts of a `CallGuard` and a `StopGuard`, clause by clause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from glidepath._wire import Value
from glidepath.spi import CallGuard, GuardVerdict, Recovery, Step, Stop, StopGuard
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.values import AssistantMessage, TextBlock, ToolCall, ToolResultMessage

ACTIONS = ("nudge", "withdraw", "land")
LONG = 40
Batch = tuple[Step, tuple[ToolResultMessage, ...]]


class _Traits(Value, frozen=True):
    polling: bool = False
    read_only: bool = False


class CallGuardContract(Contract):
    """Subclass this and provide `make_guard(state)` and `provoking(number)`.

    `provoking` is the batch, with its results, that the guard should stop, for the n-th time in a row; the default is
    the same call with the same failure.
    """

    def make_guard(self, state: dict[str, Any]) -> CallGuard:
        """The guard of one run, with its state in this dict."""
        raise NotImplementedError(missing(self, "make_guard"))

    def provoking(self, number: int) -> Batch:
        """The behavior that the guard should stop, once more."""
        return batch("lookup", {"query": "the same"}, f"c{number}", "it failed", is_error=True)

    def test_guard_1_it_says_who_it_is(self) -> None:
        """GUARD-1: `name` is a non-empty text; `before` and `after` are functions or None, not both None."""
        guard = self.make_guard({})
        assert isinstance(guard.name, str)
        assert guard.name
        hooks = [getattr(guard, "before", None), getattr(guard, "after", None)]
        assert any(hooks), "it looks at nothing"
        assert all(hook is None or callable(hook) for hook in hooks)

    def test_guard_2_progress_is_left_alone(self) -> None:
        """GUARD-2: it leaves progress alone: new steps with new results, however many."""
        guard = self.make_guard({})
        for number in range(LONG):
            step, results = batch(f"tool{number % 3}", {"page": number}, f"c{number}", f"page {number}")
            assert _collect_verdicts(guard, step, results) == [], number

    def test_guard_3_it_notices_what_it_is_for(self) -> None:
        """GUARD-3: provoked long enough, it speaks up."""
        said = self._provoke({})
        assert said, f"it said nothing in {LONG} steps"

    def test_guard_4_verdicts_can_be_carried_out(self) -> None:
        """GUARD-4: a verdict is a `GuardVerdict` with a known action, a reason, and words for the model or a person."""
        for verdict in self._provoke({}):
            assert isinstance(verdict, GuardVerdict), f"it answered {verdict!r:.100}"
            assert verdict.action in ACTIONS
            assert verdict.reason.strip()
            assert verdict.action == "land" or verdict.notice.strip(), "a nudge and a withdrawal tell the model why"
            assert verdict.action != "withdraw" or verdict.tools, "say which tools"

    def test_guard_5_the_ladder_goes_up(self) -> None:
        """GUARD-5: under the same provocation it never becomes milder, and does not nudge forever."""
        ranks = [ACTIONS.index(verdict.action) for verdict in self._provoke({})]
        assert ranks == sorted(ranks), [ACTIONS[rank] for rank in ranks]
        assert ranks.count(0) <= 3, "the same nudge again and again is noise"

    def test_guard_6_its_state_survives(self) -> None:
        """GUARD-6: its state is plain JSON data: a guard made from a copy of it continues where the other stopped."""
        whole = [verdict.action for verdict in self._provoke({})]
        for cut in range(1, 8):
            state: dict[str, Any] = {}
            first = self._provoke(state, range(cut))
            if [verdict.action for verdict in first] == whole:
                break  # it is finished
            restored = json.loads(json.dumps(state))
            withdrawn = frozenset(tool for verdict in first for tool in verdict.tools if verdict.action == "withdraw")
            second = self._provoke(restored, range(cut, LONG), withdrawn)
            assert [verdict.action for verdict in (*first, *second)] == whole, f"cut after {cut} steps"

    def test_guard_7_runs_do_not_mix(self) -> None:
        """GUARD-7: two guards with separate states do not affect each other."""
        alone = [verdict.action for verdict in self._provoke({})]
        self._provoke({})
        fresh = self.make_guard({})
        step, results = batch("tool", {"page": 1}, "c1", "page 1")
        assert _collect_verdicts(fresh, step, results) == []
        assert [verdict.action for verdict in self._provoke({})] == alone

    def test_guard_8_any_state_will_do(self) -> None:
        """GUARD-8: a state from another version, or a damaged one, is repaired and does not crash the guard."""
        known: dict[str, Any] = {}
        self._provoke(known, range(3))
        for state in _odd_states(known):
            assert self._provoke(state), "it has to work from any state"

    def _provoke(
        self, state: dict[str, Any], numbers: range = range(LONG), withdrawn: frozenset[str] = frozenset()
    ) -> list[GuardVerdict]:
        """Its verdicts while it is provoked, until it lands the run; tools that it withdraws are gone."""
        guard, said = self.make_guard(state), list[GuardVerdict]()
        for number in numbers:
            step, results = self.provoking(number)
            step = Step(step.calls, step.tools, withdrawn)
            for verdict in _collect_verdicts(guard, step, results):
                said.append(verdict)
                if getattr(verdict, "action", None) == "land":
                    return said
                withdrawn |= getattr(verdict, "tools", frozenset()) if verdict.action == "withdraw" else frozenset()
        return said


def _odd_states(known: dict[str, Any]) -> list[dict[str, Any]]:
    """States that this version did not write."""
    return [{"unknown": 1}, dict.fromkeys(known), dict.fromkeys(known, "x"), {key: {} for key in known}]


def batch(name: str, arguments: dict[str, Any], call_id: str, text: str, *, is_error: bool = False) -> Batch:
    """A step with one call, and its result."""
    tools = {name: _Traits() for name in ("lookup", "tool0", "tool1", "tool2", "tool")}
    step = Step((ToolCall(call_id, name, arguments),), tools)
    kind = "failed" if is_error else None
    return step, (ToolResultMessage(call_id, name, text, is_error=is_error, kind=kind),)


def _collect_verdicts(guard: CallGuard, step: Step, results: tuple[ToolResultMessage, ...]) -> list[Any]:
    before, after = getattr(guard, "before", None), getattr(guard, "after", None)
    first: Any = None if before is None else before(step)
    kept_back = first is not None and getattr(first, "action", "") != "nudge"  # the batch does not run
    second = None if after is None or kept_back else after(step, results)
    return [verdict for verdict in (first, second) if verdict is not None]


class StopGuardContract(Contract):
    """Subclass this and provide `make_guard(state)` and `bad_end`: an end that the guard should not accept."""

    bad_end: Stop

    def make_guard(self, state: dict[str, Any]) -> StopGuard:
        """The guard of one run, with its state in this dict."""
        raise NotImplementedError(missing(self, "make_guard"))

    def test_stop_1_it_says_who_it_is(self) -> None:
        """STOP-1: `name` is a non-empty text."""
        name = self.make_guard({}).name
        assert isinstance(name, str)
        assert name

    def test_stop_2_a_good_end_stands(self) -> None:
        """STOP-2: a complete answer with text is accepted, even after bad ends."""
        guard = self.make_guard({})
        assert guard.recover(GOOD_END) is None
        guard.recover(self.bad_end)
        assert guard.recover(GOOD_END) is None

    def test_stop_3_a_bad_end_gets_a_chance(self) -> None:
        """STOP-3: it answers the bad end it is made for with a `Recovery`: a reason, and a message or a failure."""
        found: Any = self.make_guard({}).recover(self.bad_end)
        assert isinstance(found, Recovery), f"it answered {found!r:.100}"
        assert found.reason.strip()
        assert found.message.strip() or found.fail

    def test_stop_4_chances_run_out(self) -> None:
        """STOP-4: repeated bad ends use up its chances: from then on it is silent, or fails the run."""
        answers = list(_collect_recoveries(self.make_guard({}), self.bad_end))
        chances = [number for number, answer in enumerate(answers) if answer == "again"]
        assert chances == list(range(len(chances))), answers
        assert len(chances) < LONG, "it never gives up"

    def test_stop_5_progress_gives_new_chances(self) -> None:
        """STOP-5: `reset` forgets what was counted: there are as many chances as at the start."""
        guard = self.make_guard({})
        first = list(_collect_recoveries(guard, self.bad_end))
        guard.reset()
        assert list(_collect_recoveries(guard, self.bad_end)) == first

    def test_stop_6_its_state_survives(self) -> None:
        """STOP-6: its state is plain JSON data: a guard made from a copy of it continues where the other stopped."""
        whole = list(_collect_recoveries(self.make_guard({}), self.bad_end))
        state: dict[str, Any] = {}
        guard = self.make_guard(state)
        first = [_answer(guard.recover(self.bad_end))]
        restored = self.make_guard(json.loads(json.dumps(state)))
        assert [*first, *list(_collect_recoveries(restored, self.bad_end))][:LONG] == whole

    def test_stop_7_runs_do_not_mix(self) -> None:
        """STOP-7: two guards with separate states do not affect each other."""
        mine = self.make_guard({})
        mine.reset()
        other = self.make_guard({})
        assert list(_collect_recoveries(mine, self.bad_end)) == list(_collect_recoveries(other, self.bad_end))

    def test_stop_8_any_state_will_do(self) -> None:
        """STOP-8: a state from another version, or a damaged one, is repaired and does not crash the guard."""
        known: dict[str, Any] = {}
        self.make_guard(known).recover(self.bad_end)
        for state in _odd_states(known):
            assert list(_collect_recoveries(self.make_guard(state), self.bad_end))


GOOD_END = Stop(
    reply=AssistantMessage((TextBlock("The figures are 42 and 43."),)),
    text="The figures are 42 and 43.",
    truncated=False,
    recent_error=False,
)


def _collect_recoveries(guard: StopGuard, stop: Stop) -> Iterator[str]:
    for _ in range(LONG):
        yield _answer(guard.recover(stop))


def _answer(found: Recovery | None) -> str:
    if found is None:
        return "stands"
    return "again" if found.fail is None else "fails"
