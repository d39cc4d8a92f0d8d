"""List model providers, keep a key in the keyring, fetch the embedded model.

A key in the environment comes first. Keys are kept by the package keyring where it is installed, never in a file.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.keyring_keys import read_key
from glidepath.values import ConfigurationError, install_line

_MODULES = {
    "anthropic": "anthropic",
    "bedrock": "anthropic",
    "google": "google.genai",
    "local": "xllamacpp",
    "openai": "openai",
    "vertex": "google.genai",
}
_PYTHON = ("python:MODULE:ATTRIBUTE", "any Model object, or a function that makes one")
_ROOM = 44
"""Columns that the text about a provider needs beside its name; with fewer it goes below the name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listed = actions.add_parser("list", help="the providers, what each needs, and whether it is there (the default)")
    for page in (parser, listed):
        page.add_argument("--json", action="store_true", help="print one JSON object per provider")
    keep = actions.add_parser("key", help="keep a provider's key in the keyring: asked for, or from standard input")
    keep.add_argument("provider")
    keep.add_argument("--remove", action="store_true", help="forget it")
    pull = actions.add_parser("pull", help="fetch an embedded model into the user cache")
    pull.add_argument("name", nargs="?", default="smollm2", help="which one (default: smollm2)")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """List, or fetch."""
    if options.action == "key":
        return _keep_key(options.provider, world, remove=options.remove)
    return _pull(options.name, world) if options.action == "pull" else _list(world, as_json=options.json)


def _keep_key(provider: str, world: CliContext, *, remove: bool) -> int:
    from getpass import getpass

    from glidepath.apps.cli.keyring_keys import keep_key, variable_of

    name = variable_of(provider)
    if remove:
        keep_key(provider, None)
        world.note(f"The key of {provider} is forgotten.")
        return 0
    typed = world.is_terminal(world.stdin)
    key = (getpass(f"{name}: ") if typed else world.stdin.readline()).strip()
    if not key:
        raise ConfigurationError(
            f'no key was given: type it, or pipe it: echo "${name}" | glidepath models key {provider}'
        )
    keep_key(provider, key)
    world.note(f"The key of {provider} is in the keyring. {name} in the environment comes first.")
    return 0


def _list(world: CliContext, *, as_json: bool) -> int:
    from itertools import zip_longest
    from textwrap import wrap

    from glidepath.apps.cli.cli_context import screen_size
    from glidepath.models.hosts import HOSTS

    if as_json:
        for host in HOSTS.values():
            state = _state(host.extra, host.key, world)
            row = {"provider": host.name, "example": host.example, "key": host.key or None, "state": state}
            world.write_json(row | {"ready": state == "ready"})
        return 0
    rows = [
        (f"{host.name}:{host.form}", f"{host.reaches}, such as {host.example}", _state(host.extra, host.key, world))
        for host in HOSTS.values()
    ]
    wide = 2 + max(len(form) for form, *_ in rows)
    columns = screen_size(world.stdout)[0] if world.is_terminal(world.stdout) else 1 << 20
    narrow = columns - wide < _ROOM
    wide = 4 if narrow else wide
    for form, reaches, there in [*rows, (*_PYTHON, "ready")]:
        if narrow:
            world.write(f"{form}\n")
        for start, text in (("" if narrow else form, reaches), ("", there)):
            lines = wrap(text, max(columns - wide, 20), break_on_hyphens=False)
            for line, before in zip_longest(lines, (start,), fillvalue=""):
                world.write(f"{before:<{wide}}{line}\n")
    return 0


def _state(extra: str, key: str, world: CliContext) -> str:
    if extra:
        try:
            found = find_spec(_MODULES[extra]) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            return f"not installed: {install_line(extra)}"
    if key and not world.environ.get(key) and not read_key(key):
        return f"ready once {key} is set"
    if extra == "local":
        from glidepath.models.local import find_weights_file

        try:
            find_weights_file("smollm2")
        except ConfigurationError:
            return "ready for a file; `glidepath models pull` fetches smollm2"
    return "ready"


def _pull(name: str, world: CliContext) -> int:
    from glidepath.apps.cli.commands.demo_command import progress_line
    from glidepath.models import pull

    path = pull(name, progress=progress_line(world))
    world.write(f"{path}\n")
    return 0
