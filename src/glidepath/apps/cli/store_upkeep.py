"""`glidepath sessions backup`, `verify` and `compact`: looking after a whole store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.values import pluralize

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.sessions.verifying import Problem
    from glidepath.spi import SessionStore


def add_upkeep_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `backup`, `verify` and `compact`."""
    copied = actions.add_parser("backup", help="copy the whole store with its wallets into a new file, also in use")
    copied.add_argument("target", metavar="FILE", help="the new file")
    verified = actions.add_parser("verify", help="check the file, every session, the leases and the wallets")
    compacted = actions.add_parser("compact", help="give back the room of what was deleted, and remove its text")
    for action in (copied, verified, compacted):
        action.add_argument("--json", action="store_true", help="print one JSON object")


async def backup(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Copy the store."""
    from glidepath.sessions.upkeep import backup

    done = await backup(store, _place(options.target, world))
    if options.json:
        world.write_json(done)
    else:
        what = f"{pluralize(done.sessions, 'session')} and {pluralize(done.wallets, 'wallet')}"
        world.note(f"{done.path}: {what}, {_bytes(done.size)}")
    return 0


async def verify(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Check the store; 1 when anything in it is damaged."""
    from glidepath.sessions.verifying import verify

    found = await verify(store)
    if options.json:
        world.write_json({**_plain(found), "is_whole": found.is_whole})
    else:
        _print_problems(found.problems, world)
        what = f"{pluralize(found.sessions, 'session')}, {pluralize(found.commits, 'commit')}"
        said = "everything is whole" if found.is_whole else "something is damaged"
        world.note(f"{what}, {pluralize(found.wallets, 'wallet')}: {said}")
    return 0 if found.is_whole else 1


async def compact(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Make the file smaller."""
    from glidepath.sessions.upkeep import compact

    done = await compact(store)
    if options.json:
        world.write_json(done)
        return 0
    if done.removed:
        world.note(f"removed {pluralize(len(done.removed), 'unfinished session')}")
    world.note(f"{_bytes(done.before)} before, {_bytes(done.after)} now")
    if not done.is_log_empty:
        world.note("another process is reading, so deleted text can still be in the log: compact again later")
    return 0


def _place(name: str, world: CliContext) -> Path:
    return world.folder / Path(name).expanduser()


def _print_problems(problems: Sequence[Problem], world: CliContext) -> None:
    from glidepath.apps.cli.display_text import escape_invisible

    if not problems:
        return
    rows = [
        ("WHERE", "KIND", "WHAT"),
        *((escape_invisible(one.where), one.kind, escape_invisible(one.what)) for one in problems),
    ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    world.write("".join(f"{where:<{first}}  {kind:<{second}}  {what}\n" for where, kind, what in rows))


def _bytes(size: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004
            return f"{size} {unit}" if isinstance(size, int) else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.1f} GB"


def _plain(value: object) -> dict[str, Any]:
    from glidepath import _wire

    return _wire.loads(_wire.encode(value))  # type: ignore[no-any-return]
