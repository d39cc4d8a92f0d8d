"""Which runs a list shows: what a request asks for, checked, and what of it a store can answer itself."""

from __future__ import annotations

import math
from collections.abc import Mapping

from glidepath._wire import Value
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.shapes import RunCard
from glidepath.sessions.summaries import UNFINISHED
from glidepath.spi import SessionQuery
from glidepath.values import LoopOutcome

__all__ = ["OUTCOMES", "STATES", "RunQuery", "read_time"]

STATES = ("queued", "running", "paused", "ended", "lost")
OUTCOMES = tuple(one.value for one in LoopOutcome)
_IN_FLIGHT = frozenset({"running", "lost", "queued"})  # what a store knows of these is that they have no outcome yet
_MOST_TEXT = 400
_TEXTS = ("agent", "user", "tag", "q", "cursor")


class RunQuery(Value, frozen=True, kw_only=True):
    """What a list of runs shows. An empty set filters nothing.

    `q` is looked for in titles, tasks and ids, `text` in the transcripts. `since` and `until` are times (seconds since
    the epoch) between which a run last began or ended.
    """

    states: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    agent: str | None = None
    user: str | None = None
    tag: str | None = None
    q: str = ""
    text: str = ""
    since: float | None = None
    until: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> RunQuery:
        """What the parameters of a request ask for; raises `HttpError` naming the one that is wrong."""
        text = given.get("text", "").strip()
        if len(text) > _MOST_TEXT or "\0" in text:
            raise HttpError(400, "bad_text", f"text has up to {_MOST_TEXT} characters and no NUL character")
        odd = next((name for name in _TEXTS if "\0" in given.get(name, "")), None)
        if odd is not None:
            raise HttpError(400, f"bad_{odd}", f"{odd} must not have NUL characters")
        return cls(
            states=_choose(given, "state", STATES),
            outcomes=_choose(given, "outcome", OUTCOMES),
            agent=given.get("agent") or None,
            user=given.get("user") or None,
            tag=given.get("tag") or None,
            q=given.get("q", ""),
            text=text,
            since=read_time(given, "since"),
            until=read_time(given, "until"),
        )

    def has(self, state: str, outcome: str | None) -> bool:
        """True for a run in this state and with this outcome."""
        return (not self.states or state in self.states) and (not self.outcomes or outcome in self.outcomes)

    def has_card(self, card: RunCard) -> bool:
        """True for the card of a run that no store keeps."""
        return (
            self.has(card.state, card.outcome)
            and self.agent in (None, card.agent)
            and self.user is None  # nobody has said whose they are
            and (self.tag is None or self.tag in card.tags)
            and (self.since is None or card.listed >= self.since)
            and (self.until is None or card.listed < self.until)
            and self.q.casefold() in f"{card.task}\n{card.session_id}\n{card.run_id}".casefold()
        )

    def for_store(self, scope: str | None) -> SessionQuery:
        """What a store can answer of it, for those whose sessions have the tag `scope`."""
        return SessionQuery(
            tag=scope or self.tag,
            text=self.q,
            agent=self.agent,
            user=self.user,
            outcome=self._stored_outcome(),
            after=self.since,
            before=self.until,
        )

    def _stored_outcome(self) -> str | None:
        if len(self.outcomes) == 1:
            return next(iter(self.outcomes))
        if self.states and self.states <= _IN_FLIGHT and not self.outcomes:
            return UNFINISHED
        return LoopOutcome.PAUSED.value if self.states == {"paused"} else None


def _choose(given: Mapping[str, str], name: str, known: tuple[str, ...]) -> frozenset[str]:
    chosen = frozenset(filter(None, given.get(name, "").split(",")))
    odd = sorted(chosen - set(known))
    if odd:
        raise HttpError(400, f"bad_{name}", f"{name} must be one of {', '.join(known)}, not {odd[0]!r:.80}")
    return chosen


def read_time(given: Mapping[str, str], name: str) -> float | None:
    """A time among the parameters of a request; raises `HttpError`."""
    text = given.get(name)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise HttpError(400, f"bad_{name}", f"{name} must be a time in seconds since the epoch, not {text!r:.40}")
    return found
