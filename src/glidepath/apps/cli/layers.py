"""Where settings come from: flags, the environment, a file, the user's own file, the defaults. The first one wins.

A file found in an untrusted folder can only narrow settings: everything else in it is ignored.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import tomllib
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.folder import CONFIGURATION, MOST_BYTES, Folder, read_folder
from glidepath.apps.cli.setting_values import OFF, read_text, read_value
from glidepath.apps.cli.settings import BY_KEY, BY_SEED, SECTIONS, SETTINGS, makes_agent, variable_name_of
from glidepath.apps.cli.usage_errors import explain_wrong_variable
from glidepath.values import ConfigurationError, Setting, close_to

USER_FILE = "user.toml"
_META = ("$schema",)
_KEYS = ("api_key", "apikey", "api-key")
_ALIKE = 0.75  # a bare key without its section; short words are alike by chance
_FALLBACK = "plain_text_terminal_fallback_tool"
_ZERO_IS_OFF = frozenset({"max_steps", "timeout", "token_budget", "cost_limit"})


class Known(NamedTuple):
    """A value and where it came from."""

    value: Any
    origin: str
    typed: str = ""
    """The text of a flag."""


@dataclass
class LoadedSettings:
    """All settings of one command with their origins.

    `found` is true for a file nobody named, `trusted` when a person trusts its folder. `ignored` has the settings of an
    untrusted file that were ignored.
    """

    known: dict[str, Known]
    file: Path | None
    found: bool = field(kw_only=True)
    trusted: bool = field(default=False, kw_only=True)
    ignored: Mapping[str, Known] = field(default_factory=dict, kw_only=True)
    agent: Any = field(default=None, kw_only=True)
    """The Agent that `--agent` names; the settings then change only what flags say."""
    agent_name: str = field(default="", kw_only=True)

    def copy(self) -> LoadedSettings:
        """The same settings, to be changed for one agent."""
        return dataclasses.replace(self, known=dict(self.known))

    def __getitem__(self, key: str) -> Any:
        return self.known[key].value

    def get(self, key: str) -> Any:
        """The value, or None when it is not set and has no default."""
        return self.known[key].value if key in self.known else None

    def is_set_by_person(self, key: str) -> bool:
        """True when a person set it: not a default, and not a file from an untrusted folder."""
        untrusted = self.file.name if self.file is not None and self.found and not self.trusted else None
        origin = self.origin_of(key)
        return origin != "default" and (untrusted is None or not origin.startswith(untrusted))

    def origin_of(self, key: str) -> str:
        """Where the value comes from."""
        return self.known[key].origin if key in self.known else "default"


def gather(
    options: Namespace, world: CliContext, *, ask: bool = True, only: Collection[str] = BY_KEY
) -> LoadedSettings:
    """The settings of a command; raises `ConfigurationError` naming the file, variable or flag that is wrong.

    If the file needs trust for one of the settings in `only`, a person is asked; without `ask`, or without a
    terminal, one line reports what is ignored.
    """
    file, folder = _find_file(options, world)
    if getattr(options, "agent", None):  # settings do not make it, so they need no trust
        only = [key for key in only if not makes_agent(key)]
    known = {s.key: Known(s.default, "default") for s in SETTINGS if s.default is not None}
    own = None if getattr(options, "no_config", False) else user_file(world.environ)
    mine = {key: value for key, (value, _) in load(own).items()} if own is not None and own.is_file() else {}
    known.update({key: Known(value, f"your {USER_FILE}") for key, value in mine.items()})
    spoken = {**_from_environment(world.environ), **_from_flags(options)}
    trusted = False
    ignored: dict[str, Known] = {}
    if file is not None:
        shown = file.name if folder is not None else str(file)
        listed = load(file, None if folder is None else folder.files[file.name])
        said = {
            key: Known(value, f"{shown} ({place})" if place != key else shown) for key, (value, place) in listed.items()
        }
        if folder is not None:
            from glidepath.apps.cli.trust_prompt import admit

            values = {key: one.value for key, one in said.items()}
            trusted, refused = admit(
                folder, values, world, ask=ask and _wants_text(spoken), only=set(only) - set(spoken), own=mine
            )
            ignored = {key: said.pop(key) for key in refused}
        known.update(said)
    known.update(spoken)
    settings = LoadedSettings(known, file, found=folder is not None, trusted=trusted, ignored=ignored)
    _check(settings)
    return settings


def _wants_text(spoken: Mapping[str, Known]) -> bool:
    """False if JSON is wanted: a program reads that, and it cannot answer questions."""
    return "output_format" not in spoken or spoken["output_format"].value == "text"


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Where a person's own settings are, for every folder; None where nobody has a home."""
    base = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    return Path(base) / "glidepath" / USER_FILE if base else None


# --- a file -----------------------------------------------------------------------------------------------------


def _find_file(options: Namespace, world: CliContext) -> tuple[Path | None, Folder | None]:
    """The file to read; with its folder if it was found there rather than named."""
    if getattr(options, "no_config", False):
        return None, None
    named = getattr(options, "config", None)
    if named == "":
        raise ConfigurationError("--config: the name of the file is empty")
    named = named or world.environ.get("GLIDEPATH_CONFIG")
    if named:
        return world.folder / named, None
    if not any((world.folder / name).exists() for name in CONFIGURATION):
        return None, None
    folder = read_folder(world.folder)
    file = configuration_in(folder)
    return file, None if file is None else folder


def configuration_in(folder: Folder) -> Path | None:
    """The configuration file of a folder; raises `ConfigurationError` for two of them, or one that cannot be read."""
    for name in CONFIGURATION:
        if name in folder.unread:
            raise ConfigurationError(f"{folder.path / name} {folder.unread[name]}")
    here = [folder.path / name for name in CONFIGURATION if name in folder.files]
    if len(here) > 1:
        raise ConfigurationError(
            f"both {CONFIGURATION[0]} and {CONFIGURATION[1]} exist here: remove one, or name one with --config"
        )
    return here[0] if here else None


def load(path: Path, content: bytes | None = None) -> dict[str, tuple[Any, str]]:
    """The settings in a file by key, each with the key it was written under; raises `ConfigurationError`.

    With `content` the file is not read again.
    """
    data = parse_file(path, content)
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if key in SECTIONS:
            if not isinstance(value, Mapping):
                raise ConfigurationError(f"{path.name}: {key}: expected a section, got {value!r:.80}")
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        elif key not in _META:
            flat[key] = value
    found: dict[str, tuple[Any, str]] = {}
    for key, value in flat.items():
        setting = BY_KEY.get(key) if "." not in key or key.partition(".")[0] in data else None
        setting = setting or BY_SEED.get(key)
        if setting is None:
            raise ConfigurationError(f"{path.name}: {_explain_unknown_key(key)}")
        if not setting.in_file:
            raise ConfigurationError(f"{path.name}: {key}: this cannot be set in a file; use {setting.flag}")
        if setting.key in found:
            other = found[setting.key][1]
            raise ConfigurationError(f"{path.name}: {key} and {other} are the same setting: keep one")
        found[setting.key] = (_read(setting, key, value, path.name), key)
    return found


def _read(setting: Setting, key: str, value: object, file: str) -> Any:
    if key in _ZERO_IS_OFF and key in BY_SEED and not isinstance(value, bool) and value == 0:
        return None
    return read_value(setting, value, f"{file}: {key}")


def parse_file(path: Path, content: bytes | None = None, *, number: Callable[[str], Any] = Decimal) -> dict[str, Any]:
    """The content of a TOML or JSON file; raises `ConfigurationError`. `number` converts decimal fractions."""
    try:
        data = content
        if data is None:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)  # never read more, whatever it is
        if len(data) > MOST_BYTES:
            raise ConfigurationError(f"{path}: larger than {MOST_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 at byte {error.start}") from None
    try:
        found = _parse_json(text, number) if path.suffix.lower() == ".json" else tomllib.loads(text, parse_float=number)
    except (ValueError, RecursionError, ArithmeticError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise ConfigurationError(f"{path}: not valid {kind}: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: expected an object with settings, got {type(found).__name__}")
    return found


def _parse_json(text: str, number: Callable[[str], Any]) -> Any:
    text = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else _blank_out(found[0]), text)
    return json.loads(
        text, parse_float=number, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicate_keys
    )


_COMMENT = re.compile(r'"(?:\\.|[^"\\])*+"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
"""A comment, or a string, in which nothing is a comment. Unclosed ones match too, so the scan stays linear."""


def _blank_out(comment: str) -> str:
    """White space of the same shape, so that errors further on name the right line and column."""
    return re.sub(r"[^\n]", " ", comment)


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is given twice")
        found[key] = value
    return found


def _explain_unknown_key(key: str, *, value: str = "") -> str:
    """What to write instead; `value` is what `--set` was given for it."""
    from glidepath.tools import find_closest

    if key.rpartition(".")[2].lower() in _KEYS:
        return f"there is no setting {key!r}: a key belongs in the environment (`glidepath models` says which variable)"
    names = [*BY_KEY, *BY_SEED]
    inner = {name.rpartition(".")[2]: name for name in names}  # a key outside its section
    flags = {s.flag.lstrip("-").replace("-", "_"): s.key for s in SETTINGS if s.flag}
    meant = (
        inner.get(key)
        or flags.get(key.rpartition(".")[2])
        or find_closest(key, names)
        or inner.get(close_to(key, inner, _ALIKE) or "")
    )
    if key.startswith("prices.") and value:
        table = f'prices={{"{key[7:]}": ["3", "15"]}}'
        return f"there is no setting {key!r:.80}; prices are one table, input and output: --set {shlex.quote(table)}"
    if meant and value:
        return f"there is no setting {key!r:.80}; did you mean --set {shlex.quote(meant + value)}?"
    section, _, name = meant.rpartition(".") if meant and "." not in key else ("", "", meant)
    where = f" in [{section}]" if section else ""
    return f"there is no setting {key!r:.80}" + (f"; did you mean {name!r}{where}?" if meant else "")


# --- the environment and the flags --------------------------------------------------------------------------------


def _from_environment(environ: Mapping[str, str]) -> dict[str, Known]:
    names = {variable_name_of(setting): setting for setting in SETTINGS}
    found = {}
    for name, text in environ.items():
        if name in names:
            found[names[name].key] = Known(read_text(names[name], text, name), f"env {name}")
        elif name.startswith("GLIDEPATH_") and (wrong := explain_wrong_variable(name)):
            raise ConfigurationError(wrong)
    return found


def _from_flags(options: Namespace) -> dict[str, Known]:
    found = {}
    for pair in getattr(options, "set", None) or ():
        key, sign, text = pair.partition("=")
        setting = BY_KEY.get(key.strip()) or BY_SEED.get(key.strip())
        if not sign:
            raise ConfigurationError(f"--set {pair}: expected KEY=VALUE, such as limits.max_tokens=200k")
        if setting is None:
            raise ConfigurationError(f"--set {pair}: {_explain_unknown_key(key.strip(), value=f'={text}')}")
        if setting.key in found:
            raise ConfigurationError(f"--set: {setting.key} is given twice")
        found[setting.key] = Known(read_text(setting, text, f"--set {key.strip()}"), "flag --set", text)
    for setting in SETTINGS:
        text = getattr(options, setting.key.replace(".", "_"), None) if setting.flag else None
        if text is None:
            continue
        if setting.key in found:
            raise ConfigurationError(f"{setting.flag} and --set {setting.key} are the same setting: keep one")
        value = text if isinstance(text, bool) else read_text(setting, text, setting.flag)
        found[setting.key] = Known(value, f"flag {setting.flag}", "" if isinstance(text, bool) else str(text))
    return found


# --- settings that contradict each other ----------------------------------------------------------------------------


def _check(settings: LoadedSettings) -> None:
    for key, partner, why in (
        ("limits.grace_iterations", "limits.max_iterations", "a grace needs a turn limit"),
        ("max_output_tokens_recovery", "max_output_tokens", "a larger cap needs one to start from"),
        ("replace_defaults", "constraints", "without the built-in constraints nothing would hold the limits"),
        ("plain_text_terminal_fallback_eager", _FALLBACK, "there is no tool to fall back to"),
        ("plain_text_terminal_fallback_eager_nudge", _FALLBACK, "there is no tool to fall back to"),
    ):
        if settings.get(key) and not settings.get(partner):
            raise ConfigurationError(f"{key} ({settings.origin_of(key)}) has no effect without {partner}: {why}")
    if settings.get("tool_choice") not in (None, "auto", *OFF) and not settings["tools"]:
        raise ConfigurationError(f"tool_choice ({settings.origin_of('tool_choice')}) needs tools, but there are none")
