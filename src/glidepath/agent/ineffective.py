"""Settings that have no effect: another one is missing, or a tool is misspelled. Logged when an agent is made."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from glidepath.agent.config import LoopConfig
from glidepath.agent.limits import Limits
from glidepath.errors import close_to
from glidepath.guards import GuardrailsConfig
from glidepath.setting import declared


def ineffective(config: LoopConfig) -> Iterator[tuple[str, str]]:
    """The settings that have no effect, each with the one it needs: the declarations say which."""
    for owner, kept in ((LoopConfig, config), (Limits, config.limits), (GuardrailsConfig, config.guardrails)):
        for name, setting in declared(owner).items():
            value = getattr(kept, name)
            used = value != setting.choices[0] if setting.choices else bool(value)  # the first word is the default
            if setting.needs and used and not _is_there(config, setting.needs):
                yield name, setting.needs


def _is_there(config: LoopConfig, name: str) -> bool:
    if name in Limits.__struct_fields__:  # which bind nobody without the built-in constraints
        return getattr(config.limits, name) is not None and not config.replace_defaults
    return getattr(config, name) not in (None, False)


def misspelt(config: LoopConfig) -> Iterator[tuple[str, str, str]]:
    """Gates that name a misspelled tool: the gate, the name it uses, and the likely tool.

    A name that is like no tool may be meant for other agents that share the gate.
    """
    if not config.plugins:
        return
    from glidepath.plugins.builtin_gates import ApprovalGate, OpeningGate, ToolListGate

    tools = [tool.name for tool in config.tools]
    for plugin in config.plugins:
        if isinstance(plugin, ApprovalGate | OpeningGate | ToolListGate):
            for name in plugin.named:
                pattern = any(mark in name for mark in "*?[")
                if name not in tools and not pattern and (close := close_to(name, tools, 0.8)):
                    yield plugin.name, name, close


def warn_about_ineffective(config: LoopConfig) -> None:
    """One warning for each setting that has no effect."""
    for gate, name, close in misspelt(config):
        warnings.warn(f"{gate} names {name!r}, which is not a tool; did you mean {close!r}?", stacklevel=3)
    for setting, needed in ineffective(config):
        warnings.warn(f"{setting} has no effect without {needed}", stacklevel=3)
