"""The agent that `--agent MODULE:NAME` names: an Agent as its author wrote it, changed only by flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.apps.cli.agent_maker import config_fields, make_model, open_store, rephrase_error, set_up_telemetry
from glidepath.apps.cli.instructions import load_agent_files, load_skills
from glidepath.apps.cli.layers import Known, LoadedSettings
from glidepath.apps.cli.settings import makes_agent
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.apps.cli.cli_context import CliContext

_ITS_OWN = ("tools", "mcp", "mcp_config", "constraints", "plugins", "fallback_models")
"""What an agent brings along: a flag for one of them would replace what its author has put together."""


def use_agent(options: argparse.Namespace, settings: LoadedSettings, world: CliContext) -> None:
    """Load the agent that the flag names, and forget what a file or a variable says about agents."""
    if options.agent is None:
        return
    from glidepath.apps.cli.deck_server import find_agent

    for key in _ITS_OWN:
        if settings.origin_of(key).startswith("flag"):
            raise ConfigurationError(
                f"{settings.origin_of(key).removeprefix('flag ')}: {options.agent} has its own {key}; "
                "leave out this flag, or --agent"
            )
    if settings.origin_of("agent_file").startswith("flag"):
        raise ConfigurationError(
            f"--agent-file: {options.agent} is an agent already; leave out this flag, or --agent. As a part of it, "
            "for some of the work: --agents FILES"
        )
    found = find_agent(options.agent, world)
    if not hasattr(found, "config") or not hasattr(found, "stream"):
        raise ConfigurationError(f"--agent {options.agent}: expected an Agent, got {type(found).__name__}")
    for key, known in list(settings.known.items()):
        if makes_agent(key) and key != "store" and not known.origin.startswith("flag"):
            del settings.known[key]
    settings.known.setdefault("model", Known(found.config.model.name, f"agent {options.agent}"))
    settings.known.setdefault("tools", Known((), "default"))
    settings.agent, settings.agent_name = found, options.agent


def adapt_agent(
    agent: Agent,
    settings: LoadedSettings,
    world: CliContext,
    *,
    model: str | None,
    plugins: Sequence[Any],
    output: type | None,
) -> Agent:
    """The agent with what the flags change, the plugins of the screen, and a store if it has none."""
    flags = settings.copy()
    flags.known = {key: known for key, known in settings.known.items() if known.origin.startswith("flag")}
    changes = config_fields(flags)
    changes.pop("store", None)
    limits = changes.pop("limits", None)
    if limits is not None:
        given = [key.partition(".")[2] for key in flags.known if key.startswith("limits.")]
        changes["limits"] = replace(agent.config.limits, **{name: getattr(limits, name) for name in given})
    changes |= _add_from_files(agent, flags, world)
    name = model or flags.get("model")
    if name:
        changes["model"] = make_model(name, world)
    store = settings.get("store")
    if store and (agent.config.store is None or "store" in flags.known):
        changes["store"] = open_store(store, settings, world)
    if settings.get("telemetry.otel"):
        plugins = (set_up_telemetry(settings), *plugins)
    if plugins:
        changes["plugins"] = (*agent.config.plugins, *plugins)
    if output is not None:
        changes["output_type"] = output
    try:
        return agent.replace(**changes) if changes else agent
    except ConfigurationError as error:
        raise ConfigurationError(rephrase_error(str(error))) from error


def _add_from_files(agent: Agent, flags: LoadedSettings, world: CliContext) -> dict[str, Any]:
    """The skills and agents that flags name, beside those that the agent has. It has none of the usual folders."""
    changes: dict[str, Any] = {}
    if "skills.folders" in flags.known:
        changes["skills"] = (*agent.config.skills, *load_skills(flags, world))
    if "agents" in flags.known or "agent_files" in flags.known:
        flags.known.setdefault("agent_files", Known((), "default"))
        changes["agents"] = (*agent.config.agents, *load_agent_files(flags, world))
    return changes
