"""Finds the recorded call that a request repeats: by what it says, and by which agent of the session says it.

Calls of one agent come in their order; agents run beside each other, so a request is looked for among the next calls of
its own agent, or, for an agent that is new here, among the first calls of those that nobody has claimed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, Value, encode, field
from glidepath.apps.gate.attribution import agent_named, headers_of
from glidepath.apps.gate.known_agents import recognize
from glidepath.apps.gate.recordings.differences import Difference, RequestComparison, explain, find_first
from glidepath.apps.gate.recordings.scrubbing import choose_query, find_secrets, read_json, scrub_body
from glidepath.apps.gate.recordings.substitution import Substitution
from glidepath.apps.gate.recordings.taped_values import BROKEN, LEFT, WHOLE, TapedCall
from glidepath.apps.gate.recordings.volatile import Normalizer, Place, learn

if TYPE_CHECKING:
    from glidepath.apps.gate.governing import GateRequest
    from glidepath.apps.gate.recordings.tape_reader import RecordedTape

GENERATE = "generate"


class LiveRequest(Value, frozen=True, kw_only=True):
    """A request of this run."""

    agent: str
    door: tuple[str, ...]
    """Dialect, operation, path and query: what it asks for, apart from its body."""
    body: Any
    normal: Any
    digest: bytes


class _Lane(Record):
    """The calls of one recorded agent."""

    agent: str
    calls: list[TapedCall] = field(default_factory=list)
    claimed: str | None = None
    """The agent of this run that it belongs to."""


class RecordedScript:
    """The calls of a recording, and which of them were made again."""

    def __init__(self, tape: RecordedTape, *, live: Place, turns: int | None = None) -> None:
        self.tape = tape
        self.substitution = Substitution()
        self.made: set[int] = set()
        self._recorded = _place_of(tape)
        self._live = live
        self._ours: Normalizer | None = None
        self._theirs: Normalizer | None = None
        self._digests: dict[int, bytes] = {}
        first = next((one for one in sorted(tape.calls, key=_began) if self._offers_tools(one)), None)
        self._main = None if first is None else first.agent
        self.calls = self._cut(turns)
        self._lanes: dict[str, _Lane] = {}
        for call in self.calls:
            self._lanes.setdefault(call.agent, _Lane(call.agent)).calls.append(call)
        self._turns = {call.number for call in self.calls if self._is_turn(call)} if turns is not None else None

    # --- what is there ----------------------------------------------------------------------------------------------

    def list_left(self) -> list[TapedCall]:
        """The calls that were recorded and not made again, except those without which a run is the same."""
        return [
            call
            for call in self.calls
            if call.number not in self.made and call.operation == GENERATE and call.end == WHOLE
        ]

    def count_turns(self) -> int:
        """How many turns of the main agent were recorded."""
        return sum(self._is_turn(call) for call in self.tape.calls)

    @property
    def may_continue(self) -> bool:
        """True when every turn that was to be repeated has been: what comes now is new."""
        return self._turns is not None and self._turns <= self.made

    def _is_turn(self, call: TapedCall) -> bool:
        """True for a reply to the main agent, which is the one that offered tools first; no error, no side call."""
        is_reply = call.operation == GENERATE and call.end == WHOLE and call.status == 200  # noqa: PLR2004
        return is_reply and (self._main is None or (call.agent == self._main and self._offers_tools(call)))

    def _offers_tools(self, call: TapedCall) -> bool:
        if call.operation != GENERATE:
            return False
        body = self.tape.read_body(call)
        return b'"tools"' in body and b'"tools":[]' not in body

    def _cut(self, turns: int | None) -> list[TapedCall]:
        """The calls in the order in which they began, up to the turn that is the first to be new."""
        calls = sorted(self.tape.calls, key=_began)
        if turns is None:
            return calls
        own = [call for call in calls if self._is_turn(call)]
        return calls if turns >= len(own) else [call for call in calls if call.began < own[turns].began]

    # --- matching ---------------------------------------------------------------------------------------------------

    def match(self, request: GateRequest) -> TapedCall | Difference | None:
        """The recorded call that this request repeats, or how it differs; None for one that is new, and may be."""
        asked = self._read(request)
        found = next((call for call in self._candidates(asked) if self._is_equal(call, asked)), None)
        if found is None:
            return None if self.may_continue else self._explain(asked)
        if found.end == BROKEN:
            return Difference(
                sentence="the recording is torn: its gate ended in the middle of this reply", call=found.number
            )
        if asked.agent:
            self._lanes[found.agent].claimed = asked.agent
        self.made.add(found.number)
        recorded = read_json(self.tape.read_body(found))
        for before, now in learn(recorded, asked.body, self._our_normalizer(), self._their_normalizer()):
            self.substitution.add(before, now)
        return found

    def release(self, call: TapedCall) -> None:
        """The client left before it had this reply: it may ask again."""
        if call.end != LEFT:
            self.made.discard(call.number)

    def _read(self, request: GateRequest) -> LiveRequest:
        headers = headers_of(request.headers)
        known = recognize(headers)
        if self._theirs is None:
            release = find_release(headers.get("user-agent", ""))
            self._live = Place(agent=known.name, folder=self._live.folder, home=self._live.home, version=release)
            self._theirs = Normalizer(self._live)
        body = read_json(scrub_body(request.body, find_secrets(request.headers, request.query)))
        normal = self._theirs.read(body)
        return LiveRequest(
            agent=agent_named(known, headers) or "",
            door=(request.dialect, request.operation, request.path, choose_query(request.query)),
            body=body,
            normal=normal,
            digest=_digest(normal),
        )

    def _candidates(self, asked: LiveRequest) -> Iterator[TapedCall]:
        """The calls it may be, the likeliest first."""
        for is_first_choice in (True, False):
            for lane in self._order_lanes(asked.agent, is_first_choice=is_first_choice):
                yield from [one for one in lane.calls if one.number not in self.made and _door_of(one) == asked.door]

    def _order_lanes(self, agent: str, *, is_first_choice: bool) -> list[_Lane]:
        own = [lane for lane in self._lanes.values() if agent and lane.claimed == agent]
        if not own:
            own = [lane for lane in self._lanes.values() if lane.claimed is None]
        if is_first_choice:
            return own
        return [lane for lane in self._lanes.values() if lane not in own]

    def _is_equal(self, call: TapedCall, asked: LiveRequest) -> bool:
        known = self._digests.get(call.number)
        if known is None:
            known = self._digests[call.number] = _digest(self._normalize(call))
        return known == asked.digest

    def _normalize(self, call: TapedCall) -> object:
        return self._our_normalizer().read(read_json(self.tape.read_body(call)))

    def _our_normalizer(self) -> Normalizer:
        if self._ours is None:
            self._ours = Normalizer(self._recorded)
        return self._ours

    def _their_normalizer(self) -> Normalizer:
        if self._theirs is None:
            self._theirs = Normalizer(self._live)
        return self._theirs

    # --- what differs -----------------------------------------------------------------------------------------------

    def _explain(self, asked: LiveRequest) -> Difference:
        expected = next(self._candidates(asked), None)
        if expected is None:
            repeated = next((one for one in self.calls if self._is_equal(one, asked)), None)
            if repeated is not None:
                sentence = f"the command asks again for what it got as the reply to call {repeated.number}"
            elif self.tape.torn:
                sentence = f"the recording is torn: {self.tape.torn}"
            else:
                sentence = "the recording has no further call, and the command made another one"
            return Difference(sentence=sentence)
        normal = self._normalize(expected)
        found = find_first(normal, asked.normal)
        if found is None:
            return Difference(sentence="the request is another one", call=expected.number)
        place, before, now = found
        compared = RequestComparison(
            place=place, recorded=normal, live=asked.normal, ours=self._recorded, theirs=self._live
        )
        return Difference(sentence=explain(compared), field=place, recorded=before, live=now, call=expected.number)


def _door_of(call: TapedCall) -> tuple[str, ...]:
    return (call.dialect, call.operation, call.path, call.query)


def _began(call: TapedCall) -> int:
    return call.began


def _digest(value: object) -> bytes:
    return hashlib.blake2b(encode(value), digest_size=16).digest()


def find_release(user_agent: str) -> str:
    """The release in a User-Agent header."""
    return user_agent.partition("/")[2].partition(" ")[0][:40]


def _place_of(tape: RecordedTape) -> Place:
    """Where the recording was made, and with what."""
    agents = [value for call in tape.calls for name, value in call.headers if name == "user-agent"]
    return Place(
        agent=tape.head.program,
        folder=tape.head.folder,
        home=tape.head.home,
        version=find_release(agents[0]) if agents else "",
    )
