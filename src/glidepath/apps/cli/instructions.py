"""What a folder tells an agent: its AGENTS.md and its own slash commands, once a person trusts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.folder import COMMANDS

AGENTS = "AGENTS.md"
_MOST = 64_000


def project_instructions(world: CliContext, *, wanted: bool = True) -> str:
    """What AGENTS.md in this folder says; empty without one, and in a folder that nobody trusts.

    A line on the error stream says which of the two it is; in a pipe only that a file is left out.
    """
    if not wanted or not (world.folder / AGENTS).is_file():
        return ""
    from glidepath.apps.cli.trust import read_trusted_files

    trusted, files = read_trusted_files(world.folder)
    text = files.get(AGENTS, b"").decode("utf-8", "replace").strip()
    if not trusted:
        world.note_once(f"{AGENTS} is not used: this folder is not trusted. `glidepath trust` trusts it.")
        return ""
    if len(text) > _MOST:
        world.note_once(f"{AGENTS} has {len(text):,} characters; the model gets the first {_MOST:,}.")
    elif text and world.is_terminal(world.stderr):
        world.note_once(f"{AGENTS}: {len(text):,} characters of instructions from this folder, which you trust.")
    return text[:_MOST]


def load_custom_commands(world: CliContext) -> Mapping[str, str]:
    """The slash commands of this folder and of its user, by name: the text that each of them sends.

    A file `review.md` in `.glidepath/commands`, or in `commands` of the user's configuration folder, is `/review`.
    Those of a folder count only while it is trusted.
    """
    found: dict[str, str] = {}
    place = _user_folder()
    if place is not None and place.is_dir():
        for file in sorted(place.glob("*.md")):
            try:
                found[file.stem] = file.read_text("utf-8")[:_MOST]
            except (OSError, ValueError):
                continue
    if (world.folder / COMMANDS).is_dir():
        from glidepath.apps.cli.trust import read_trusted_files

        trusted, files = read_trusted_files(world.folder)
        if not trusted and any(name.startswith(f"{COMMANDS}/") for name in files):
            world.note_once(f"{COMMANDS} is not used: this folder is not trusted. `glidepath trust` trusts it.")
        for name, data in files.items() if trusted else ():
            inner = name.removeprefix(f"{COMMANDS}/")
            if inner != name and inner.endswith(".md"):
                found[inner.removesuffix(".md").replace("/", "-")] = data.decode("utf-8", "replace")[:_MOST]
    return {name: text for name, text in found.items() if name and not set(name) & set(" :\t")}


def _user_folder() -> Path | None:
    try:
        from platformdirs import user_config_path
    except ImportError:
        return None
    return user_config_path("glidepath") / "commands"
