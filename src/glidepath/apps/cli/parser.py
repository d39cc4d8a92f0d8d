"""Reads the command line. Light: `glidepath --help` imports argparse and no part of the runtime."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from glidepath._version import VERSION
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.commands import COMMANDS, FAMILIES, GROUPS

_WIDE = 80
Execute = Callable[[argparse.Namespace, CliContext], int]

_EPILOG = """\
exit codes:
  0 done   1 failed   2 usage   3 ended by a limit   4 stuck   5 refused
  6 waiting for a decision   130 Ctrl-C   143 SIGTERM

`glidepath COMMAND --help` explains a command.
"""


def parse(argv: Sequence[str], world: CliContext) -> tuple[argparse.Namespace, Execute]:
    """The options and the function that executes them; raises SystemExit for --help, --version and usage errors."""
    if list(argv[:1]) == ["help"]:
        argv = [*(word for word in argv[1:] if not word.startswith("-")), "--help"]
    if list(argv) in (["-h"], ["--help"]):
        world.write(_short_page())
        raise SystemExit(0)
    argv = _join_family(["--help" if word == "--help-all" else word for word in argv[:1]] + list(argv[1:]))
    command = next((word for word in argv if not word.startswith("-")), None)
    parser = make_parser([command] if command in COMMANDS else [])
    if command is not None and command not in COMMANDS and argv[0] == command:
        parser.exit(2, f"{parser.prog}: error: {_explain_unknown_command(command)}\n`glidepath --help` lists them.\n")
    if argv and argv[0].startswith("-") and argv[0] not in parser.flags:
        _refuse_flag(argv, parser)
    if not argv:
        world.stderr.write(_short_page())
        raise SystemExit(2)
    options = parser.parse_args(list(argv))
    if options.command is None:
        parser.error("name a command: " + ", ".join(COMMANDS))
    return options, import_module(f"glidepath.apps.cli.commands.{options.command}_command").execute


def _short_page() -> str:
    """What `--help` prints: the commands most people need, within 24 lines of 80 columns."""
    from shutil import get_terminal_size
    from textwrap import wrap

    shown = {title: {name: line for name, line in lines.items() if name in COMMANDS} for title, lines in GROUPS.items()}
    lines = ["usage: glidepath COMMAND ...    An agent runtime that always lands."]
    for title, rows in shown.items():
        lines += [*([""] if len(lines) > 1 else []), f"{title}:"]
        lines += [f"  {name:<9} {line}" for name, line in rows.items()]
    more = len(COMMANDS) - sum(map(len, shown.values()))
    lines += ["", f"`glidepath COMMAND --help` explains one; --help-all: {more} more, and exit codes."]
    width = get_terminal_size().columns
    if width < _WIDE:
        lines = [row for line in lines for row in (wrap(line, width, subsequent_indent=" " * 12) or [""])]
    return "".join(f"{line}\n" for line in lines)


def _join_family(argv: list[str]) -> list[str]:
    """`sim whatif ...` is `whatif ...`."""
    own = FAMILIES.get(argv[0], {}).get(argv[1]) if len(argv) > 1 else None
    return argv if own is None else [own, *argv[2:]]


def make_parser(filled: Sequence[str | None]) -> _Parser:
    """The parser; only the commands in `filled` are imported and know their arguments."""
    parser = _Parser(
        prog="glidepath",
        description="An agent runtime that always lands.",
        epilog=_EPILOG,
        formatter_class=_Page,
    )
    version = f"glidepath {VERSION}"
    parser.add_argument("-V", "--version", action="version", version=version, help="print the version and exit")
    parser.add_argument("--help-all", action="help", help="show this: every command, and the exit codes")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, line in COMMANDS.items():
        sub = commands.add_parser(name, help=line)
        if name in filled:
            module = import_module(f"glidepath.apps.cli.commands.{name}_command")
            sub.description = (module.__doc__ or name).splitlines()[0]
            sub.formatter_class = _Page
            module.add_arguments(sub)
    return parser


_ELSEWHERE = {
    "ask": "run",
    "continue": "run --continue",
    "exec": "run",
    "delete": "sessions delete",
    "export": "sessions export",
    "history": "sessions list",
    "import": "sessions import",
    "list": "sessions list",
    "log": "runs show",
    "logs": "runs show",
    "ls": "sessions list",
    "prompt": "run",
    "prune": "runs prune",
    "pull": "models pull",
    "repair": "runs repair",
    "rm": "sessions delete",
    "search": "sessions search",
    "show": "sessions show",
    "start": "run",
    "stop": "runs stop",
    "ui": "deck",
    "version": "--version",
}
"""Words that are not commands, and what to type instead."""


_ANSWERS = {"yes": "all", "y": "all", "always": "all", "auto": "all", "no": "deny", "n": "deny", "never": "deny"}
"""What people say to a question that takes other words here."""


def _explain_unknown_command(word: str) -> str:
    """There is no such command, and what to type instead."""
    from shlex import quote

    meant = _ELSEWHERE.get(word) or _close_to(word, COMMANDS)
    if meant:
        return f"there is no command {word}; did you mean {meant}?"
    if " " in word:
        return f"there is no command {word!r}; to give an agent a task: glidepath run {quote(word)}"
    return f"there is no command {word}: there are {', '.join(COMMANDS)}"


def _refuse_flag(argv: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """End with the whole line for a flag that comes before its command, or without one; return for an unknown flag."""
    from glidepath.apps.cli.usage_errors import explain_misplaced

    command = next((word for word in argv if word in COMMANDS), None)
    meant = _Parser()
    import_module(f"glidepath.apps.cli.commands.{command or 'run'}_command").add_arguments(meant)
    if argv[0].partition("=")[0] in meant.flags:
        parser.error(explain_misplaced(argv, command))


def _close_to(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1)), None)


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the right flag for a wrong one; subcommands use it, too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self.command_as = ""
        """The name under which the words after `--` are kept, for a command that has arguments before its flags."""

    @property
    def flags(self) -> Iterable[str]:
        """The flags it knows, in every spelling."""
        return self._option_string_actions

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like the standard method, but unknown arguments are errors."""
        command: list[str] | None = None
        if self.command_as and args is not None and "--" in args:
            # The standard method gives the words to whichever argument is still missing.
            at = list(args).index("--")
            args, command = list(args[:at]), list(args[at + 1 :])
        found, unknown = super().parse_known_args(args, namespace)
        if self.command_as:
            setattr(found, self.command_as, command or [])
        if unknown:
            self.error(self._explain_error(unknown, {} if "--" in (args or ()) else vars(found)))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """One line with what is wrong, and one with where to look; the standard method prints the whole usage."""
        from glidepath.apps.cli.usage_errors import usage_error

        self.exit(
            2, f"{self.prog}: error: {usage_error(message, self._actions)}\n`{self.prog} --help` lists what it takes.\n"
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Like the standard method, with a suggestion and the same words in every version of Python."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        meant = [_ANSWERS.get(str(value)), _close_to(str(value), choices)]
        close = next((one for one in meant if one in choices), f"--{value}" if f"--{value}" in self.flags else None)
        hint = f"; did you mean {close}?" if close else ""
        raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {', '.join(choices)}){hint}")

    def _explain_error(self, unknown: Sequence[str], undashed: Mapping[str, Any]) -> str:
        from glidepath.apps.cli.usage_errors import explain_unexpected, unknown_flag

        for action in self._actions:
            begun = action.metavar == "COMMAND" and action.nargs == "*" and undashed.get(action.dest)
            if begun:  # ours would be mixed with its flags
                return f"first the flags, then --, then the command: {self.prog} [flags] -- {begun[0]} ..."
        flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
        return explain_unexpected(unknown[0], self._actions) if flag is None else unknown_flag(flag, self._actions)


class _Page(argparse.RawDescriptionHelpFormatter):
    """Leaves examples as they are and wraps a sentence."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from textwrap import fill

        examples = "\n" in text.strip()
        return super()._fill_text(text, width, indent) if examples else fill(text, width)

    def add_argument(self, action: argparse.Action) -> None:
        """Puts the text of the longest command beside it: the standard formatter forgets the indent."""
        super().add_argument(action)
        if action.nargs == argparse.PARSER:
            self._action_max_length += self._indent_increment
