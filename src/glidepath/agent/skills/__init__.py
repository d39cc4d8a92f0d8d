"""Skills, agents, slash commands and AGENTS.md from files: what they say is used, and nothing is granted for it."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.agent.skills.agent_file import AgentFile
from glidepath.agent.skills.skill import Skill

__all__ = ["AgentFile", "Skill", "read_agents_md"]

if TYPE_CHECKING:
    from glidepath.agent.skills.agent_file import read_agent_files as read_agent_files
    from glidepath.agent.skills.command_file import CommandFile as CommandFile
    from glidepath.agent.skills.file_agents import (
        make_agent_tools as make_agent_tools,
        normalize_files as normalize_files,
        shape_fields as shape_fields,
    )
    from glidepath.agent.skills.project_text import (
        AGENTS_MD as AGENTS_MD,
        MOST_AGENTS_MD as MOST_AGENTS_MD,
        decode_agents_md as decode_agents_md,
        introduce_agents_md as introduce_agents_md,
        read_agents_md as read_agents_md,
    )
    from glidepath.agent.skills.skill import (
        SKILL_FILE as SKILL_FILE,
        find_skill_folders as find_skill_folders,
        refuse_clashes as refuse_clashes,
        refuse_link as refuse_link,
    )
    from glidepath.agent.skills.skill_guard import SkillGuard as SkillGuard
    from glidepath.agent.skills.skill_results import find_used_skill as find_used_skill
    from glidepath.agent.skills.skill_tools import make_skill_tools as make_skill_tools

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        agent_file=("read_agent_files",),
        command_file=("CommandFile",),
        file_agents=("make_agent_tools", "normalize_files", "shape_fields"),
        project_text=("AGENTS_MD", "MOST_AGENTS_MD", "decode_agents_md", "introduce_agents_md", "read_agents_md"),
        skill_guard=("SkillGuard",),
        skill_results=("find_used_skill",),
        skill_tools=("make_skill_tools",),
        skill=("SKILL_FILE", "find_skill_folders", "refuse_clashes", "refuse_link"),
    )
