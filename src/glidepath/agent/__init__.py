"""Agents, their limits and configuration; `assemble` fills in the defaults and connects the parts."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode, LoopConfig
from glidepath.agent.limits import Budget, Limits

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder
    from glidepath.agent.skills import AgentFile, Skill, read_agents_md

__all__ = [
    "Agent",
    "AgentBuilder",
    "AgentFile",
    "Budget",
    "ExecutionMode",
    "Limits",
    "LoopConfig",
    "Skill",
    "read_agents_md",
]

if TYPE_CHECKING:
    from glidepath.agent.nested_runs import call_of as call_of, delegate_of as delegate_of
    from glidepath.agent.wallet_client import PATIENCE as PATIENCE, sweep as sweep

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        nested_runs=("call_of", "delegate_of"),
        builder=("AgentBuilder",),
        skills=("AgentFile", "Skill", "read_agents_md"),
    )

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.agent.agent_with_sources import share_sources as share_sources
    from glidepath.agent.child_records import find_usage as find_usage
    from glidepath.agent.config import FIELDS as FIELDS
    from glidepath.agent.handoffs import find_handoff as find_handoff
    from glidepath.agent.per_run import check_metadata as check_metadata, check_user as check_user
    from glidepath.agent.prices import (
        check_prices as check_prices,
        find_price as find_price,
        look_up_price as look_up_price,
    )
    from glidepath.agent.replay import Replayed as Replayed
    from glidepath.agent.roster import change_speakers as change_speakers
    from glidepath.agent.setters import Setters as Setters
    from glidepath.agent.skills import (
        MOST_AGENTS_MD as MOST_AGENTS_MD,
        CommandFile as CommandFile,
        SkillGuard as SkillGuard,
        decode_agents_md as decode_agents_md,
        find_skill_folders as find_skill_folders,
        find_used_skill as find_used_skill,
        introduce_agents_md as introduce_agents_md,
        make_skill_tools as make_skill_tools,
        read_agent_files as read_agent_files,
        refuse_clashes as refuse_clashes,
        refuse_link as refuse_link,
        shape_fields as shape_fields,
    )
    from glidepath.agent.wallet_client import (
        WalletClient as WalletClient,
        account_of as account_of,
        has_room as has_room,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        agent_with_sources=("share_sources",),
        child_records=("find_usage",),
        config=("FIELDS",),
        handoffs=("find_handoff",),
        per_run=("check_metadata", "check_user"),
        prices=("check_prices", "find_price", "look_up_price"),
        replay=("Replayed",),
        roster=("change_speakers",),
        setters=("Setters",),
        skills=(
            "MOST_AGENTS_MD",
            "CommandFile",
            "SkillGuard",
            "decode_agents_md",
            "find_skill_folders",
            "find_used_skill",
            "introduce_agents_md",
            "make_skill_tools",
            "read_agent_files",
            "refuse_clashes",
            "refuse_link",
            "shape_fields",
        ),
        wallet_client=("PATIENCE", "WalletClient", "account_of", "has_room", "sweep"),
    )
