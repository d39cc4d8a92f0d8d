"""What a folder tells an agent: its AGENTS.md, skills, agents and slash commands, once a person trusts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.folder import AGENTS, COMMANDS, SKILL_FILE, SKILLS
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent import AgentFile, CommandFile, Skill
    from glidepath.apps.cli.layers import LoadedSettings

AGENTS_MD = "AGENTS.md"
_TRUST = "this folder is not trusted. `glidepath trust` trusts it."


def project_instructions(world: CliContext, *, wanted: bool = True) -> str:
    """The part of the system prompt from AGENTS.md in this folder; empty without one, and where nobody trusts it.

    A line on the error stream says which of the two it is; in a pipe only that a file is left out.
    """
    if not wanted or not (world.folder / AGENTS_MD).is_file():
        return ""
    from glidepath.agent import MOST_AGENTS_MD, decode_agents_md, introduce_agents_md
    from glidepath.apps.cli.trust import read_trusted_files

    trusted, files = read_trusted_files(world.folder)
    text = decode_agents_md(files.get(AGENTS_MD, b""))
    if not trusted:
        world.note_once(f"{AGENTS_MD} is not used: {_TRUST}")
        return ""
    if len(text) > MOST_AGENTS_MD:
        world.note_once(f"{AGENTS_MD} has {len(text):,} characters; the model gets the first {MOST_AGENTS_MD:,}.")
    elif text and world.is_terminal(world.stderr):
        world.note_once(f"{AGENTS_MD}: {len(text):,} characters of instructions from this folder, which you trust.")
    return introduce_agents_md(text)


# --- skills ---------------------------------------------------------------------------------------------------------


def load_skills(settings: LoadedSettings, world: CliContext) -> tuple[Skill, ...]:
    """The skills that a person named, else those in the usual folders of a folder that they trust.

    One that was named and cannot be used is an error; about any other there is a note.
    """
    from glidepath.agent import refuse_clashes

    named = settings.get("skills.folders")
    if named is None:
        return refuse_clashes(_find_skills(world))
    folder = _folder_of(settings, "skills.folders", world)
    return refuse_clashes(
        skill for name in named for skill in read_named_skills(folder / Path(name).expanduser(), world)
    )


def read_named_skills(folder: Path, world: CliContext) -> Iterator[Skill]:
    """The skills of a folder that was named: each trusted if its folder is, as it is now."""
    from glidepath.agent import Skill, find_skill_folders, refuse_link
    from glidepath.apps.cli.trust import read_trusted_files

    trusted, files = read_trusted_files(world.folder)
    here = world.folder.resolve()
    for found in find_skill_folders(folder):
        if found != folder:
            refuse_link(found, folder)
        place = found.resolve()
        inner = place.relative_to(here).as_posix() if place.is_relative_to(here) else ""
        own_trusted, own = read_trusted_files(place)
        if trusted and inner.startswith(tuple(f"{one}/" for one in SKILLS)):
            yield Skill.from_files(_files_in(files, inner), str(place), trusted=True)
        elif own_trusted:
            yield Skill.from_files(own, str(place), trusted=True)
        else:
            yield Skill.read(found)


def _find_skills(world: CliContext) -> Iterator[Skill]:
    """The skills in the usual folders of this one, when it is trusted; a later folder wins over an earlier one."""
    files = _read_steering_files(world, SKILLS)
    from glidepath.agent import Skill

    found: dict[str, Skill] = {}
    for place in SKILLS:
        for name in files:
            inner = name.removeprefix(f"{place}/")
            if inner != name and inner.endswith(f"/{SKILL_FILE}") and inner.count("/") == 1:
                folder = name.removesuffix(f"/{SKILL_FILE}")
                try:
                    skill = Skill.from_files(_files_in(files, folder), str(world.folder / folder), trusted=True)
                except ConfigurationError as error:
                    world.note_once(f"A skill is not used. {error}")
                else:
                    found[skill.name] = skill
    yield from found.values()


def _files_in(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(f"{folder}/"): data for name, data in files.items() if name.startswith(f"{folder}/")}


def _folder_of(settings: LoadedSettings, key: str, world: CliContext) -> Path:
    """Where a path in a setting begins: at the file that has it, else here."""
    origin = settings.origin_of(key)
    here = settings.file is None or origin.startswith(("flag ", "env "))
    return world.folder if here or settings.file is None else settings.file.parent


def _read_steering_files(world: CliContext, places: tuple[str, ...]) -> Mapping[str, bytes]:
    """The files in these folders of this one; none, and a note, where nobody trusts it."""
    if not any((world.folder / place).is_dir() for place in places):
        return {}
    from glidepath.apps.cli.trust import read_trusted_files

    trusted, files = read_trusted_files(world.folder)
    there = {place for place in places for name in files if name.startswith(f"{place}/")}
    if there and not trusted:
        world.note_once(f"{' and '.join(sorted(there))} {'is' if len(there) == 1 else 'are'} not used: {_TRUST}")
    return files if trusted else {}


# --- agents ---------------------------------------------------------------------------------------------------------


def load_agent_files(settings: LoadedSettings, world: CliContext) -> tuple[AgentFile, ...]:
    """The agents for parts of the work: of the table [agents], of files that were named, else of the usual folders."""
    from glidepath.agent import AgentFile, read_agent_files

    table = dict(settings.get("agents") or {})
    origin, folder = settings.origin_of("agents"), _folder_of(settings, "agents", world)
    paths = table.pop("files", None)
    if paths is not None and not (isinstance(paths, list | tuple) and all(isinstance(one, str) for one in paths)):
        raise ConfigurationError(f'{origin}: agents.files must be a list such as [".claude/agents"], not {paths!r:.80}')
    found = [AgentFile.from_table(name, said, origin) for name, said in table.items()]
    named = [folder / Path(path).expanduser() for path in paths or ()]
    given = settings.get("agent_files")
    named += [world.folder / Path(path).expanduser() for path in given or ()]
    if paths is None and given is None:
        taken = {one.name for one in found}
        return (*found, *[one for one in _find_agent_files(world) if one.name not in taken])
    return (*found, *[one for path in named for one in read_agent_files(path)])


def _find_agent_files(world: CliContext) -> list[AgentFile]:
    files = _read_steering_files(world, AGENTS)
    from glidepath.agent import AgentFile

    found: dict[str, AgentFile] = {}
    for place in AGENTS:
        for name, data in files.items():
            inner = name.removeprefix(f"{place}/")
            if inner != name and inner.endswith(".md"):
                try:
                    made = AgentFile.from_bytes(data, str(world.folder / name))
                except ConfigurationError as error:
                    world.note_once(f"An agent is not used. {error}")
                else:
                    found[made.name] = made
    return list(found.values())


def shape_by_agent_file(fields: dict[str, Any], settings: LoadedSettings, world: CliContext) -> dict[str, Any]:
    """The fields of an agent as the file of `--agent-file` has them; a note names the tools that it was not given."""
    from glidepath.agent import AgentFile, shape_fields

    file = AgentFile.read(world.folder / Path(settings["agent_file"]).expanduser())
    given = [getattr(one, "name", "") for one in fields.get("tools", ())]
    if missing := file.list_missing(given):
        world.note_once(
            f"{file.name} also lists {', '.join(missing)}, which it was not given: a file gives no tools, --tools does."
        )
    return shape_fields(file, fields)


# --- slash commands -------------------------------------------------------------------------------------------------


def load_custom_commands(world: CliContext) -> Mapping[str, CommandFile]:
    """The slash commands of this folder and of its user, by name.

    A file `review.md` in `.glidepath/commands` or `.claude/commands`, or in `commands` of the user's configuration
    folder, is `/review`. Those of a folder count only while it is trusted.
    """
    found: dict[str, CommandFile] = {}
    place = _user_folder()
    if place is not None and place.is_dir():
        for file in sorted(place.glob("*.md")):
            try:
                data = file.read_bytes()
            except (OSError, ValueError):
                continue
            _add_command(found, data, str(file), file.stem, world)
    files = _read_steering_files(world, COMMANDS)
    for folder in COMMANDS:
        for name, data in files.items():
            inner = name.removeprefix(f"{folder}/")
            if inner != name and inner.endswith(".md"):
                _add_command(found, data, name, inner.removesuffix(".md").replace("/", "-"), world)
    return found


def _add_command(found: dict[str, CommandFile], data: bytes, path: str, name: str, world: CliContext) -> None:
    from glidepath.agent import CommandFile

    try:
        found[name] = CommandFile.from_bytes(data, path, name)
    except ConfigurationError as error:
        world.note_once(f"/{name} is not used. {error}")


def _user_folder() -> Path | None:
    try:
        from platformdirs import user_config_path
    except ImportError:
        return None
    return user_config_path("glidepath") / "commands"
