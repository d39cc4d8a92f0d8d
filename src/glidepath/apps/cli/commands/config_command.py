"""Show, check and describe the configuration."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from glidepath.apps.cli.arguments import add_config_flags, add_setting_flags
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import escape_invisible
from glidepath.apps.cli.layers import LoadedSettings, gather
from glidepath.apps.cli.settings import SETTINGS
from glidepath.values import format_seconds, pluralize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print the current settings")
    show.add_argument("--origin", action="store_true", help="also show where each setting comes from")
    show.add_argument("--all", action="store_true", help="also show defaults")
    show.add_argument("--json", action="store_true", help="print JSON")
    check = actions.add_parser("check", help="check the settings as a run would, without running anything")
    for sub in (show, check):
        add_setting_flags(sub)
        add_config_flags(sub)
    actions.add_parser("schema", help="print the JSON Schema of a configuration file")
    actions.add_parser("table", help="print every setting: file key, older key, flag, variable, Python name")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    actions = {"show": _show, "check": _check, "schema": _schema, "table": _table}
    return actions[options.action](options, world)


def _show(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.settings_schema import defaults

    settings = gather(options, world, ask=False)
    fallback = defaults()
    rows = []
    for setting in SETTINGS:
        known = settings.known.get(setting.key)
        if known is None and not options.all:
            continue
        value = fallback.get(setting.key) if known is None else known.value
        rows.append((setting.key, value, settings.origin_of(setting.key)))
    if options.json:
        shown = {key: {"value": to_safe_json(value), "origin": origin} for key, value, origin in rows}
        for key, vain in settings.ignored.items():
            row = shown.setdefault(key, {"value": to_safe_json(fallback.get(key)), "origin": "default"})
            row["ignored"] = {"value": to_safe_json(vain.value), "origin": vain.origin}
        bare = {key: to_safe_json(value) for key, value, _ in rows}
        world.write(json.dumps(shown if options.origin else bare, indent=2) + "\n")
        return 0
    if options.origin:
        why = "ignored: the folder is not trusted"
        rows += [(key, vain.value, f"{vain.origin}, {why}") for key, vain in settings.ignored.items()]
    wide = max(len(key) for key, _, _ in rows)
    times = {setting.key for setting in SETTINGS if setting.kind.startswith("seconds")}
    texts = [format_seconds(value) if key in times and value else _text(value) for key, value, _ in rows]
    middle = max(map(len, texts))
    for (key, _, origin), text in zip(rows, texts, strict=True):
        tail = f"  {origin}" if options.origin else ""
        world.write(f"{key:<{wide}}  {text:<{min(middle, 40) if tail else 0}}{tail}".rstrip() + "\n")
    return 0


def _check(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.agent_maker import make_agent

    settings = gather(options, world)
    agent = make_agent(settings, world)
    world.write(f"fine: {agent!r}, {_limits(settings)}\n")
    return 0


def _limits(settings: LoadedSettings) -> str:
    words: dict[str, Callable[[Any], str]] = {
        "max_iterations": lambda most: pluralize(most, "turn"),
        "max_tokens": lambda most: pluralize(most, "token"),
        "max_cost": "${}".format,
        "timeout": format_seconds,
    }
    given = {name: settings.get(f"limits.{name}") for name in words}
    said = [words[name](most) for name, most in given.items() if most is not None]
    return "at most " + ", ".join(said) if said else "no limits"


def _schema(_: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.settings_schema import json_schema

    world.write(json.dumps(json_schema(), indent=2) + "\n")
    return 0


def _table(_: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.settings_schema import markdown_table

    world.write(markdown_table() + "\n")
    return 0


_SECRET_NAMES = re.compile(r"key|token|secret|passw|auth|credential|cookie|signature|bearer|private", re.IGNORECASE)
_SECRETS = re.compile(r"(sk|pk|rk|ghp|gho|ghs|xox[abp]|AKIA|AIza|eyJ)[-_A-Za-z0-9.]{8,}|(Bearer|Basic|Token) \S+")
_PASSWORD = re.compile(r"(://[^/@:\s]*):[^@\s]*@")
HIDDEN = "***"


def to_safe_json(value: object) -> Any:
    """The value as plain JSON data with possible secrets hidden: passwords in URLs, and texts named like secrets."""
    from glidepath import _wire

    return _mask_secrets(_wire.to_plain_data(value, enc_hook=str))


def _mask_secrets(value: object, *, secret: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            name: _mask_secrets(item, secret=secret or bool(_SECRET_NAMES.search(name))) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mask_secrets(item, secret=secret) for item in value]
    if not isinstance(value, str):
        return value  # a number, such as max_completion_tokens
    return HIDDEN if (secret and value) or _SECRETS.search(value) else _PASSWORD.sub(rf"\1:{HIDDEN}@", value)


def _text(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return escape_invisible(", ".join(to_safe_json(value))) or "none"
    return escape_invisible(str(to_safe_json(value))) or "''"
