"""Write a configuration file: for this folder, or with --user for every folder of yours.

It names a model whose key is set, and limits that hold for every run. Nothing that is there is overwritten.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext

_TEXT = """\
# {whose}
# Every key: `glidepath config table`. What applies now: `glidepath config show --origin`.
{model}

[limits]
max_iterations = 30     # model turns of a run
max_tokens = "200k"     # input and output together
timeout = "10m"
{cost}
"""
_NO_MODEL = '# model = "anthropic:claude-sonnet-4-5"    # no key of a provider is set: `glidepath models` lists them'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", action="store_true", help="write your own file, which holds in every folder")
    parser.add_argument("-m", "--model", metavar="NAME", help="the model (default: one whose key is set)")
    parser.add_argument("--max-budget-usd", metavar="USD", help="the most a run may cost, in dollars")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Write it, check it, and say what comes next."""
    from glidepath.apps.cli.folder import CONFIGURATION
    from glidepath.apps.cli.layers import load, user_file

    path: Path | None = world.folder / CONFIGURATION[0]
    there = [world.folder / name for name in CONFIGURATION]
    if options.user:
        path = user_file(world.environ)
        if path is None:
            raise ConfigurationError("--user: set HOME or XDG_CONFIG_HOME: there is no place for your own file")
        there = [path]
    for one in there:
        if one.exists():
            raise ConfigurationError(f"{one} is there already: edit it; `glidepath config check` checks it")
    text = _write_text(options, world)
    assert path is not None  # noqa: S101 - it has a folder
    load(path, text.encode())  # what is written can be read
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
    world.write(f"wrote {path}\n")
    if "\nmodel =" not in text:
        world.note("It names no model yet, because no key of a provider is set: `glidepath models` lists them.")
        world.note("Without a key: glidepath models pull, then glidepath run --model local:smollm2 'say hello'")
        return 0
    if not options.user:
        world.note("It names a model, so trust this folder once: glidepath trust")
    world.note("Try it: glidepath run 'what is in this folder?'")
    return 0


def _write_text(options: argparse.Namespace, world: CliContext) -> str:
    import json

    model = options.model or _find_model(world)
    cost = options.max_budget_usd
    return _TEXT.format(
        whose="Your settings in every folder; a file of a folder comes first."
        if options.user
        else "The settings of this folder.",
        model=_NO_MODEL if model is None else f"model = {json.dumps(model)}",
        cost='# max_cost = "0.50"     # dollars' if cost is None else f"max_cost = {json.dumps(cost)}",
    )


def _find_model(world: CliContext) -> str | None:
    """The model that the environment names, else an example of the first provider whose key is set."""
    from glidepath.apps.cli.keyring_keys import read_key
    from glidepath.models.hosts import HOSTS

    named = world.environ.get("GLIDEPATH_MODEL")
    keyed = (host for host in HOSTS.values() if host.key and (world.environ.get(host.key) or read_key(host.key)))
    return named or next((host.example for host in keyed), None)
