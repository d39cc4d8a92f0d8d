"""Settings that mean nothing without another one: ignored, and said once, when the agent is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from glidepath.agent.config import LoopConfig

__all__ = ["PARTNERS", "lonely", "warn_about_lonely"]

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


def warn_about_lonely(config: LoopConfig) -> None:
    """One warning for each setting that has no effect."""
    for knob, partner in lonely(config):
        warnings.warn(f"{knob} has no effect without {partner}", stacklevel=3)
