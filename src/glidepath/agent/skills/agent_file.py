"""Agents from files: who they are, what they are told, and which of the tools they were given they use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from glidepath._wire import Value
from glidepath.agent.skills.front_matter import Fields, FileFormatError, FrontMatter, decode_text, read_front_matter
from glidepath.agent.skills.skill import LINE_TOKENS, cut_to_tokens
from glidepath.agent.skills.tool_names import translate_tools
from glidepath.tools import read_regular_file
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.agent.keywords import AgentChanges

_MOST_BYTES, _MOST_TURNS, _MOST_FILES = 200_000, 10_000, 1_000
_NAME = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_MOST_NAME = 64
_FIELDS = ("description", "prompt", "tools", "disallowed_tools", "model", "max_turns", "max_tokens", "skills")
_ALIASES = ("", "inherit", "sonnet", "opus", "haiku", "default")
_ELSEWHERE = {
    "permissionMode": "approvals are those of the run it works in",
    "mcpServers": "it has the servers of the run it works in; add them there",
    "hooks": "a file runs nothing by itself; write a plugin",
    "memory": "a session is kept in a store",
    "background": "a child works until it is done",
    "isolation": "it works where the run works",
    "effort": "the reasoning is that of the run it works in",
    "initialPrompt": "its task is its first message",
    "color": "nothing is shown in colors",
}


class AgentFile(Value, frozen=True, kw_only=True):
    """An agent from a file, such as `.claude/agents/reviewer.md`: front matter, and below it what the agent is told.

    In `Agent(agents=[...])` it becomes a tool that hands a task to a child of the run, within its budget. With
    `agent(model=..., tools=[...])` it runs by itself. `tools` only narrows what it is given.
    """

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    """The tools it uses, of those it is given; None: all of them."""
    without: tuple[str, ...] = ()
    model: str | None = None
    """A name such as `anthropic:claude-sonnet-4-5`; None: the model of the run it works in."""
    max_turns: int | None = None
    max_tokens: int | None = None
    skills: tuple[str, ...] = ()
    """The skills it may read, of those the agent above it has."""
    path: str = ""
    digest: str = ""
    remarks: tuple[str, ...] = ()
    """What in it has no effect here, and why."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> AgentFile:
        """The agent in a file; raises `ConfigurationError` with the file, the line and the fix."""
        place = Path(path)
        try:
            data = read_regular_file(place, _MOST_BYTES)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"agents: the file {str(path)!r:.200} cannot be read: {error}") from None
        if data is None:
            raise ConfigurationError(f"agents: the file {str(path)!r:.200}: there is no such file")
        return cls.from_bytes(data, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> AgentFile:
        """The agent of a file that has been read."""
        if len(data) > _MOST_BYTES:
            raise FileFormatError(path, None, f"it has more than {_MOST_BYTES:,} bytes; move parts into a skill")
        found = read_front_matter(decode_text(data, path), path)
        fields = Fields(found, path)
        name, turns = fields.text("name", required=True), fields.number("maxTurns", _MOST_TURNS)
        description = fields.text("description", required=True)
        given = {"tools": fields.names("tools"), "disallowedTools": fields.names("disallowedTools")}
        model, skills = fields.text("model"), fields.names("skills")
        notes: tuple[str, ...] = ()
        if model.startswith("python:") or "@" in model or "://" in model:
            why = "a file runs no code and gives no address, so the model is that of the run it works in"
            model, notes = "", (f"model: {model!r:.80} has no effect here: {why}",)
        if not found.body.strip():
            raise FileFormatError(
                path, found.body_line, "there is no text below the front matter; write what it is told"
            )
        rest: dict[str, Any] = {"description": description, "prompt": found.body, "max_turns": turns}
        digest = f"sha256:{sha256(data).hexdigest()}"
        return cls._make(
            fields, given, model, name=name, skills=skills or (), path=path, digest=digest, notes=notes, **rest
        )

    @classmethod
    def from_table(cls, name: str, table: object, where: str) -> AgentFile:
        """The agent of a table, such as `[agents.reviewer]` of a configuration file."""
        path = f"{where}: agents.{name}"
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"{path} must be a table with description and prompt, not {table!r:.80}")
        for key in table:
            if key not in _FIELDS:
                raise ConfigurationError(f"{path} has no key {key!r:.80}; it has {', '.join(_FIELDS)}")
        plain = {key: str(value) if isinstance(value, int) else value for key, value in table.items()}
        fields = Fields(FrontMatter(plain, {}, "", 0), path)
        description, prompt = fields.text("description", required=True), plain.get("prompt", "")
        if not isinstance(prompt, str) or not prompt.strip():
            raise ConfigurationError(f"{path}.prompt is missing: write what it is told")
        given = {"tools": fields.names("tools"), "disallowed_tools": fields.names("disallowed_tools")}
        turns, tokens = fields.number("max_turns", _MOST_TURNS), fields.number("max_tokens", 10**12)
        model, skills = fields.text("model"), fields.names("skills")
        rest: dict[str, Any] = {"description": description, "prompt": prompt, "max_turns": turns, "max_tokens": tokens}
        return cls._make(fields, given, model, name=name, skills=skills or (), path=path, **rest)

    @classmethod
    def _make(
        cls,
        fields: Fields,
        given: Mapping[str, tuple[str, ...] | None],
        model: str,
        *,
        name: str,
        notes: tuple[str, ...] = (),
        **rest: Any,
    ) -> AgentFile:
        if len(name) > _MOST_NAME or _NAME.fullmatch(name) is None:
            raise fields.fault(
                "name", f"{name!r:.80} must be letters a-z, digits, - and _, at most {_MOST_NAME}; write another name"
            )
        (wanted, first), (unwanted, second) = (
            (names, translate_tools(names or (), field)) for field, names in given.items()
        )
        said = [*notes, *first.remarks, *second.remarks, *fields.list_others(_ELSEWHERE)]
        if model.lower() not in _ALIASES and ":" not in model:
            said.append(f"model: {model!r:.80} names no provider, so the model is that of the run it works in")
        elif model.lower() not in ("", "inherit") and ":" not in model:
            said.append(f"model: {model!r} is another maker's short name; the model is that of the run it works in")
        return cls(
            name=name,
            tools=None if wanted is None else first.names,
            without=() if unwanted is None else second.names,
            model=model if ":" in model else None,
            remarks=tuple(said),
            **rest,
        )

    @property
    def line(self) -> str:
        """What a model is told about it: at most 100 tokens."""
        return cut_to_tokens(f"Hand a task to the agent {self.name}. {self.description}", LINE_TOKENS)

    def uses(self, tool_name: str) -> bool:
        """True for a tool that it uses, should it be given it."""
        return tool_name not in self.without and (self.tools is None or tool_name in self.tools)

    def list_missing(self, given: Iterable[str]) -> tuple[str, ...]:
        """The tools that it names and is not given."""
        there = set(given)
        return tuple(name for name in self.tools or () if name not in there)

    def agent(self, **settings: Unpack[AgentChanges]) -> Agent[Any, Any]:
        """The same agent by itself, with these settings: `agent(model="...", tools=[...], limits=Limits(...))`.

        It has the tools of the settings that its file lists. Its `maxTurns` holds beside the limits of the settings.
        """
        from glidepath.agent.agent import Agent
        from glidepath.agent.skills.file_agents import shape_fields

        return Agent(**shape_fields(self, settings))

    def __repr__(self) -> str:
        return f"<AgentFile {self.name}>"


def read_agent_files(folder: str | os.PathLike[str]) -> tuple[AgentFile, ...]:
    """The agents of a folder, or of one file; raises `ConfigurationError` for the first that cannot be used."""
    place = Path(folder)
    if not place.is_dir():
        return (AgentFile.read(place),)
    files = sorted(place.glob("*.md"))
    if not files:
        raise ConfigurationError(f"agents: there is no agent file (*.md) in {str(place)!r}")
    if len(files) > _MOST_FILES:
        raise ConfigurationError(f"agents: {str(place)!r} has more than {_MOST_FILES:,} files")
    for file in files:
        if file.is_symlink() and not file.resolve().is_relative_to(place.resolve()):
            raise FileFormatError(str(file), None, f"it is a link that leads out of {place}; name what it leads to")
    return tuple(AgentFile.read(file) for file in files)


def collect_agents(given: Iterable[object]) -> tuple[AgentFile, ...]:
    """What was passed as `agents`: agent files, paths of them, and folders. Raises `ConfigurationError`."""
    found: list[AgentFile] = []
    for item in given:
        if isinstance(item, AgentFile):
            found.append(item)
        elif isinstance(item, str | os.PathLike):
            found += read_agent_files(item)
        else:
            raise ConfigurationError(f"agents takes AgentFile objects and paths, not {item!r:.100}")
    known: dict[str, AgentFile] = {}
    for one in found:
        other = known.setdefault(one.name, one)
        if other is not one and other != one:
            raise ConfigurationError(
                f"two agents are named {one.name!r}: {other.path} and {one.path}; rename one of them, or leave it out"
            )
    return tuple(known.values())
