"""What a configuration gets for its skills and agents from files: tools, and a plugin that guards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent.config_checks import BODIES_FROM_FILES, MADE_FROM_FILES
from glidepath.agent.limits import Limits
from glidepath.agent.skills.agent_file import AgentFile, collect_agents
from glidepath.agent.skills.skill import collect_skills
from glidepath.agent.skills.skill_guard import SkillGuard
from glidepath.agent.skills.skill_tools import make_skill_tools
from glidepath.tools import Tool
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig


def normalize_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `skills`, `agents`, `tools` and `plugins` of a configuration, with what skills bring along.

    Every configuration gets its own, so that one that was changed has what belongs to it, and once.
    """
    skills = collect_skills(given["skills"])
    kept = tuple(one for one in given["tools"] if one not in MADE_FROM_FILES)
    tools = make_skill_tools(skills)
    made = _note_made(tools, kept)
    guard = SkillGuard(skills, made=[one.name for one in tools])
    plugins = tuple(one for one in given["plugins"] if not isinstance(one, SkillGuard))
    return {
        "skills": skills,
        "agents": collect_agents(given["agents"]),
        "tools": (*kept, *made),
        "plugins": (guard, *plugins) if any(one.for_model for one in skills) else plugins,
    }


def _note_made(made: Sequence[Tool], kept: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools that were made, without those of which a copy is there; each is remembered as ours."""
    copies = {one.name for one in kept if one.fn in BODIES_FROM_FILES}
    ours = tuple(one for one in made if one.name not in copies)
    MADE_FROM_FILES.update(ours)
    BODIES_FROM_FILES.update(one.fn for one in ours)
    return ours


def make_agent_tools(config: LoopConfig) -> tuple[Tool, ...]:
    """One tool for each agent file of a configuration: it hands its task to a child with what the file leaves it."""
    from glidepath.agent.agent import Agent

    made = []
    for file in config.agents:
        child = Agent(_make_child_config(config, file))
        made.append(child.as_tool(file.name, file.line))
    return _note_made(made, config.tools)


def _make_child_config(config: LoopConfig, file: AgentFile) -> LoopConfig:
    """The configuration of a child: its parent's, narrowed to what the file says."""
    known = {skill.name: skill for skill in config.skills}
    builder = config.child_builder()
    builder.system_prompt(file.prompt).agent_name(file.name).output_type(None).tool_choice("auto")
    builder.tools([one for one in config.tools if one not in MADE_FROM_FILES and file.uses(one.name)])
    builder.tool_sources(config.tool_sources if file.tools is None else ())
    builder.skills([known[name] for name in file.skills if name in known])
    builder.max_iterations(file.max_turns).max_tokens(file.max_tokens)
    builder.replace_defaults(False)  # what holds the limits of the file; the parent's constraints bind a child anyway
    builder.plain_text_terminal_fallback_tool(None)  # which may not be among its tools
    builder.plain_text_terminal_fallback_eager(False).plain_text_terminal_fallback_eager_nudge(False)
    if file.max_turns is None:
        builder.graceful_turn_limit_grace_provider(None)
    if file.model is not None:
        builder.model(file.model)
    return builder.build()


def _narrow_limits(limits: Limits, file: AgentFile) -> Limits:
    changes: dict[str, Any] = {}
    for name, value in (("max_iterations", file.max_turns), ("max_tokens", file.max_tokens)):
        known = getattr(limits, name)
        if value is not None:
            changes[name] = value if known is None else min(value, known)
    return replace(limits, **changes) if changes else limits


def shape_fields(file: AgentFile, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of an agent that a file describes, from settings that give it more than it may use."""
    fields = dict(settings)
    fields.setdefault("agent_name", file.name)
    more = fields.get("system_prompt", "")
    if not isinstance(more, str):
        raise ConfigurationError(f"system_prompt: {file.name} has the prompt of its file; add a text, not {more!r:.80}")
    fields["system_prompt"] = "\n\n".join(filter(None, [file.prompt, more]))
    if file.model is not None and "model" not in fields:
        fields["model"] = file.model
    fields["limits"] = _narrow_limits(fields.get("limits", Limits()), file)
    fields["tools"] = _narrow_tools(file, fields.get("tools", ()))
    fields["skills"] = tuple(one for one in collect_skills(fields.get("skills", ())) if one.name in file.skills)
    fields["agents"] = ()  # as for a child: an agent from a file starts no others
    return fields


def _narrow_tools(file: AgentFile, tools: Any) -> Any:
    """The tools that the file lists; whatever has no name yet, such as a server, only where it lists none."""
    return tuple(one for one in tools if (file.uses(_name_of(one)) if _name_of(one) else file.tools is None))


def _name_of(item: object) -> str:
    from glidepath.tools import ToolSource

    if isinstance(item, str):
        return item
    if isinstance(item, ToolSource):
        return ""
    name = getattr(item, "name", None) or getattr(item, "__name__", "")
    return name if isinstance(name, str) else ""
