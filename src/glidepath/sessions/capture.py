"""Finds cheaply what changed in a run since the last commit: it is asked twice a turn.

A few figures change every turn and are looked at one by one. For everything else there is a fingerprint; only when it
differs is a whole snapshot taken and compared. `tests/crash` checks after every commit that the journal folds to the
same snapshot that the run itself would give.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, compress
from operator import attrgetter, is_not
from typing import Any

from glidepath._wire import astuple, replace
from glidepath.messages import AssistantMessage
from glidepath.outcome import Charge, RunResult, Snapshot
from glidepath.run import Run
from glidepath.run.account import Account
from glidepath.run.snapshot import (
    KEPT,
    PARTS,
    as_kept,
    children_spent,
    configured,
    fallbacks_spent,
    guard_state,
    on_budget,
)
from glidepath.sessions.changes import diff


class Capture:
    """Remembers the state in the journal, and reports what is new."""

    __slots__ = ("_guards", "_others", "_print", "_rare", "_spent", "_text")

    def __init__(self, base: Snapshot | None = None) -> None:
        base, self._rare = (_EMPTY, _NO_RARE) if base is None else (base, _rare_in(base))
        self._others, self._text, self._spent = _others_in(base), base.text, base.fallbacks_spent
        # Of each guard a copy of its state, or only where its window was: see `RepetitionGuard.mark`.
        self._guards: dict[str, Any] = dict(base.guards)
        self._print: Any = None

    def changes(self, run: Run, guards: bool = True) -> dict[str, Any] | None:
        """Patches for the fields that differ from what is known, those of `tick` apart; they are known from then on.

        None when nothing differs. `guards` is False when the guards cannot have counted anything since.
        """
        found: Any = (rare := _rare(run))
        spend = run.spend
        others = spend.other_accounts
        if others or spend.child_accounts or run.audit.violations:
            found = (found, _counts(run))
        # Nearly always equal, and comparing it is far cheaper than a snapshot: this is asked twice a turn.
        if found != self._print:
            self._print = found
            return self._all(run, rare)
        changed: dict[str, Any] = {}
        text = run.answer.text
        if text is not self._text:
            self._look_at_text(run, text, changed)
        if others:
            self._look_at_fallbacks(fallbacks_spent(run), changed)
        if guards:
            self._look_at_guards(run, changed)
        return changed or None

    def _look_at_fallbacks(self, spent: Mapping[str, Charge], changed: dict[str, Any]) -> None:
        """Update the cost of models other than the configured one: it grows while one of them is in use."""
        if spent != self._spent:
            changed["fallbacks_spent"] = diff(self._spent, spent)
            self._spent = spent

    def _look_at_text(self, run: Run, text: str, changed: dict[str, Any]) -> None:
        """The best text so far is nearly always the last reply, which is in the journal already."""
        if text != self._text:
            messages = run.transcript.messages
            last = messages[-1] if messages else None
            reply = last.text if last.__class__ is AssistantMessage else _last_reply(run)
            changed["text"] = True if text and text == reply else ("=", text)
        self._text = text

    def _look_at_guards(self, run: Run, changed: dict[str, Any]) -> None:
        """Compare the state of each guard with its last one, and copy only the differences."""
        known, live, circles = self._guards, run.guards.home.get("guardrails"), run.guards.circles
        if live.__class__ is not dict or known.keys() != live.keys():
            self._print = None  # compare the whole snapshot next time
            return
        patches: dict[str, Any] = {}
        for name, state in live.items():
            before = known[name]
            if before.__class__ is tuple:
                found = circles.since(before)
                if found is None:  # something repeats: from now on it takes a closer look
                    known[name] = copied = _copied(state)
                    patches[name] = ("=", copied)
                elif found[1]:
                    known[name], news = found
                    patches[name] = ("{", news, ())
            elif state != before:
                patches[name] = _caught_up(before, state)
                if circles is not None and name == circles.name and (mark := circles.mark()) is not None:
                    known[name] = mark
        if patches:
            changed["guards"] = ("{", patches, ())

    def _all(self, run: Run, rare: tuple[Any, ...]) -> dict[str, Any] | None:
        """Compare everything, field by field."""
        changed: dict[str, Any] = {}
        children, violated = children_spent(run) or _NOBODY_SPENT, tuple(run.audit.violations)
        others = (run.run_id, run.meter.descendants, on_budget(run), children, violated, *_GOING_ON)
        names, before, now = _NAMES + _OTHERS, self._rare[: len(_NAMES)] + self._others, rare[: len(_NAMES)] + others
        for place in compress(range(len(names)), map(is_not, before, now)):
            name = names[place]
            if name in _SLOW:
                old, new = as_kept(before[place]), as_kept(now[place])
                patch = diff(old, new) if name != "children" else _more_children(old, new)
                if patch is not None:
                    changed[name] = patch
        self._rare, self._others = rare, others
        self._look_at_text(run, run.answer.text, changed)
        self._look_at_fallbacks(fallbacks_spent(run), changed)
        state = guard_state(run.guards.home.get("guardrails"))
        if state.keys() == self._guards.keys():
            self._look_at_guards(run, changed)
        else:
            changed["guards"], self._guards, circles = diff(self._guards, state), state, run.guards.circles
            if circles is not None and (mark := circles.mark()) is not None:
                state[circles.name] = mark
        return changed or None


def tick(run: Run) -> tuple[Any, ...]:
    """The figures that change every turn, in the order of `TICK` and `SPENT`."""
    return moment(run)[1]


def moment(run: Run) -> tuple[float, tuple[Any, ...]]:
    """The time, in seconds since the epoch, and the figures that change every turn."""
    meter, turn, spend, voice = run.meter, run.turn, run.spend, run.voice
    account = spend.account if not spend.other_accounts else configured_account(run)
    # Rounded to milliseconds and microseconds, as `round` does it, at a tenth of its cost.
    return (voice.now() * 1e3 + 0.5) // 1.0 / 1e3, (
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
        0,  # `behind`, which earlier versions read
        account.calls,
        account.input,
        account.output,
        account.cache_read,
        account.cache_write,
        account.reasoning,
        account.estimated,
        account.money,
    )


TICK = (
    "elapsed",
    "iterations",
    "tool_calls",
    "turns",
    "metered_tool_calls",
    "tokens",
    "picodollars",
    "next_event",
    "stop_reason",
    "last_error",
    "behind",
)
USAGE = ("input", "output", "cache_read", "cache_write", "reasoning", "estimated")
_WATCHED = ("text", "fallbacks_spent", "guards")  # each looked at in its own way
_SLOW = frozenset(Snapshot.__struct_fields__).difference(TICK, _WATCHED, ("spent",))


def untick(data: list[Any], fields: dict[str, Any]) -> None:
    """Put the figures of a tick into these fields of a snapshot.

    An older release may have written fewer, and a later one more: new figures are only ever added at the end.
    """
    fields.update(zip(TICK, data, strict=False))
    figures = data[len(TICK) :]
    if figures:
        before = fields.get("spent") or {"usage": {}}
        usage = {**before["usage"], **dict(zip(USAGE, figures[1:], strict=False))}
        money = figures[len(USAGE) + 1] if len(figures) > len(USAGE) + 1 else before.get("picodollars", 0)
        fields["spent"] = {"calls": figures[0], "usage": usage, "picodollars": money}


def configured_account(run: Run) -> Any:
    """The account of the configured model, whichever is in use."""
    name = configured(run)
    return run.spend.account if run.plan.model_name == name else run.spend.other_accounts.get(name) or Account()


def _named(part: str) -> tuple[str, ...]:
    """Those fields of a part that survive and change rarely."""
    return tuple(name for name in KEPT[part] if name in _SLOW)


_READ = ("transcript", "turn", "answer", "terms")
_of_transcript, _of_turn, _of_answer, _of_terms = (attrgetter(*_named(part)) for part in _READ)
_NAMES = (*PARTS["descent"].__struct_fields__, *PARTS["work"].__struct_fields__, *chain(*map(_named, _READ)))


def _rare(run: Run) -> tuple[Any, ...]:
    """What changes rarely, and is replaced when it changes; two parts as a whole, since all of them is like that.

    In the order of `_NAMES`.
    """
    return (
        *astuple(run.descent),
        *astuple(run.work),
        *_of_transcript(run.transcript),
        *_of_turn(run.turn),
        *_of_answer(run.answer),
        *_of_terms(run.terms),
        run.meter.descendants,
        run.plan.model_name,
    )


def _rare_in(base: Snapshot) -> tuple[Any, ...]:
    """The same in a snapshot, where it has it."""
    return tuple([getattr(base, name, None) for name in _NAMES])


_ENDED = ("state", "outcome", "cause", "partial")
_OTHERS = ("run_id", "descendants", "on_budget", "children_spent", "violations", *_ENDED)
_others_in = attrgetter(*_OTHERS)
_EMPTY = Snapshot(run_id="")
_GOING_ON, _NOBODY_SPENT = attrgetter(*_ENDED)(_EMPTY), _EMPTY.children_spent
_DEFAULTS = [zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False) for kind in PARTS.values()]
_NO_RARE = tuple(map(dict(chain(*_DEFAULTS)).get, _NAMES))  # the very objects that most runs have at their first commit


def _counts(run: Run) -> tuple[Any, ...]:
    """Of what grows in place. Most runs have none of it, and are not asked."""
    spend = run.spend
    return (
        len(run.audit.violations),
        [account.calls for account in spend.child_accounts.values()],
        [account.calls for account in spend.other_accounts.values()],
    )


def _caught_up(before: dict[str, Any], state: dict[str, Any]) -> Any:
    """Make the copy of a guard's state equal to it, and say by which patch."""
    if before.keys() != state.keys():
        patch = diff(before, copied := _copied(state))
        before.clear()
        before |= copied
        return patch
    changes: dict[str, Any] = {}
    for key, value in state.items():
        old = before[key]
        if value == old:
            continue
        if value.__class__ is list is old.__class__:  # nearly always it has one more item at its end
            changes[key] = followed(old, value)
            continue
        before[key] = new = _copied(value)
        changes[key] = diff(old, new)
    return ("{", changes, ())


def followed(old: list[Any], new: list[Any]) -> list[Any]:
    """Make `old` equal to `new`, and say by which patch. What both have stays where it is."""
    last = new[-1] if new else None
    if last.__class__ is str and len(old) == len(new) and old[1:] == new[:-1] and old != new:
        del old[0]  # a window that moved by one text, as nearly always
        old.append(last)
        return ["[", 1, [last]]
    for dropped in range(len(old) + 1):
        kept = len(old) - dropped
        if old[dropped:] == new[:kept]:
            last = old[-1] if old else None
            # Ours is as good where they are equal: nobody changes it.
            added = [last if item == last else _copied(item) for item in new[kept:]]
            del old[:dropped]
            old += added
            return ["[", dropped, added]
    raise AssertionError  # an empty rest always matches


def _copied(value: object) -> Any:
    """A deep copy; the state of guards is small."""
    if value.__class__ is dict:
        return {key: _copied(inner) for key, inner in value.items()}
    if value.__class__ is list:
        return [_copied(inner) for inner in value]
    return value


def _last_reply(run: Run) -> str | None:
    for message in reversed(run.transcript.messages):
        if message.__class__ is AssistantMessage:
            return message.text
    return None


def _more_children(old: tuple[RunResult, ...], new: tuple[RunResult, ...]) -> list[Any] | None:
    """A patch for new children. Each has its own journal, so its transcript is left out here."""
    if any(then.run_id != now.run_id or then.usage != now.usage for then, now in zip(old, new, strict=False)):
        return ["=", [bare(child) for child in new]]  # one that had paused has continued
    return ["[", 0, [bare(child) for child in new[len(old) :]]] if len(new) > len(old) else None


def bare(result: RunResult) -> RunResult:
    """A result without its transcript and other parts that the journal already has."""
    children = tuple(map(bare, result.children))
    return replace(result, messages=(), new_messages=(), snapshot=None, children=children, output=None)
