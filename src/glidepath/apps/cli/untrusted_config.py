"""What a configuration file from an untrusted folder may do: only narrow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from glidepath.apps.cli.display_text import quote_value
from glidepath.apps.cli.settings import BY_KEY
from glidepath.values import HIGHER, INSIDE, LOWER, LOWER_NOT_ZERO, Setting

_WISHES = {
    "model": "your prompts, and everything the tools read, go to this model",
    "fallback_models": "they go to these models when the first one fails",
    "system_prompt": "the model gets these instructions first",
    "tools": "the model may call these tools",
    "mcp": "these programs are started, or these addresses contacted, and their tools given to the model",
    "skills.folders": "the model may read these skills, and run their scripts in a sandbox once you approve",
    "agents": "the model may hand tasks to these agents, which are told this",
    "workspace": "the tools work here: outside this folder, or in a part of it that tools must not write",
    "shell_home": "shell commands get this folder as HOME",
    "secret_files": "only these files are asked about before they are read, and no others",
    "approvals.allow": "these calls run without asking you",
    "approvals.reviewer": "this model, and not you, is asked about calls that need approval",
    "allow_protected": "the tools may write these protected files",
    "texts": "the model is told this instead of the runtime's own words",
    "sandbox": "shell commands run without a sandbox",
    "prices": "your money is counted with these prices",
    "unpriced": "your money is counted with another model's price",
    "unbounded": "a run without any limit is allowed",
    "extras": "these fields are sent to the model's provider, unchecked",
    "constraints": "these constraints are loaded",
    "replace_defaults": "the built-in constraints, which hold the limits, are dropped",
    "plugins": "these plugins are loaded",
    "store": "the record of your runs is kept here",
    "debug": "what errors say, which may hold your words, is written to the log",
    "telemetry.otel": "figures about your runs go to the collector that the environment names",
    "telemetry.content": "everything you and the model say also goes there",
}
_NOTHING: Mapping[str, Any] = {}
_NAMING = ("model", "fallback_models", "tools")
_EFFECTS = {"python:": "runs Python code", "openai-compatible:": "gets your GLIDEPATH_API_KEY"}


def find_exceeding_keys(values: Mapping[str, Any], folder: Path, own: Mapping[str, Any] = _NOTHING) -> list[str]:
    """The keys whose values do more than narrow, in the order of the file. `folder` is where the file lies.

    `own` are the settings of the person's own file: what lies in a folder may not widen them either.
    """
    fallback: dict[str, Any] | None = None
    found = []
    for key, value in values.items():
        setting = BY_KEY[key]
        if fallback is None and setting.found in (LOWER, LOWER_NOT_ZERO, HIGHER):
            fallback = {**_collect_defaults(), **own}
        if not _is_narrower(setting, value, (fallback or {}).get(key), folder):
            found.append(key)
    return found


def effect_of(key: str, value: object, folder: Path, own: Mapping[str, Any] = _NOTHING) -> tuple[str, str]:
    """In plain words what a value would do, and the value itself: on one line, all of it."""
    setting, shown = BY_KEY[key], quote_value(value)
    text = _WISHES.get(key, setting.help)
    if setting.found in (LOWER, LOWER_NOT_ZERO, HIGHER):
        text += f"; without the file: {quote_value({**_collect_defaults(), **own}.get(key))}"
    if setting.found == INSIDE:
        place = _resolve_path(value, folder)
        shown += "" if place is None or str(place) == value else f" = {quote_value(str(place))}"
    names = [name for name in (value if isinstance(value, tuple) else (value,)) if isinstance(name, str)]
    for start, effect in _EFFECTS.items():
        if key in _NAMING and any(name.startswith(start) for name in names):
            shown += f" ({effect})"
    return text, shown


def _is_narrower(setting: Setting, value: object, default: object, folder: Path) -> bool:
    if setting.found == INSIDE:
        place = _resolve_path(value, folder)
        return place is not None and place.is_relative_to(folder.resolve()) and not _is_protected(place, folder)
    return setting.is_narrower(value, default)


def _collect_defaults() -> dict[str, Any]:
    """What applies without the file: the command line's default, else Python's."""
    from glidepath.apps.cli.settings_schema import defaults

    own = {key: setting.default for key, setting in BY_KEY.items() if setting.default is not None}
    known = {**defaults(), **own}
    return {key: value.value if isinstance(value, Enum) else value for key, value in known.items()}


def _is_protected(place: Path, folder: Path) -> bool:
    """True for a folder such as `.git/hooks`: as a workspace, what is in it would not be recognized any more."""
    from glidepath.workspace.protected import Protection

    steps = place.relative_to(folder.resolve()).parts
    return Protection().explain_refusal(steps, entering=True) is not None


def _resolve_path(text: object, folder: Path) -> Path | None:
    try:
        return (folder / Path(str(text)).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return None
