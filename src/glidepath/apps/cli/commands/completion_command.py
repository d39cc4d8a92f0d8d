"""Print a completion script for your shell.

bash: glidepath completion bash > ~/.local/share/bash-completion/completions/glidepath
zsh:  glidepath completion zsh > "${fpath[1]}/_glidepath"
fish: glidepath completion fish > ~/.config/fish/completions/glidepath.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.commands import COMMANDS
from glidepath.apps.cli.extras import require_extra


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"), help="which shell")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Print the script."""
    from glidepath.apps.cli.parser import make_parser

    if options.shell == "fish":
        world.write("".join(f"{line}\n" for line in _write_fish_script(make_parser(list(COMMANDS)))))
        return 0
    shtab = require_extra("shtab")
    world.write(shtab.complete(make_parser(list(COMMANDS)), options.shell) + "\n")
    return 0


def _write_fish_script(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The completion script for fish, which shtab does not support."""
    yield "complete -c glidepath -f"
    [commands] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
    lines = {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001
    for name, sub in commands.choices.items():
        yield f"complete -c glidepath -n __fish_use_subcommand -a {name} -d {_quote(lines.get(name, ''))}"
        yield from _fish_flags(sub, f"__fish_seen_subcommand_from {name}")
        for action in sub._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                words = " ".join(action.choices)
                yield f"complete -c glidepath -n '__fish_seen_subcommand_from {name}' -a {_quote(words)}"
                for word, inner in action.choices.items():
                    seen = f"__fish_seen_subcommand_from {name}; and __fish_seen_subcommand_from {word}"
                    yield from _fish_flags(inner, seen)


def _fish_flags(parser: argparse.ArgumentParser, when: str) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001
        names = "".join(
            f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}"
            for flag in sorted(action.option_strings, key=lambda flag: flag.startswith("--"))
        )
        if not names:
            continue
        takes = ""
        if action.choices:
            takes = f" -x -a {_quote(' '.join(map(str, action.choices)))}"
        elif action.nargs != 0:
            takes = " -r" + (" -F" if action.metavar in ("FILE", "DIR", "PATH") else "")
        about = f" -d {_quote((action.help or '').replace('%%', '%').splitlines()[0])}" if action.help else ""
        yield f"complete -c glidepath -n '{when}'{names}{takes}{about}"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
