"""Replays the runs of a team's members, each from its own journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.agent import Replayed
from glidepath.agent.replay import replay
from glidepath.sessions import home_of, read_journal
from glidepath.teams.mailbox import Mailboxes, TeamMailbox
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.teams.team import Team


async def replay_team(team: Team, request_id: str) -> dict[str, Replayed]:
    """Replay every run that a team's members made for a request; returns them by session id.

    No model and no tool is called. Runs of others, such as a planner or a judge that is not a member, are left out.
    Raises `ConfigurationError` for a team without a store, and `StoreError` for a journal that cannot be read.
    """
    store = team.store
    if store is None:
        raise ConfigurationError("replay_team needs a team with a store: pass Team(store=...)")
    agents = {member.agent.config.agent_name: team.kept(member.agent) for member in team.members}
    mailboxes = Mailboxes()
    found: dict[str, Replayed] = {}
    for entry in await store.entries(f"{home_of(request_id)}/"):
        agent = agents.get(entry.summary.get("agent", ""))
        if agent is None or entry.summary.get("parent"):
            continue  # a child is replayed with its parent
        recorded = (await read_journal(store, entry.session_id)).folded.config
        if recorded is not None and TeamMailbox.name in recorded.plugins:  # its coordinator could steer it
            agent = mailboxes.steerable(agent)
        found[entry.session_id] = await replay(agent, store, entry.session_id, agents=agents)
    if not found:
        raise StoreError(f"the store has no run for request {request_id!r}", kind="missing")
    return found
