"""Print a completion script for your shell.

bash: glidepath completion bash > ~/.local/share/bash-completion/completions/glidepath
zsh:  glidepath completion zsh > "${fpath[1]}/_glidepath"
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.cli.world import World

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath completion` takes."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")


def execute(options: argparse.Namespace, world: World) -> int:
    """Print the script."""
    from glidepath.cli.commands import COMMANDS
    from glidepath.cli.extras import needed
    from glidepath.cli.parser import make_parser

    shtab = needed("shtab")
    world.write(shtab.complete(make_parser(list(COMMANDS)), options.shell) + "\n")
    return 0
