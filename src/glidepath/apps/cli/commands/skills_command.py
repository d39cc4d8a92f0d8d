"""List, check and show skills, and agents and slash commands from files.

Skills come from [skills] in glidepath.toml, from --skills FOLDERS, else from .agents/skills, .claude/skills and
.glidepath/skills of a folder that you trust.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from glidepath.agent import Skill
    from glidepath.apps.cli.cli_context import CliContext

_EXAMPLES = """\
examples:
  glidepath skills list                     the skills an agent would have here, and what they cost
  glidepath skills check                    everything here, and what of it has no effect
  glidepath skills check ~/.claude          the same for a folder of skills, agents and commands
  glidepath skills show pdf-processing      what the model reads
  glidepath skills show pdf-processing references/forms.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    listed = actions.add_parser("list", help="the skills an agent would have, with their tokens")
    listed.add_argument("--json", action="store_true", help="print one JSON object per skill")
    checked = actions.add_parser("check", help="read skills, agents and commands, and report what has no effect")
    checked.add_argument("folders", nargs="*", metavar="FOLDER", help="where to look, however deep (default: here)")
    checked.add_argument("-q", "--quiet", action="store_true", help="only what is refused, and the totals")
    checked.add_argument("--json", action="store_true", help="print one JSON object per file, and no totals")
    shown = actions.add_parser("show", help="what a model reads of one skill")
    shown.add_argument("name", metavar="NAME", help="the skill")
    shown.add_argument("file", nargs="?", metavar="FILE", help="one of its files (default: SKILL.md)")
    for sub in (listed, shown):
        sub.add_argument(
            "--skills",
            dest="skills_folders",
            metavar="FOLDERS",
            help="folders of skills, not the configured ones",
        )
        add_config_flags(sub)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    if options.action == "check":
        return _check(options, world)
    from glidepath.apps.cli.instructions import load_skills
    from glidepath.apps.cli.layers import gather

    skills = load_skills(gather(options, world, only=("skills.folders",)), world)
    return _list(skills, world, as_json=options.json) if options.action == "list" else _show(skills, options, world)


def _list(skills: Sequence[Skill], world: CliContext, *, as_json: bool) -> int:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.tools import text_tokens
    from glidepath.values import pluralize

    if not skills:
        world.note("There are no skills here: write [skills] into glidepath.toml, or pass --skills FOLDERS.")
        return 0
    wide = max(len(skill.name) for skill in skills)
    for skill in skills:
        trust = "trusted" if skill.trusted else "untrusted"
        before, after = text_tokens(skill.line) if skill.for_model else 0, text_tokens(skill.instructions)
        if as_json:
            figures = {"tokens": before, "tokens_when_read": after, "for_model": skill.for_model}
            world.write_json({"name": skill.name, "path": skill.path, "trusted": skill.trusted, **figures})
            continue
        hidden = "" if skill.for_model else ", no model is told of it"
        cost = pluralize(before, "token", f"{before:>3}")
        world.write(
            f"{skill.name:<{wide}}  {trust:<9}  {cost}, {after:,} when read{hidden}  {escape_invisible(skill.path)}\n"
        )
    return 0


def _show(skills: Sequence[Skill], options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.tools import find_closest
    from glidepath.values import ConfigurationError

    known = {skill.name: skill for skill in skills}
    skill = known.get(options.name)
    if skill is None:
        meant = find_closest(options.name, known)
        hint = f"did you mean {meant!r}?" if meant else "`glidepath skills list` shows them"
        raise ConfigurationError(f"there is no skill {options.name!r}; {hint}")
    file = options.file or "SKILL.md"
    if file not in skill.files:
        raise ConfigurationError(f"the skill {skill.name} has no file {file!r}; it has {', '.join(skill.files)}")
    from glidepath.apps.cli.display_text import escape_invisible

    text = skill.instructions if file == "SKILL.md" else skill.files[file].decode("utf-8", "replace")
    if file == "SKILL.md":
        trust = "trusted" if skill.trusted else "untrusted: its text does not count as yours"
        world.write(f"{escape_invisible(skill.line)}\n{skill.digest} ({trust})\n")
        for remark in skill.remarks:
            world.write(f"  {escape_invisible(remark)}\n")
        world.write("\n")
    world.write(f"{escape_invisible(text, keep=chr(10) + chr(9))}\n")
    return 0


# --- check ----------------------------------------------------------------------------------------------------------


class _Tally:
    """What was read, what was refused, and how each is told."""

    def __init__(self, world: CliContext, *, quiet: bool, as_json: bool) -> None:
        self._world, self._quiet, self._as_json = world, quiet, as_json
        self.counts: dict[str, list[int]] = {}
        self.before: list[int] = []
        self.after: list[int] = []
        self._names: dict[str, Path] = {}

    def read(self, kind: str, path: Path, make: Callable[[Path], Any]) -> Any:
        """What `make` makes of a file; None, and a line about it, if it cannot be used."""
        from glidepath.values import ConfigurationError

        counts = self.counts.setdefault(kind, [0, 0])
        try:
            made = make(path)
        except ConfigurationError as error:
            counts[1] += 1
            self._tell(kind, path, (), error=str(error))
            return None
        counts[0] += 1
        remarks = list(made.remarks)
        if kind == "skill" and (other := self._names.setdefault(made.name, path)) != path:
            remarks.append(f"another skill has the name {made.name}: {other}")
        if not self._quiet:
            self._tell(kind, path, remarks)
        return made

    def _tell(self, kind: str, path: Path, remarks: Sequence[str], *, error: str | None = None) -> None:
        from glidepath.apps.cli.display_text import escape_invisible

        if self._as_json:
            self._world.write_json({"kind": kind, "path": str(path), "error": error, "remarks": remarks})
            return
        mark, said = ("ok     ", str(path)) if error is None else ("refused", error)
        self._world.write(f"{mark}  {kind}  {escape_invisible(said)}\n")
        for remark in remarks:
            self._world.write(f"           {escape_invisible(remark)}\n")


def _check(options: argparse.Namespace, world: CliContext) -> int:
    from pathlib import Path

    from glidepath.agent import AgentFile, CommandFile, Skill
    from glidepath.tools import text_tokens
    from glidepath.values import ConfigurationError, pluralize

    folders = [world.folder / Path(name).expanduser() for name in options.folders] or [world.folder]
    tally = _Tally(world, quiet=options.quiet, as_json=options.json)
    for folder in folders:
        if not folder.is_dir():
            raise ConfigurationError(f"{folder} is not a folder")
        for kind, path in _find_files(folder):
            if kind == "skill":
                skill = tally.read(kind, path, Skill.read)
                if skill is not None:
                    tally.before.append(text_tokens(skill.line))
                    tally.after.append(text_tokens(skill.instructions))
            elif kind == "agent":
                tally.read(kind, path, AgentFile.read)
            else:
                tally.read(kind, path, CommandFile.read)
    code = 1 if any(bad for _, bad in tally.counts.values()) else 0
    if not tally.counts:
        world.note("There are no skills, agents or commands here.")
    if options.json:
        return code
    for kind, (good, bad) in tally.counts.items():
        world.write(f"{pluralize(good, kind)} can be used, {bad} cannot.\n")
    if tally.before:
        before, after = sorted(tally.before), sorted(tally.after)
        cost = pluralize(before[len(before) // 2], "token")
        world.write(
            f"A skill costs {cost} before it is read (at most {before[-1]}), and "
            f"{after[len(after) // 2]:,} when it is (at most {after[-1]:,}); the middle one each.\n"
        )
    return code


def _find_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The skills, agents and commands below a folder, by where they lie. Links are not followed."""
    import os
    from pathlib import Path

    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules", "__pycache__"))
        here = Path(place)
        if "SKILL.md" in files:
            yield "skill", here / "SKILL.md"
        parts = here.relative_to(folder.parent).parts
        kind = next((part for part in reversed(parts) if part in ("skills", "agents", "commands")), "")
        for name in sorted(files):
            if (
                name.endswith(".md")
                and kind in ("agents", "commands")
                and name != "README.md"
                and "SKILL.md" not in files
            ):
                yield kind.removesuffix("s"), here / name
