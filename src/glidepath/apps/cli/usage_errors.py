"""What is wrong with the words of a command line, said in ours rather than in those of the standard library."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.apps.cli.settings import SETTINGS, variable_name_of
from glidepath.tools import find_closest
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MEANT = {
    "--json": "--output-format json",
    "--stream-json": "--output-format stream-json",
    "--max-iterations": "--max-turns",
    "--max-steps": "--max-turns",
    "--price": """--set 'prices={"MODEL": ["3", "15"]}' (dollars per million tokens, input and output)""",
    "--turns": "--max-turns",
    "--budget": "--max-budget-usd",
    "--max-cost": "--max-budget-usd",
    "--allowed-tools": "--tools",
    "--allowedTools": "--tools",
    "--yolo": "--approve all",
    "--dangerously-skip-permissions": "--approve all",
    "--system": "--system-prompt",
    "--output": "--out FILE or --output-format",
    "--instructions": "--system-prompt",
    "--prompt": "-p",
    "--session": "--resume",
    "--session-id": "--resume",
    "--directory": "--workspace",
    "--max-time": "--timeout",
    "--older-than": "--days",
    "--dry-run": "--plan-only",
    "--schema": "--json-schema",
    "--images": "--image",
    "--cwd": "--workspace",
    "--cd": "--workspace",
}
"""Flags of other command lines, and what they are called here."""

_MONEY = ("--max-budget-usd", "--max-cost", "--budget", "--max-budget")
_TURNS = ("--max-calls", "--max-turns", "--max-iterations", "--max-steps", "--turns")
"""A turn of a foreign agent is a call, and so is the limit of a gate."""
_WITHOUT_A_FLAG = {
    "--to": "target",
    "--id": "session",
    "--session-id": "session",
    "--prompt": "task",
    "--text": "message",
}
"""Flags of other command lines for what is written without one here."""
_CONVERSATION = ("-c", "--continue", "--last"), ("-r", "--resume")


def usage_error(message: str, actions: Iterable[argparse.Action]) -> str:
    """What the standard library says of a wrong flag, in our words; a missing choice comes with what there is."""
    said = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
    for old, new in ((": invalid int value:", "a whole number"), (": invalid float value:", "a number")):
        said = said.replace(old, f": expected {new}, got", 1)
    if said.startswith("missing: "):
        free = {action.metavar or action.dest for action in actions if action.nargs == "*"}
        said = ", ".join([name for name in said.split(", ") if name not in free])
    for action in actions:
        if said == f"missing: {action.metavar or action.dest}" and action.choices:
            said = f"{said}, one of {', '.join(map(str, action.choices))}"
    return said


def to_write(text: str) -> Path:
    """The type of a flag that names a file to write: wrong before the work rather than after it. `-` is not a file."""
    path = Path(text)
    folder = path.parent
    if text != "-" and not (folder.is_dir() and os.access(path if path.exists() else folder, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {folder} is not a folder that you may write to")
    return path


def explain_wrong_variable(name: str) -> str | None:
    """What is wrong with the name of a variable, and the right one; None for a name that is none of ours.

    A limit that nobody reads would be no limit: its flag, its older key and its bare name lead to the variable.
    """
    others = {}
    for setting in SETTINGS:
        for other in (setting.flag, setting.seed, setting.key.rpartition(".")[2]):
            if isinstance(other, str):
                others[f"GLIDEPATH_{other.strip('-').replace('-', '_').upper()}"] = variable_name_of(setting)
    if name not in others and not name.startswith(("GLIDEPATH_LIMITS_", "GLIDEPATH_GUARDRAILS_")):
        return None
    meant = others.get(name) or find_closest(name, list(map(variable_name_of, SETTINGS)))
    return f"there is no variable {name}" + (f"; did you mean {meant}?" if meant else "")


def parse_name(text: str) -> str:
    """The type of a flag that names something: an empty one, as of a script's unset variable, names nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def parse_title(text: str) -> str:
    """The type of a flag that gives a session a name: wrong before the work rather than after it."""
    from glidepath.sessions.summaries import check_title

    try:
        return check_title(parse_name(text))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("title ")) from None


def explain_unexpected(word: str, actions: Iterable[argparse.Action]) -> str:
    """What to say of an unexpected argument."""
    flags = {flag for action in actions for flag in action.option_strings}
    hint = ""
    if any(action.nargs in ("*", "+") for action in actions if not action.option_strings):
        hint = " (write the whole text in one place, in quotes)"
    elif "--add" in flags:
        hint = " (to add a tag, use --add TAG)"
    elif "--agent" in flags and ":" in word:
        hint = f" (to name an agent, use --agent {word})"
    elif "--config" in flags:
        hint = " (to name a configuration file, use --config FILE)"
    return f"unexpected argument {word!r}{hint}"


def unknown_flag(flag: str, actions: Iterable[argparse.Action]) -> str:
    """What to say of an unknown flag: the one that was meant, or that none is needed."""
    flags = [one for action in actions for one in action.option_strings]
    same = next((words for words in (_MONEY, _TURNS) if flag in words), ())
    meant = next((one for one in (_MEANT.get(flag), *same) if one and one.partition(" ")[0] in flags), None)
    if meant is None:
        bare = _WITHOUT_A_FLAG.get(flag, flag.lstrip("-"))
        for action in actions:
            name = action.metavar or action.dest
            if not action.option_strings and isinstance(name, str) and bare in (name.lower(), action.dest):
                return f"there is no flag {flag}; write {name} without a flag"
        if flag in ("--yes", "-y", "--force", "-f") and "--yes" not in flags:
            return f"there is no flag {flag}; leave it out: nothing is asked here"
    meant = meant or ("--yes" if flag == "-y" and "--yes" in flags else None)
    if meant is None and flag.startswith("--"):
        meant = find_closest(flag[2:], [one[2:] for one in flags if one.startswith("--")])
        meant = meant and f"--{meant}"
    return f"there is no flag {flag}" + (f"; did you mean {meant}?" if meant else "")


def explain_misplaced(argv: Sequence[str], command: str | None) -> str:
    """What to say of a flag before its command, or without one: the whole line."""
    flag, rest = argv[0].partition("=")[0], list(argv)
    if command is not None:
        rest.remove(command)
        return f"{flag} belongs behind the command: {shlex.join(['glidepath', command, *rest])}"
    words = sum(not word.startswith("-") for word in argv)
    talks = any(flag in flags and words <= most for most, flags in enumerate(_CONVERSATION))
    return f"{flag} belongs to a command: {shlex.join(['glidepath', 'chat' if talks else 'run', *rest])}"
