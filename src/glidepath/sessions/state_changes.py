"""What a commit says about the state of a run: the fields that have changed, and the counters of the turn.

The parts of a run mark a field when they write it, in `unsaved`, so that a commit looks at those alone. Counters change
every turn and are written every time. `tests/crash` checks after every commit that the journal folds to the same
snapshot that the run itself would give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from glidepath._wire import Value, replace
from glidepath.run import (
    PARTS,
    Account,
    Run,
    freeze_field,
    guard_state,
    name_configured_model,
    on_budget,
    sum_child_spending,
    sum_fallback_spending,
)
from glidepath.sessions.changes import diff
from glidepath.values import AssistantMessage, RunResult, Snapshot, StopReason


class Counters(Value, frozen=True, array_like=True, gc=False):
    """The figures that change every turn, written as an array: new ones are only ever added at the end."""

    elapsed: float
    iterations: int
    tool_calls: int
    turns: int
    metered_tool_calls: int
    tokens: int
    picodollars: int
    next_event: int
    stop_reason: StopReason | None
    last_error: bool
    model_calls: int
    """From here on: what the configured model has cost."""
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    estimated: bool
    model_picodollars: int


_FIGURES = Counters.__struct_fields__
_OF_RUN = _FIGURES[: _FIGURES.index("model_calls")]
_USAGE = ("input", "output", "cache_read", "cache_write", "reasoning", "estimated")


def count(run: Run) -> tuple[float, Counters]:
    """The time, in seconds since the epoch, and the counters at this moment."""
    meter = run.meter
    turn = run.turn
    spend = run.spend
    voice = run.voice
    account = spend.account if not spend.other_accounts else _find_configured_account(run)
    # Rounded to milliseconds and microseconds, as `round` does it, at a tenth of its cost.
    return (voice.now() * 1e3 + 0.5) // 1.0 / 1e3, Counters(
        ((run.watch.time() - run.terms.started_at) * 1e6 + 0.5) // 1.0 / 1e6,
        turn.iterations,
        turn.tool_calls,
        meter.turns,
        meter.tool_calls,
        meter.tokens,
        meter.money,
        voice.peek_number() if voice.listening else 1,
        turn.stop_reason,
        turn.last_error,
        account.calls,
        account.input,
        account.output,
        account.cache_read,
        account.cache_write,
        account.reasoning,
        account.estimated,
        account.money,
    )


def _find_configured_account(run: Run) -> Account:
    """The account of the configured model, whichever is in use."""
    name = name_configured_model(run)
    return run.spend.account if run.plan.model_name == name else run.spend.other_accounts.get(name) or Account()


def read_counters(data: list[Any], fields: dict[str, Any]) -> None:
    """Put the counters of a commit into these fields of a snapshot. A later release may have written more of them."""
    found = dict(zip(_FIGURES, data[: len(_FIGURES)], strict=True))
    fields.update({name: found[name] for name in _OF_RUN})
    fields["spent"] = {
        "calls": found["model_calls"],
        "usage": {name: found[name] for name in _USAGE},
        "picodollars": found["model_picodollars"],
    }


_LOOKED_AT = ("text", "fallbacks_spent", "guards", "spent")  # each commit looks at these, in their own ways
_EMPTY = Snapshot(run_id="")
_ENDED = ("state", "outcome", "cause", "partial")
MARKED = frozenset(Snapshot.__struct_fields__).difference(_OF_RUN, _LOOKED_AT, _ENDED)
"""What is written only when a part of the run, or the run, has marked it."""


def _constantly(value: object) -> Callable[[Run], Any]:
    return lambda _: value


_READ: Mapping[str, Callable[[Run], Any]] = {
    **{
        name: attrgetter(f"{part}.{name}")
        for part in ("descent", "work", "transcript", "turn", "answer", "terms")
        for name in PARTS[part].__struct_fields__
        if name in MARKED
    },
    "run_id": attrgetter("run_id"),
    "descendants": attrgetter("meter.descendants"),
    "disputed": attrgetter("meter.disputed"),
    "on_budget": on_budget,
    "children_spent": sum_child_spending,
    "violations": attrgetter("audit.violations"),
    # While a run runs it has not ended: these say so of one that continues after its end.
    **{name: _constantly(getattr(_EMPTY, name)) for name in _ENDED},
}
"""How to read each field that is marked when it changes, in the order in which a commit has them."""
_PLACE = {name: place for place, name in enumerate(_READ)}.__getitem__
_GIVEN = ("run_id", "first_new", "on_budget")  # a run has these from its first moment, and nobody marks them
_BY_ITSELF: Any = object()  # in place of the copy of a guard's state: the guard itself says what is new


class StateChanges:
    """Knows the state that is in the journal, and takes from a run what has changed since."""

    __slots__ = ("_base", "_descendants", "_disputed", "_guards", "_saved", "_spent", "_text")

    def __init__(self, run: Run, base: Snapshot | None = None) -> None:
        run.mark_unsaved(_GIVEN if base is None else _READ)
        self._base = base = base or _EMPTY
        self._saved: dict[str, Any] = {}  # what differs from `base`, as it was written
        self._text, self._spent, self._descendants = base.text, base.fallbacks_spent, base.descendants
        self._disputed = base.disputed
        self._guards: dict[str, Any] = dict(base.guards)

    def take(self, run: Run, guards: bool = True) -> dict[str, Any] | None:
        """Patches for what has changed, counters apart; None when nothing has. They count as written from then on.

        `guards` is False when the guards cannot have counted anything since.
        """
        changed: dict[str, Any] = {}
        if run.meter.descendants != self._descendants:  # children of children are counted, too: nobody could mark it
            run.mark_unsaved(("descendants",))
            self._descendants = run.meter.descendants
        if run.meter.disputed != self._disputed:  # the same: a bill of a child is disputed all the way up
            run.mark_unsaved(("disputed",))
            self._disputed = run.meter.disputed
        if run.turn.unsaved:
            self._take_marked(run, changed)
        text = run.answer.text
        if text is not self._text:
            self._take_text(run, text, changed)
        if run.spend.other_accounts:
            self._take_fallbacks(run, changed)
        if guards:
            self._take_guards(run, changed)
        return changed or None

    def _take_marked(self, run: Run, changed: dict[str, Any]) -> None:
        saved = self._saved
        for name in sorted(run.take_unsaved(), key=_PLACE):
            old = saved[name] if name in saved else getattr(self._base, name)
            saved[name] = new = freeze_field(_READ[name](run))
            patch = diff(old, new) if name != "children" else _diff_children(old, new)
            if patch is not None:  # a field may be written and be as it was
                changed[name] = patch

    def _take_text(self, run: Run, text: str, changed: dict[str, Any]) -> None:
        """The best text so far is nearly always the last reply, which is in the journal already."""
        if text != self._text:
            messages = run.transcript.messages
            last = messages[-1] if messages else None
            reply = last.text if last.__class__ is AssistantMessage else _last_reply(run)
            changed["text"] = True if text and text == reply else ("=", text)
        self._text = text

    def _take_fallbacks(self, run: Run, changed: dict[str, Any]) -> None:
        """The cost of models other than the configured one grows while one of them is in use."""
        spent = sum_fallback_spending(run)
        if spent != self._spent:
            changed["fallbacks_spent"] = diff(self._spent, spent)
            self._spent = spent

    def _take_guards(self, run: Run, changed: dict[str, Any]) -> None:
        """A guard keeps what it counts in its own dict, which is compared; ours for circles says what is new."""
        known = self._guards
        live = run.guards.home.get("guardrails")
        circles = run.guards.circles
        if live.__class__ is not dict or known.keys() != live.keys():
            self._guards = whole = guard_state(live)
            if known != whole:
                changed["guards"] = diff(known, whole)
            if circles is not None and circles.name in whole and circles.take_changes() is not None:
                whole[circles.name] = _BY_ITSELF
            return
        patches: dict[str, Any] = {}
        for name, state in live.items():
            before = known[name]
            if before is _BY_ITSELF:
                news = circles.take_changes()
                if news is None:  # something repeats: from now on it takes a closer look
                    known[name] = copied = _copy_deep(state)
                    patches[name] = ("=", copied)
                elif news:
                    patches[name] = ("{", news, ())
            elif state != before:
                known[name] = copied = _copy_deep(state)
                patches[name] = diff(before, copied)
                if circles is not None and name == circles.name and circles.take_changes() is not None:
                    known[name] = _BY_ITSELF
        if patches:
            changed["guards"] = ("{", patches, ())


def _copy_deep(value: object) -> Any:
    """A deep copy; the state of guards is small."""
    if value.__class__ is dict:
        return {key: _copy_deep(inner) for key, inner in value.items()}
    if value.__class__ is list:
        return [_copy_deep(inner) for inner in value]
    return value


def _last_reply(run: Run) -> str | None:
    for message in reversed(run.transcript.messages):
        if message.__class__ is AssistantMessage:
            return message.text
    return None


def _diff_children(old: tuple[RunResult, ...], new: tuple[RunResult, ...]) -> list[Any] | None:
    """A patch for new children. Each has its own journal, so its transcript is left out here."""
    if any(then.run_id != now.run_id or then.usage != now.usage for then, now in zip(old, new, strict=False)):
        return ["=", [strip_result(child) for child in new]]  # one that had paused has continued
    return ["[", 0, [strip_result(child) for child in new[len(old) :]]] if len(new) > len(old) else None


def strip_result(result: RunResult) -> RunResult:
    """A result without its transcript and other parts that the journal already has."""
    children = tuple(map(strip_result, result.children))
    return replace(result, messages=(), new_messages=(), snapshot=None, children=children, output=None)
