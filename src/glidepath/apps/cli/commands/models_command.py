"""List model providers, fetch the embedded model."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from glidepath.apps.cli.cli_context import CliContext
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="the providers, what each needs, and whether it is there (the default)")
    pull = actions.add_parser("pull", help="fetch an embedded model into the user cache")
    pull.add_argument("name", nargs="?", default="smollm2", help="which one (default: smollm2)")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """List, or fetch."""
    return _pull(options.name, world) if options.action == "pull" else _list(world)


def _list(world: CliContext) -> int:
    from itertools import zip_longest
    from textwrap import wrap

    from glidepath.apps.cli.cli_context import screen_size
    from glidepath.models.hosts import HOSTS

    rows = [
        (f"{host.name}:{host.form}", f"{host.reaches}, such as {host.example}", _state(host.extra, host.key, world))
        for host in HOSTS.values()
    ]
    wide = 2 + max(len(form) for form, *_ in rows)
    columns = screen_size(world.stdout)[0] if world.is_terminal(world.stdout) else 1 << 20
    for form, reaches, there in [*rows, (*_PYTHON, "ready")]:
        for start, text in ((form, reaches), ("", there)):
            lines = wrap(text, max(columns - wide, 30), break_on_hyphens=False)
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
    if key and not world.environ.get(key):
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
