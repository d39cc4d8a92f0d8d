"""What one run is given beside its agent's settings: checked before the first call, kept over a resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.agent.config import TOOL_CHOICES, check_sendable
from glidepath.errors import ConfigurationError, shown
from glidepath.outcome import PerRun
from glidepath.tools import Tool

__all__ = ["check_metadata", "check_user", "checked_per_run", "inherited", "replaced"]

# What OpenAI takes, which is the strictest of those that have such fields.
MOST_PAIRS = 16
LONGEST_KEY = 64
LONGEST_VALUE = 512
LONGEST_USER = 64


def checked_per_run(
    tools: tuple[Tool, ...],
    extras: Any = None,
    tool_choice: Any = None,
    metadata: Any = None,
    user: Any = None,
    *,
    more_tools: bool = False,
) -> PerRun | None:
    """What was passed to `run()`, or None when nothing was; raises `ConfigurationError` naming the argument.

    `more_tools`: there are sources, whose tools are known only when the run starts.
    """
    if extras is None and tool_choice is None and metadata is None and user is None:
        return None
    return PerRun(
        extras=None if extras is None else _extras(extras),
        tool_choice=None if tool_choice is None else _tool_choice(tool_choice, tools, more_tools=more_tools),
        metadata=None if metadata is None else check_metadata(metadata),
        user=None if user is None else check_user(user),
    )


def replaced(before: PerRun | None, now: PerRun | None) -> PerRun | None:
    """What a resumed run has: each value that was passed to `resume()`, and the others as they were."""
    if before is None or now is None:
        return now or before
    given = {name: value for name in PerRun.__struct_fields__ if (value := getattr(now, name)) is not None}
    return replace(before, **given)


def inherited(parent: PerRun | None, own: PerRun | None) -> PerRun | None:
    """What a child has: its parent's user and metadata, with its own on top. The rest is about the parent's model."""
    if parent is None or (parent.user is None and parent.metadata is None):
        return own
    own = own or PerRun()
    metadata = parent.metadata if own.metadata is None else {**(parent.metadata or {}), **own.metadata}
    return replace(own, user=own.user or parent.user, metadata=metadata)


def _extras(extras: Any) -> dict[str, Any]:
    if not isinstance(extras, Mapping) or not all(isinstance(key, str) for key in extras):
        raise ConfigurationError(f"extras must be a mapping with str keys, not {shown(extras, 100)}")
    try:
        return _wire.loads(_wire.encode(dict(extras)))  # type: ignore[no-any-return]
    except Exception as error:
        raise ConfigurationError(
            f"extras cannot be written as JSON ({error}); pass str, numbers, booleans, None, lists and dicts"
        ) from None


def _tool_choice(choice: Any, tools: tuple[Tool, ...], *, more_tools: bool) -> str:
    names = [tool.name for tool in tools]
    if not isinstance(choice, str) or (choice not in TOOL_CHOICES and choice not in names and not more_tools):
        raise ConfigurationError(
            f"tool_choice must be auto, required, none or the name of a tool; got {shown(choice, 100)}"
        )
    return choice


def check_metadata(metadata: Any) -> dict[str, str]:
    """The metadata of a run as vendors take it, or a `ConfigurationError`."""
    if not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata must be a mapping of str to str, not {shown(metadata, 100)}")
    if len(metadata) > MOST_PAIRS:
        raise ConfigurationError(f"metadata has {len(metadata)} entries; {MOST_PAIRS} are the most a vendor takes")
    for key, value in metadata.items():
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
            raise ConfigurationError(
                f"metadata: a key must be a str of 1 to {LONGEST_KEY} characters, not {shown(key, 100)}"
            )
        if not isinstance(value, str) or len(value) > LONGEST_VALUE:
            raise ConfigurationError(
                f"metadata[{key!r}] must be a str of at most {LONGEST_VALUE} characters, not {shown(value, 100)}"
            )
        check_sendable("metadata", key)
        check_sendable(f"metadata[{key!r}]", value)
    return dict(metadata)


def check_user(user: Any) -> str:
    """The user of a run as vendors take it, or a `ConfigurationError`."""
    if not isinstance(user, str) or not 0 < len(user) <= LONGEST_USER:
        raise ConfigurationError(f"user must be a str of 1 to {LONGEST_USER} characters, not {shown(user, 100)}")
    check_sendable("user", user)
    return user
