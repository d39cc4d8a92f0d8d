"""A summary of a team when an execution began, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from glidepath._version import VERSION
from glidepath._wire import Value, replace
from glidepath.run import Fingerprint, find_differences
from glidepath.sessions import SCHEMA
from glidepath.values import ConfigurationChange

if TYPE_CHECKING:
    from glidepath.teams.events import TeamStarted
    from glidepath.teams.team import Team

_OWN = {"agent", "model", "fallback_models", "system_prompt", "output_type"}


class TeamFingerprint(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A team, as its journal keeps it: each member's agent, and what each member can do."""

    members: Mapping[str, Fingerprint] = {}
    capabilities: Mapping[str, tuple[str, ...]] = {}


def team_fingerprint(team: Team) -> TeamFingerprint:
    """What this team is like: its members as they run in it."""
    return TeamFingerprint(
        members={member.name: team.kept(member.agent).fingerprint for member in team.members},
        capabilities={one.name: tuple(sorted(one.capabilities)) for one in team.members if one.capabilities},
    )


def team_differences(before: TeamFingerprint, now: TeamFingerprint) -> Iterator[ConfigurationChange]:
    """What is different, member by member. A change is named `MEMBER`, or `MEMBER/NAME` if it is about a part."""
    for member in dict.fromkeys((*before.members, *now.members)):
        then, today = before.members.get(member), now.members.get(member)
        if then is None or today is None:
            old, new = (None if one is None else one.digest for one in (then, today))
            yield ConfigurationChange(what="member", name=member, before=old, now=new)
            continue
        for change in find_differences(then, today):
            yield replace(change, name=member if change.what in _OWN else f"{member}/{change.name}")
        had, has = before.capabilities.get(member, ()), now.capabilities.get(member, ())
        for name in sorted({*had, *has}):
            if (name in had) != (name in has):
                old, new = ("offered" if name in names else None for names in (had, has))
                yield ConfigurationChange(what="capability", name=f"{member}/{name}", before=old, now=new)


def add_fingerprint(team: Team, before: TeamStarted | None, event: TeamStarted) -> TeamStarted:
    """The first event of a leg, with what the journal needs in order to tell the next leg what has changed."""
    config = team_fingerprint(team)
    changes = tuple(_changes(before, event.coordinator, config))
    return replace(event, schema=SCHEMA, version=VERSION, config=config, changes=changes)


def _changes(before: TeamStarted | None, coordinator: str, config: TeamFingerprint) -> Iterator[ConfigurationChange]:
    """What changed since the last leg; nothing if that was not recorded."""
    if before is None or before.config is None:
        return
    if before.version != VERSION:
        yield ConfigurationChange(what="version", before=before.version, now=VERSION)
    if before.coordinator != coordinator:
        yield ConfigurationChange(what="coordinator", before=before.coordinator or None, now=coordinator or None)
    yield from team_differences(before.config, config)
