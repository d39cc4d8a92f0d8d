"""Whose call is it? The path, our own headers, those of known agents, ids of calls that passed through, the prefix.

What names a session is the client's claim. It chooses only below the budget of its key, so a wrong claim costs the
claimant's own run, never more than its key allows.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from glidepath.apps.gate.known_agents import KnownAgent, recognize
from glidepath.apps.gate.tree import ForeignAgent, ForeignSession
from glidepath.tools import clean

if TYPE_CHECKING:
    from glidepath.apps.gate.dialects.dialect import RequestFacts
    from glidepath.apps.gate.lines import Line


MOST_REMEMBERED = 100_000
"""Ids and prefixes that are remembered: of longer ago than that no conversation continues."""
MOST_AGENTS = 1_000
"""Agents of one session that are told apart; a client that invents more names shares one."""
MOST_DEPTH = 32
"""Levels of sub-agents; what is deeper hangs below the main agent."""
_OTHERS = "others"
_RUN, _AGENT = "x-glidepath-run", "x-glidepath-agent"
LONGEST_NAME = 200


def headers_of(raw: object) -> dict[str, str]:
    """Headers as text, names in lower case; the first of each name."""
    found: dict[str, str] = {}
    for name, value in raw:  # type: ignore[attr-defined]
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


class _Remembered(OrderedDict[tuple[str, object], "weakref.ref[ForeignAgent]"]):
    """The newest entries; the oldest fall out. They keep no agent alive: its line does, with its session."""

    def keep(self, line: Line, what: object, agent: ForeignAgent) -> None:
        key = (line.name, what)
        self[key] = weakref.ref(agent)
        self.move_to_end(key)
        if len(self) > MOST_REMEMBERED:
            self.popitem(last=False)

    def find(self, line: Line, what: object) -> ForeignAgent | None:
        """The agent of an entry, while its line remembers its session."""
        key = (line.name, what)
        entry = self.get(key)
        agent = None if entry is None else entry()
        if agent is not None and line.sessions.get(agent.session.id) is agent.session:
            return agent
        if entry is not None:
            del self[key]
        return None


class Attribution:
    """Finds the agent that made a call, or makes a new one. Call ids and prefixes are looked up within one line."""

    def __init__(self) -> None:
        self._by_call = _Remembered()
        self._by_prefix = _Remembered()
        self._numbers = itertools.count(1)

    def find(self, line: Line, path: tuple[str, ...], headers: Mapping[str, str], facts: RequestFacts) -> ForeignAgent:
        """The agent of a request."""
        known = recognize(headers)
        explicit = agent_named(known, headers)
        session_id = session_named(known, path, headers)
        continued = None if explicit is not None and session_id is not None else self._find_continued_agent(line, facts)
        if session_id is None:
            # Not a number: another gate on the same store would have the same.
            fresh = f"run-{secrets.token_hex(5)}"
            session = continued.session if continued is not None else line.open_session(fresh, known)
        else:
            session = line.open_session(session_id, known)
        if not session.title:
            session.title = clean(facts.first_text)
        if continued is not None and continued.session is not session:
            continued = None  # another run of the same client: what names the run outranks what the history says
        agent = self._agent(session, known, explicit, continued, headers, facts)
        agent.has_tools = agent.has_tools or facts.has_tools
        return agent

    def remember_calls(self, agent: ForeignAgent, line: Line, ids: list[str]) -> None:
        """These calls were passed on to an agent: they come back in its next request."""
        for one in ids:
            self._by_call.keep(line, one, agent)

    def remember_digest(self, agent: ForeignAgent, line: Line, digest: bytes) -> None:
        """The prefix of a conversation that another gate has remembered."""
        agent.prefix = digest
        self._by_prefix.keep(line, digest, agent)

    def remember_prefix(self, agent: ForeignAgent, line: Line, facts: RequestFacts) -> None:
        """For a conversation without ids: the next request begins with all of this one."""
        digests = facts.prefix_digests()
        if digests:
            self.remember_digest(agent, line, digests[-1])

    def _find_continued_agent(self, line: Line, facts: RequestFacts) -> ForeignAgent | None:
        """The agent whose conversation this one continues, by the newest id that we know, else by its prefix."""
        ids = facts.call_ids()
        for one in reversed(ids):
            agent = self._by_call.find(line, one)
            if agent is not None:
                return agent
        if ids:  # a history that we have never seen: a prefix of it would be chance
            return None
        # The newest message is new: only what comes before it can have been sent before.
        for digest in reversed(facts.prefix_digests()[:-1]):
            agent = self._by_prefix.find(line, digest)
            if agent is not None and agent.prefix == digest:
                return agent
        return None

    def _agent(
        self,
        session: ForeignSession,
        known: KnownAgent,
        explicit: str | None,
        continued: ForeignAgent | None,
        headers: Mapping[str, str],
        facts: RequestFacts,
    ) -> ForeignAgent:
        if explicit is not None:
            return self._named_agent(session, known, explicit, headers, facts)
        return self._unnamed_agent(session, facts) if continued is None else continued

    def _named_agent(
        self,
        session: ForeignSession,
        known: KnownAgent,
        explicit: str,
        headers: Mapping[str, str],
        facts: RequestFacts,
    ) -> ForeignAgent:
        found = session.agents.get(explicit)
        # A title or a check that a known agent asks for beside its work has no tools, and no landing of its own.
        if found is not None and found.has_tools and not facts.has_tools:
            return self._side_agent(session)
        if found is None and len(session.agents) >= MOST_AGENTS:
            return self._others(session)
        return session.add_agent(explicit, self._parent(session, known, headers, explicit)) if found is None else found

    def _unnamed_agent(self, session: ForeignSession, facts: RequestFacts) -> ForeignAgent:
        main = session.main_agent()
        if main is not None and main.has_tools and not facts.has_tools:
            return self._side_agent(session)
        shape = _shape_of(facts)
        for agent in session.agents.values():
            # The same program with a history that it has cut itself: it continues as the agent it was.
            if agent.shape == shape and not agent.in_flight and agent.id.startswith("agent-") and agent.calls:
                return agent
        if len(session.agents) >= MOST_AGENTS:
            return self._others(session)
        above = main if main is not None and main.has_tools and main.started and not main.landed else None
        agent = session.add_agent(self._new_name(session), above)
        agent.shape = shape
        return agent

    def _parent(
        self, session: ForeignSession, known: KnownAgent, headers: Mapping[str, str], explicit: str
    ) -> ForeignAgent | None:
        """The agent above a new one: the one it names, else the main one of a session that has one."""
        named = _first(headers, known.parent)
        if named is not None and named != explicit and named in session.agents:
            above = session.agents[named]
            if above.meter.depth < MOST_DEPTH:
                return above
        main = session.main_agent()
        return main if main is not None and main.has_tools and explicit != "main" else None

    def _side_agent(self, session: ForeignSession) -> ForeignAgent:
        found = session.agents.get("side")
        return session.add_agent("side", None) if found is None else found

    def _others(self, session: ForeignSession) -> ForeignAgent:
        found = session.agents.get(_OTHERS)
        return session.add_agent(_OTHERS, session.main_agent()) if found is None else found

    def _new_name(self, session: ForeignSession) -> str:
        names = (f"agent-{number}" for number in self._numbers)
        return next(name for name in names if name not in session.agents)


def session_named(known: KnownAgent, path: tuple[str, ...], headers: Mapping[str, str]) -> str | None:
    """What names the session of a request; None when nothing does."""
    if path:
        return "/".join(path)[:LONGEST_NAME]
    named = headers.get(_RUN) or _first(headers, known.session)
    return named[:LONGEST_NAME] if named else None


def agent_named(known: KnownAgent, headers: Mapping[str, str]) -> str | None:
    """What names the agent within its session: our header, or that of a known program; "main" for its main one."""
    named = headers.get(_AGENT)
    if named:
        return named[:LONGEST_NAME]
    if not known.agent:
        return None
    session, agent = _first(headers, known.session), _first(headers, known.agent)
    if agent is not None:
        return agent[:LONGEST_NAME]
    return None if session is None else f"main {session}"[:LONGEST_NAME]


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if headers.get(name)), None)


def _shape_of(facts: RequestFacts) -> bytes:
    """What stays the same when a program cuts its own history: the model and the tools."""
    text = "\0".join([facts.dialect, facts.model, *facts.tool_names])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
