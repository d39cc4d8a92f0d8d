"""A skill: a folder with a SKILL.md, read once. What is used is what was read, whatever happens to the folder later."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from glidepath._wire import Value, replace
from glidepath.agent.skills.front_matter import (
    VARIABLE,
    Fields,
    FileFormatError,
    decode_text,
    find_invisible,
    name_inline_command,
    read_front_matter,
)
from glidepath.agent.skills.tool_names import translate_tools
from glidepath.tools import Sandbox, list_files_below, read_regular_file, text_tokens
from glidepath.values import ConfigurationError

SKILL_FILE = "SKILL.md"
LINE_TOKENS = 100
"""The most that a skill costs in the prompt before it is used."""
_MOST_NAME, _MOST_COMPATIBILITY, _MOST_DESCRIPTION = 64, 500, 1024
_MOST_TEXT, _MOST_FILE, _MOST_IN_ALL, _MOST_FILES = 200_000, 5_000_000, 20_000_000, 1_000
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ARGUMENTS = re.compile(r"\$ARGUMENTS\b")
_PROGRAMS = {".py": "python3", ".sh": "sh", ".bash": "bash", ".js": "node", ".mjs": "node"}
_ELSEWHERE = {
    "user-invocable": "nobody starts a skill but the model",
    "context": "a skill is read by the run that asks for it",
    "agent": "a skill is read by the run that asks for it",
    "hooks": "a skill runs nothing by itself; write a plugin",
    "model": "the agent's model stays",
    "effort": "the agent's reasoning stays",
    "argument-hint": "a skill takes no arguments",
    "arguments": "a skill takes no arguments",
    "when_to_use": "write it into the description",
    "allowedTools": "write allowed-tools",
    "tools": "write allowed-tools",
    "paths": "the model decides by the description",
    "shell": "scripts run in a sandbox",
}


class Skill(Value, frozen=True, kw_only=True):
    """Instructions for a kind of task, with the files beside them: a folder with a `SKILL.md`.

    Make one with `Skill.read(path)`. It costs at most 100 tokens in the prompt; the model reads the rest when it needs
    it. A skill gives nothing: no tool, file, host or approval that the agent does not have without it.
    """

    name: str
    description: str
    instructions: str
    files: Mapping[str, bytes] = {}
    """Everything in the folder, by its path in there."""
    path: str = ""
    trusted: bool = False
    """You know who wrote it: its text counts as yours. Otherwise it is untrusted text, as a web page is."""
    allowed_tools: tuple[str, ...] | None = None
    """The tools it says that it needs. From when it was read, every call of another tool is asked about."""
    sandbox: Sandbox | None = None
    """What its scripts may reach beside their own folder; None: nothing."""
    for_model: bool = True
    """False: it says `disable-model-invocation`, so no model is told of it."""
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, Any] = {}
    digest: str = ""
    """Of everything in the folder, and of nothing else."""
    remarks: tuple[str, ...] = ()
    """What in it has no effect here, or is not as the format wants it."""

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, trusted: bool = False, sandbox: Sandbox | None = None) -> Skill:
        """The skill in a folder, or of a `SKILL.md`, with everything beside it.

        `trusted` says that its text is as good as your own. `sandbox` is what its scripts may reach; its folder is
        always there, read-only. Raises `ConfigurationError` with the file, the line and the fix.
        """
        folder = _find_folder(path)
        return cls.from_files(_read_files(folder), str(folder), trusted=trusted, sandbox=sandbox)

    @classmethod
    def from_files(
        cls, files: Mapping[str, bytes], path: str, *, trusted: bool = False, sandbox: Sandbox | None = None
    ) -> Skill:
        """The skill of a folder that has been read: its files by their paths in it. `path` is only for messages."""
        where = f"{path}/{SKILL_FILE}"
        data = files.get(SKILL_FILE)
        if data is None:
            raise FileFormatError(path, None, f"there is no {SKILL_FILE} in it")
        if len(data) > _MOST_TEXT:
            raise FileFormatError(
                where,
                None,
                f"it has {len(data):,} bytes, at most {_MOST_TEXT:,} are read; move parts into files beside it",
            )
        if sandbox is not None and (not isinstance(sandbox, Sandbox) or "none" in sandbox.by):
            raise ConfigurationError(f"{where}: its scripts need a Sandbox without by='none', not {sandbox!r:.80}")
        found = read_front_matter(decode_text(data, where), where)
        fields = Fields(found, where)
        name = _read_name(fields)
        description = fields.text("description", required=True)
        compatibility = fields.text("compatibility")
        given = fields.names("allowed-tools", separators=", \t\n")
        tools = None if given is None else translate_tools(given, "allowed-tools")
        license_name, metadata = fields.text("license"), fields.table("metadata")
        if not found.body.strip():
            raise FileFormatError(
                where, found.body_line, "there are no instructions below the front matter; write them"
            )
        for_model = not fields.is_set("disable-model-invocation")
        remarks = [
            *([] if for_model else ["it says disable-model-invocation: no model is told of it"]),
            *_remark_on_form(name, description, compatibility, path),
            *fields.list_others(_ELSEWHERE),
            *(tools.remarks if tools is not None else ()),
            *_remark_on_text(found.body, found.body_line),
        ]
        return cls(
            name=name,
            description=description,
            instructions=found.body,
            files=dict(files),
            path=path,
            trusted=trusted,
            allowed_tools=None if tools is None else tools.names,
            sandbox=sandbox,
            for_model=for_model,
            license=license_name,
            compatibility=compatibility,
            metadata=metadata,
            digest=digest_files(files),
            remarks=tuple(remarks),
        )

    @property
    def origin(self) -> str:
        """What its text is called where untrusted sources are named."""
        return f"skill {self.name}"

    @property
    def line(self) -> str:
        """What the model knows of it before it reads it: at most 100 tokens."""
        return cut_to_tokens(f"- {self.name}: {self.description}", LINE_TOKENS)

    @property
    def scripts(self) -> tuple[str, ...]:
        """Its programs: what lies in `scripts/` and is of a kind that can be run."""
        return tuple(name for name in self.files if name.startswith("scripts/") and program_of(name) is not None)

    def trusting(self, *, trusted: bool) -> Skill:
        """The same skill, trusted or not."""
        return replace(self, trusted=trusted)

    def __repr__(self) -> str:
        return f"<Skill {self.name} {self.digest[:19]}{' trusted' if self.trusted else ''}>"


def cut_to_tokens(text: str, limit: int) -> str:
    """The beginning of a text, within a limit of tokens."""
    if text_tokens(text) <= limit:
        return text
    least, most = 0, min(len(text), 16 * limit)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if text_tokens(f"{text[:middle]}…") <= limit else (least, middle - 1)
    return f"{text[:least].rstrip()}…"


def program_of(name: str) -> str | None:
    """The program that runs a script, by the end of its name; None for any other file."""
    return _PROGRAMS.get(Path(name).suffix)


def digest_files(files: Mapping[str, bytes]) -> str:
    """One digest over all names and bytes; it changes when anything does."""
    whole = sha256(b"glidepath skill 1\n")
    for name in sorted(files):
        for part in (os.fsencode(name), files[name]):
            whole.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{whole.hexdigest()}"


def find_skill_folders(folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The folders of skills in a folder: itself if it has a SKILL.md, else those directly in it that have one.

    Raises `ConfigurationError` where there is none, and for one that is a link to somewhere else.
    """
    place = Path(folder)
    if (place / SKILL_FILE).is_file():
        return (place,)
    try:
        entries = sorted(place.iterdir())
    except OSError as error:
        raise ConfigurationError(f"skills: {str(place)!r} cannot be read: {error.strerror or error}") from None
    found = tuple(entry for entry in entries if (entry / SKILL_FILE).is_file())
    if not found:
        raise ConfigurationError(f"skills: there is no {SKILL_FILE} in {str(place)!r} or in a folder in it")
    return found


def read_skills(folder: str | os.PathLike[str], *, trusted: bool = False) -> tuple[Skill, ...]:
    """All skills of a folder; raises `ConfigurationError` for the first that cannot be used."""
    place = Path(folder)
    skills = []
    for found in find_skill_folders(place):
        if found != place:
            refuse_link(found, place)
        skills.append(Skill.read(found, trusted=trusted))
    return tuple(skills)


def refuse_link(found: Path, folder: Path) -> None:
    """Raise `FileFormatError` for a skill in a folder that is a link to somewhere else."""
    if found.is_symlink() and not found.resolve().is_relative_to(folder.resolve()):
        raise FileFormatError(str(found), None, f"it is a link that leads out of {folder}; name what it leads to")


def collect_skills(given: Iterable[object]) -> tuple[Skill, ...]:
    """What was passed as `skills`: skills, and folders of them. Raises `ConfigurationError`, also for a name twice."""
    skills: list[Skill] = []
    for item in given:
        if isinstance(item, Skill):
            skills.append(item)
        elif isinstance(item, str | os.PathLike):
            skills += read_skills(item)
        else:
            raise ConfigurationError(f"skills takes Skill objects and folders, not {item!r:.100}")
    return refuse_clashes(skills)


def refuse_clashes(skills: Iterable[Skill]) -> tuple[Skill, ...]:
    """The skills, each once; raises `ConfigurationError` when two of them have a name."""
    known: dict[str, Skill] = {}
    for skill in skills:
        other = known.setdefault(skill.name, skill)
        if other.digest != skill.digest or other.path != skill.path:
            raise ConfigurationError(
                f"two skills are named {skill.name!r}: {other.path} and {skill.path}; rename one, or leave it out"
            )
    return tuple(known.values())


# --- reading a folder -----------------------------------------------------------------------------------------------


def _find_folder(path: str | os.PathLike[str]) -> Path:
    try:
        place = Path(path)
        folder = (place.parent if place.name == SKILL_FILE else place).resolve(strict=True)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"skill {str(path)!r:.200} cannot be read: {error}") from None
    if not folder.is_dir():
        raise ConfigurationError(f"skill {str(path)!r:.200}: name a folder with a {SKILL_FILE}, or that file")
    return folder


def _read_files(folder: Path) -> dict[str, bytes]:
    """Everything in the folder; raises `FileFormatError` for links that lead out, and for what is too large."""
    files: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    left = _MOST_IN_ALL
    for number, name in enumerate(list_files_below(folder, "", unread)):
        if number >= _MOST_FILES:
            raise FileFormatError(
                str(folder), None, f"it has more than {_MOST_FILES:,} files; keep what the skill needs"
            )
        if (sign := find_invisible(name)) is not None:
            raise FileFormatError(
                str(folder), None, f"the name {name!a:.100} has the sign U+{ord(sign):04X}; rename the file"
            )
        data = _read_file(folder, name)
        if data is None:
            continue
        left -= len(data)
        if left < 0:
            raise FileFormatError(
                str(folder), None, f"it has more than {_MOST_IN_ALL:,} bytes; keep what the skill needs"
            )
        files[name] = data
    for name, why in unread.items():
        raise FileFormatError(f"{folder}/{name}", None, f"{why}; keep the skill flat and readable")
    return dict(sorted(files.items()))


def _read_file(folder: Path, name: str) -> bytes | None:
    path = folder / name
    try:
        if path.is_symlink():
            lead = path.resolve(strict=True)
            if not lead.is_relative_to(folder):
                raise FileFormatError(str(path), None, f"it is a link out of the skill, to {lead}; copy the file")
            if lead.is_dir():
                raise FileFormatError(
                    str(path), None, f"it is a link to the folder {lead}, which may be a circle; copy it"
                )
        data = read_regular_file(path, _MOST_FILE)
    except (OSError, RuntimeError) as error:  # RuntimeError: how older Pythons report links in a circle
        why = getattr(error, "strerror", None) or error
        raise FileFormatError(str(path), None, f"it cannot be read: {why}; remove it") from None
    if data is not None and len(data) > _MOST_FILE:
        raise FileFormatError(str(path), None, f"it has more than {_MOST_FILE:,} bytes; keep what the skill needs")
    return data


# --- one SKILL.md ---------------------------------------------------------------------------------------------------


def _read_name(fields: Fields) -> str:
    name = fields.text("name", required=True)
    if len(name) > _MOST_NAME:
        raise fields.fault("name", f"it has {len(name)} characters, at most {_MOST_NAME} are allowed; shorten it")
    if _NAME.fullmatch(name) is None:
        close = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        raise fields.fault(
            "name",
            f"{name!r} must be lowercase letters a-z, digits and single hyphens{f'; write {close}' if close else ''}",
        )
    return name


def _remark_on_form(name: str, description: str, compatibility: str, path: str) -> list[str]:
    """What the format forbids and no harm comes from."""
    found = []
    if path and Path(path).name != name:
        found.append(f"the folder is named {Path(path).name!r}, not {name!r} as the skill")
    if len(description) > _MOST_DESCRIPTION:
        found.append(f"the description has {len(description):,} characters, more than {_MOST_DESCRIPTION:,}")
    if len(compatibility) > _MOST_COMPATIBILITY:
        found.append(f"compatibility has {len(compatibility):,} characters, more than {_MOST_COMPATIBILITY}")
    return found


def _remark_on_text(text: str, first_line: int) -> list[str]:
    """What other agents do with the text of a skill and we do not; and what a person cannot see in it."""
    found = []
    for number, row in enumerate(text.split("\n"), first_line):
        if (form := name_inline_command(row)) is not None:
            found.append(f"line {number}: {form} is not run, the model reads it as it is")
        if (variable := _ARGUMENTS.search(row) or VARIABLE.search(row)) is not None:
            found.append(f"line {number}: {variable[0]} is not filled in, the model reads it as it is")
        if (sign := find_invisible(row)) is not None and sign != "\ufeff":
            found.append(f"line {number}: it has the invisible character U+{ord(sign):04X}")
    return found
