"""Settings that mean nothing: without another one, or for a misspelt tool. Said once, when the agent is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from glidepath.agent.config import LoopConfig
from glidepath.plugins.gates import ApprovalGate, OpeningGate, ToolListGate

__all__ = ["PARTNERS", "lonely", "misspelt", "warn_about_lonely"]

Test: TypeAlias = Callable[[Any], bool]

PARTNERS: tuple[tuple[str, str, Test, Test], ...] = (
    (
        "grace_iterations",
        "max_iterations",
        lambda c: bool(c.limits.grace_iterations),
        lambda c: c.limits.max_iterations is not None and not c.replace_defaults,
    ),
    (
        "graceful_turn_limit_grace_provider",
        "max_iterations",
        lambda c: c.graceful_turn_limit_grace_provider is not None,
        lambda c: c.limits.max_iterations is not None and not c.replace_defaults,
    ),
    (
        "max_output_tokens_recovery",
        "max_output_tokens",
        lambda c: c.max_output_tokens_recovery is not None,
        lambda c: c.max_output_tokens is not None,
    ),
    (
        "plain_text_terminal_fallback_eager",
        "plain_text_terminal_fallback_tool",
        lambda c: c.plain_text_terminal_fallback_eager,
        lambda c: c.plain_text_terminal_fallback_tool is not None,
    ),
    (
        "plain_text_terminal_fallback_eager_nudge",
        "plain_text_terminal_fallback_eager",
        lambda c: c.plain_text_terminal_fallback_eager_nudge,
        lambda c: c.plain_text_terminal_fallback_eager,
    ),
    ("durability", "store", lambda c: c.durability != "sync", lambda c: c.store is not None),
)
"""A setting, the setting it needs, whether the first is used, whether the second is there."""


def lonely(config: LoopConfig) -> Iterator[tuple[str, str]]:
    """The settings that have no effect, each with the one it would need."""
    for knob, partner, used, there in PARTNERS:
        if used(config) and not there(config):
            yield knob, partner


def misspelt(config: LoopConfig) -> Iterator[tuple[str, str, str]]:
    """Gates that name a tool which is not there, but nearly: the gate, its name for it, and the tool.

    A name that is like no tool may be meant for other agents that share the gate.
    """
    tools = [tool.name for tool in config.tools]
    for plugin in config.plugins:
        if isinstance(plugin, ApprovalGate | OpeningGate | ToolListGate):
            for name in plugin.named:
                if name not in tools and (close := _close(name, tools)):
                    yield plugin.name, name, close


def _close(name: str, tools: list[str]) -> str | None:
    from difflib import get_close_matches  # rarely needed, and slow to import

    if any(mark in name for mark in "*?["):
        return None
    return next(iter(get_close_matches(name, tools, n=1, cutoff=0.8)), None)


def warn_about_lonely(config: LoopConfig) -> None:
    """One warning for each setting that has no effect."""
    for gate, name, close in misspelt(config):
        warnings.warn(f"{gate} names {name!r}, which is no tool; did you mean {close!r}?", stacklevel=3)
    for knob, partner in lonely(config):
        warnings.warn(f"{knob} has no effect without {partner}", stacklevel=3)
