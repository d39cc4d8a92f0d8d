"""Trust a folder's configuration, list the folders you trust, or revoke trust.

A configuration file that only lies in a folder can only narrow what an agent may do. Trust lets it do the rest. It
holds for the files as they are: when one of them changes, you are asked again.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from glidepath.apps.cli.cli_context import CliContext

_EXAMPLES = """\
examples:
  glidepath trust                  show what this folder wants, and ask
  glidepath trust ../project       the same for another folder
  glidepath trust --yes            do not ask; for scripts
  glidepath trust list             the folders you trust
  glidepath trust revoke           stop trusting this folder
  glidepath trust revoke ../project
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("action", nargs="?", metavar="ACTION", help="list, revoke, or the folder to trust")
    parser.add_argument("path", nargs="?", metavar="PATH", help="revoke: which folder (default: this one)")
    parser.add_argument("--yes", action="store_true", help="trust without asking")
    parser.add_argument("--json", action="store_true", help="list: print one JSON object per folder")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    from glidepath.values import ConfigurationError

    action = options.action
    if options.yes and action in ("list", "revoke"):
        raise ConfigurationError(f"--yes has no effect with {action}")
    if options.json and action != "list":
        raise ConfigurationError("--json is for `glidepath trust list`")
    if action == "revoke":
        return _revoke(world.folder / (options.path or "."), world)
    if options.path is not None:
        raise ConfigurationError(f"unexpected argument {options.path!r}; `glidepath trust --help` lists what it takes")
    if action == "list":
        return _list(world, as_json=options.json)
    return _trust(_folder(world.folder / (action or ".")), world, yes=options.yes)


def _trust(path: Path, world: CliContext, *, yes: bool) -> int:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.folder import read_folder
    from glidepath.apps.cli.layers import configuration_in, load
    from glidepath.apps.cli.trust import is_trusted
    from glidepath.apps.cli.trust_prompt import ask_for_trust, describe_folder, find_person, keep
    from glidepath.apps.cli.untrusted_config import find_exceeding_keys
    from glidepath.values import ConfigurationError

    folder = read_folder(path)
    here = escape_invisible(str(folder.path))
    file = configuration_in(folder)
    if folder.unread:
        why = "; ".join(f"{escape_invisible(name)} {reason}" for name, reason in folder.unread.items())
        raise ConfigurationError(f"{here} cannot be trusted: {why}")
    values = {} if file is None else {key: said for key, (said, _) in load(file, folder.files[file.name]).items()}
    wanted = {key: values[key] for key in find_exceeding_keys(values, folder.path)}
    if not wanted and not folder.files.keys() - ({file.name} if file else set()):
        only = (
            f"{file.name} only narrows"
            if file
            else "no glidepath.toml, .mcp.json, AGENTS.md, skills, agents or commands"
        )
        world.write(f"Nothing in {here} needs trust: {only}.\n")
        return 0
    if is_trusted(folder):
        world.write(f"{describe_folder(folder, wanted)}\nYou already trust this folder.\n")
        return 0
    refused: tuple[str, ...] = ()
    if yes:
        world.write(f"{describe_folder(folder, wanted)}\n")
    else:
        stream = find_person(world)
        if stream is None:
            world.note(describe_folder(folder, wanted))
            raise ConfigurationError("trust needs a terminal to ask on; in a script, pass --yes")
        answer = ask_for_trust(folder, wanted, stream, world)
        if answer is None:
            world.write("Not trusted.\n")
            return 1
        refused = answer
    if not keep(folder, world, refused):
        return 1
    without = f" (without {', '.join(refused)})" if refused else ""
    world.write(f"Trusted: {here}{escape_invisible(without)}\n")
    return 0


def _folder(path: Path) -> Path:
    """A folder, also when one of its covered files is named."""
    from glidepath.apps.cli.folder import COVERED
    from glidepath.tools import find_closest
    from glidepath.values import ConfigurationError

    if path.name in COVERED and path.is_file():
        return path.parent
    if not path.is_dir():
        meant = find_closest(path.name, ("list", "revoke"))
        hint = f"did you mean {meant}?" if meant else "`glidepath trust --help` lists what it takes"
        raise ConfigurationError(f"{path} is not a folder; {hint}")
    return path


def _list(world: CliContext, *, as_json: bool) -> int:
    from pathlib import Path

    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.folder import read_folder
    from glidepath.apps.cli.trust import is_trusted, list_trusted_folders

    found = list_trusted_folders()
    for record in found:
        path = Path(record.folder)
        state = "gone" if not path.is_dir() else "trusted" if is_trusted(read_folder(path)) else "changed"
        if as_json:
            world.write_json({"folder": record.folder, "when": record.when, "without": record.without, "state": state})
            continue
        told = "" if state == "trusted" else f"  ({state})"
        without = f"  (without {', '.join(record.without)})" if record.without else ""
        world.write(
            f"{escape_invisible(record.when)}  {escape_invisible(record.folder)}{escape_invisible(without)}{told}\n"
        )
    if not found:
        world.note("You trust no folder yet.")
    return 0


def _revoke(path: Path, world: CliContext) -> int:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.folder import COVERED
    from glidepath.apps.cli.trust import forget

    folder = (path.parent if path.name in COVERED else path).resolve()
    if not forget(folder):
        world.complain(
            f"{escape_invisible(str(folder))} is not trusted; `glidepath trust list` shows the folders that are"
        )
        return 1
    world.write(f"No longer trusted: {escape_invisible(str(folder))}\n")
    return 0
