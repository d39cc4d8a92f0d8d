"""The flags that `run` and `chat` share, made from the table of settings."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from glidepath.apps.cli.settings import SETTINGS
from glidepath.values import format_seconds, parse_int


def parse_whole_number(text: str) -> int:
    """A whole number as people write it, such as 10k; raises what argparse expects."""
    number = parse_int(text)
    if not isinstance(number, int):
        raise argparse.ArgumentTypeError(f"expected a whole number such as 5000 or 200k, got {text!r:.40}")
    return number


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name an agent and answer its questions in advance."""
    parser.add_argument(
        "-a", "--agent", metavar="MODULE:NAME", help="use this Agent; what you pass as flags changes it, files do not"
    )
    parser.add_argument(
        "--yes", dest="approve", action="store_const", const="all", help="do not ask: the same as --approve all"
    )


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where settings come from."""
    group = parser.add_argument_group("configuration")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--config", metavar="FILE", help="read this file, not ./glidepath.toml or ./glidepath.json")
    which.add_argument("--no-config", action="store_true", help="read no configuration file")
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", help="any setting by its key in a file; may be repeated"
    )


def add_setting_flags(parser: argparse.ArgumentParser, *, leave_out: Collection[str] = ()) -> None:
    """Add a flag for every setting that has one. Values are parsed later, with all other settings."""
    group = parser.add_argument_group("settings")
    for setting in SETTINGS:
        if not setting.flag or setting.key in leave_out:
            continue
        dest = setting.key.replace(".", "_")
        text = setting.help + (f" (default: {_format_default(setting.default)})" if setting.default is not None else "")
        if setting.kind == "bool":
            group.add_argument(setting.flag, dest=dest, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif setting.choices:
            group.add_argument(setting.flag, dest=dest, choices=setting.choices, help=text)
        else:
            names = ("-m", setting.flag) if setting.key == "model" else (setting.flag,)
            group.add_argument(*names, dest=dest, metavar=setting.metavar, help=text.replace("%", "%%"))


def _format_default(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, bool):
        return "yes" if default else "no"
    return format_seconds(default) if isinstance(default, float) else str(default)
