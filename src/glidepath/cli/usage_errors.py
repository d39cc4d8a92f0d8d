"""What is wrong with the words of a command line, said in ours rather than in those of the standard library."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.cli.settings import SETTINGS, variable
from glidepath.errors import ConfigurationError
from glidepath.tools.advice import closest

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def wrong_variable(name: str) -> str | None:
    """What is wrong with the name of a variable, and the right one; None for a name that is none of ours.

    A limit that nobody reads would be no limit: its flag, its older key and its bare name lead to the variable.
    """
    others = {}
    for setting in SETTINGS:
        for other in (setting.flag, setting.seed, setting.key.rpartition(".")[2]):
            if isinstance(other, str):
                others[f"GLIDEPATH_{other.strip('-').replace('-', '_').upper()}"] = variable(setting)
    if name not in others and not name.startswith(("GLIDEPATH_LIMITS_", "GLIDEPATH_GUARDRAILS_")):
        return None
    meant = others.get(name) or closest(name, list(map(variable, SETTINGS)))
    return f"there is no variable {name}" + (f"; did you mean {meant}?" if meant else "")


def given(text: str) -> str:
    """The type of a flag that names something: an empty one, as of a script's unset variable, names nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def title(text: str) -> str:
    """The type of a flag that gives a session a name: wrong before the work rather than after it."""
    from glidepath.sessions.cards import checked_title

    try:
        return checked_title(given(text))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("title ")) from None
