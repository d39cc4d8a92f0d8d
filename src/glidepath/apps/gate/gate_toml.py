"""`gate.toml`: upstreams, limits, keys, tenants, users, models and prices of a gate that runs for long.

[upstreams.claude]
dialect = "anthropic"
url = "https://api.anthropic.com"
mode = "swap"
key = "env:ANTHROPIC_API_KEY"

[limits]                # of each run
max_cost = "2.00"
max_calls = 200

[keys.ann]              # beside those of `glidepath keys`
key = "file:/etc/glidepath/ann.key"
max_cost = "20"
per = "day"

[windows.max]           # of a subscription
per = "5h"
max_tokens = "2m"

[users.bob]
window = "max"
share = 0.25
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from glidepath._wire import Value
from glidepath.agent import Limits
from glidepath.apps.gate.bodies import MIB
from glidepath.apps.gate.lines import BudgetTerms
from glidepath.apps.gate.recordings.recording_terms import RecordingTerms
from glidepath.apps.gate.upstreams import KeyReference, Upstream
from glidepath.apps.server.locks import AccessKey
from glidepath.apps.server.locks.keys import check_key_name, digest_of
from glidepath.values import PERIODS, ConfigurationError, close_to, parse_int, parse_seconds, share_of

LARGEST = MIB  # bytes of a gate.toml
_LIMITS = {"max_tokens": "max_tokens", "max_cost": "max_cost", "max_calls": "max_iterations", "timeout": "timeout"}
_FAMILY = {"max_agents": "max_descendants", "max_depth": "max_depth"}
_SPOKEN = {"max_budget_usd": "max_cost", "budget": "max_cost", "max_turns": "max_calls", "max_iterations": "max_calls"}
"""What a limit is called elsewhere."""
_SECTIONS = ("gate", "upstreams", "limits", "windows", "keys", "tenants", "users", "prices")
_HOLDERS = ("keys", "tenants", "users")
_GATE = (
    *("max_body", "body_timeout", "drain", "observe", "models", "allowed_hosts"),
    *("record", "record_max", "record_for"),
)
_UPSTREAM = tuple(name for name in Upstream.__struct_fields__ if name != "name")
_WINDOW = ("max_tokens", "per")
_BUDGET = ("max_tokens", "max_cost", "per", "window", "share")
_KEY = ("key", "digest", "tenant", "models", *_BUDGET)
_DIGEST = 64  # hexadecimal characters


class GateConfig(Value, frozen=True, kw_only=True):
    """What a `gate.toml` says, checked."""

    upstreams: tuple[Upstream, ...]
    limits: Limits
    keys: tuple[AccessKey, ...] = ()
    tenants: Mapping[str, BudgetTerms] = {}
    users: Mapping[str, BudgetTerms] = {}
    windows: Mapping[str, BudgetTerms] = {}
    """What the wallet of this name is a share of: nobody who has one uses more of it than there is."""
    models: tuple[str, ...] = ()
    prices: Mapping[str, Any] = {}
    allowed_hosts: tuple[str, ...] = ()
    observe: bool = False
    max_body: int = 32 * MIB
    body_timeout: float = 60.0
    drain: float = 30.0
    record: RecordingTerms | None = None
    """What limits the recordings; None records nothing."""


def load_config(path: Path, environ: Mapping[str, str]) -> GateConfig:
    """Read a `gate.toml`; raises `ConfigurationError` that names file, key and fix."""
    try:
        found = tomllib.loads(_read_file(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    try:
        return read_config(found, environ, path.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def read_config(found: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> GateConfig:
    """The configuration in the data of a file; paths in it are below `folder`."""
    _check_names("", found, _SECTIONS)
    gate = _section(found, "gate")
    _check_names("gate.", gate, _GATE)
    upstreams = tuple([_read_upstream(name, said, folder) for name, said in _tables(found, "upstreams")])
    if not upstreams:
        raise ConfigurationError(
            'there is no upstream: add [upstreams.NAME] with dialect, url, mode and, for swap, key = "env:..."'
        )
    windows = {name: _read_window(name, said) for name, said in _tables(found, "windows")}
    keys = tuple([_read_key(name, said, environ, folder, windows) for name, said in _tables(found, "keys")])
    return GateConfig(
        upstreams=upstreams,
        limits=_read_limits("limits.", _section(found, "limits"), {**_LIMITS, **_FAMILY}),
        keys=keys,
        tenants={name: _read_terms("tenants", name, said, windows) for name, said in _tables(found, "tenants")},
        users={name: _read_terms("users", name, said, windows) for name, said in _tables(found, "users")},
        windows=_find_windows(found, windows),
        models=_read_words("gate.models", gate.get("models", [])),
        prices=_read_prices(_section(found, "prices")),
        allowed_hosts=_read_words("gate.allowed_hosts", gate.get("allowed_hosts", [])),
        observe=_read_value("gate.observe", gate.get("observe", False), bool),
        max_body=_read_size("gate.max_body", gate.get("max_body", 32 * MIB)),
        body_timeout=_read_seconds("gate.body_timeout", gate.get("body_timeout", 60.0)),
        drain=_read_seconds("gate.drain", gate.get("drain", 30.0)),
        record=_read_recording(gate),
    )


def _read_recording(gate: Mapping[str, Any]) -> RecordingTerms | None:
    """Whether calls are recorded; sizes and ages without `record = true` would be mistaken for it."""
    usual = RecordingTerms()
    terms = RecordingTerms(
        largest=_read_size("gate.record_max", gate.get("record_max", usual.largest)),
        oldest=_read_seconds("gate.record_for", gate.get("record_for", usual.oldest)),
    )
    if _read_value("gate.record", gate.get("record", False), bool):
        return terms
    given = next((name for name in ("record_max", "record_for") if name in gate), None)
    if given is not None:
        raise ConfigurationError(f"gate.{given} needs record = true: without it nothing is recorded")
    return None


def _read_file(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise ConfigurationError(f"{path} is not a file")
        if os.name != "nt" and about.st_mode & 0o022:
            raise ConfigurationError(
                f"{path} can be written by others, who could send your keys elsewhere: run chmod go-w {path}"
            )
        if about.st_size > LARGEST:
            raise ConfigurationError(f"{path} has {about.st_size} bytes; a gate.toml has at most {LARGEST}")
        return os.read(file, LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    finally:
        os.close(file)


def _read_upstream(name: str, said: Mapping[str, Any], folder: Path) -> Upstream:
    place = f"upstreams.{name}."
    _check_names(place, said, _UPSTREAM)
    missing = next((field for field in ("dialect", "url") if field not in said), None)
    if missing is not None:
        raise ConfigurationError(f"{place}{missing} is missing")
    fields = dict(said)
    for field in ("ca_file", "client_cert", "client_key"):
        if field in fields:
            fields[field] = str(folder / Path(_read_value(place + field, fields[field], str)).expanduser())
    for field in ("connect_timeout", "first_byte_timeout", "idle_timeout"):
        if field in fields:
            fields[field] = _read_seconds(place + field, fields[field])
    for field in ("dialect", "url", "mode", "key", "auth"):
        if field in fields:
            _read_value(place + field, fields[field], str)
    if str(fields.get("key", "")).startswith("file:"):
        fields["key"] = _place_key(fields["key"], folder)
    return Upstream(name, **fields)


def _place_key(reference: str, folder: Path) -> str:
    return f"file:{folder / Path(reference.removeprefix('file:')).expanduser()}"


def _read_key(
    name: str,
    said: Mapping[str, Any],
    environ: Mapping[str, str],
    folder: Path,
    windows: Mapping[str, BudgetTerms],
) -> AccessKey:
    place = f"keys.{name}."
    check_key_name("key", name)
    _check_names(place, said, _KEY)
    digest, reference = said.get("digest"), said.get("key")
    if (digest is None) == (reference is None):
        raise ConfigurationError(f'{place}key: give either key = "env:NAME" or "file:PATH", or digest = SHA-256')
    if reference is not None:
        kind, _, rest = _read_value(f"{place}key", reference, str).partition(":")
        if kind not in ("env", "file") or not rest:
            raise ConfigurationError(f"{place}key must be a reference, not the key itself: env:NAME or file:PATH")
        known = Upstream(
            name, "openai", "https://key.invalid", key=_place_key(reference, folder) if kind == "file" else reference
        )
        secret = KeyReference(known, environ).read() or ""
        if len(secret) < 16:  # noqa: PLR2004 - as every token
            raise ConfigurationError(f"{place}key: {reference} is too short to be safe: use at least 16 characters")
        digest = digest_of(secret)
    if len(str(digest)) != _DIGEST or not all(one in "0123456789abcdef" for one in str(digest)):
        raise ConfigurationError(f"{place}digest must be a SHA-256 in 64 hexadecimal digits")
    terms = _read_terms("keys", name, {field: value for field, value in said.items() if field in _BUDGET}, windows)
    cost = terms.limits.max_cost
    tenant = said.get("tenant")
    return AccessKey(
        name=name,
        digest=str(digest),
        role="run",
        tenant=None if tenant is None else check_key_name("tenant", _read_value(f"{place}tenant", tenant, str)),
        max_cost=None if cost is None else str(cost),
        max_tokens=terms.limits.max_tokens,
        per=terms.per,
        models=_read_words(f"{place}models", said.get("models", [])),
    )


def _read_window(name: str, said: Mapping[str, Any]) -> BudgetTerms:
    """A window of a subscription: tokens for each period."""
    place = f"windows.{name}."
    check_key_name("window", name)
    _check_names(place, said, _WINDOW)
    missing = next((field for field in _WINDOW if field not in said), None)
    if missing is not None:
        raise ConfigurationError(f"{place}{missing} is missing")
    limits = _read_limits(place, {"max_tokens": said["max_tokens"]}, _LIMITS)
    return BudgetTerms(f"window:{name}", limits, _read_period(place, said["per"]))


def _find_windows(found: Mapping[str, Any], windows: Mapping[str, BudgetTerms]) -> Mapping[str, BudgetTerms]:
    """The window of each wallet that is a share of one; the sections are checked already."""
    shares = [(section, name, said) for section in _HOLDERS for name, said in _tables(found, section)]
    return {_name_wallet(section, name): windows[said["window"]] for section, name, said in shares if "window" in said}


def _name_wallet(section: str, name: str) -> str:
    return f"{section.removesuffix('s')}:{name}"


def _read_period(place: str, per: object) -> str | None:
    if per is not None and per not in PERIODS:
        raise ConfigurationError(f"{place}per must be one of {', '.join(PERIODS)}, not {per!r:.60}")
    return per


def _read_terms(section: str, name: str, said: Mapping[str, Any], windows: Mapping[str, BudgetTerms]) -> BudgetTerms:
    place = f"{section}.{name}."
    check_key_name(section.removesuffix("s"), name)
    _check_names(place, said, _BUDGET)
    said = _resolve_share(place, said, windows)
    per = _read_period(place, said.get("per"))
    limits = _read_limits(place, {key: value for key, value in said.items() if key != "per"}, _LIMITS)
    if per is not None and limits.max_tokens is None and limits.max_cost is None:
        raise ConfigurationError(f"{place}per needs a budget: give max_cost or max_tokens as well")
    return BudgetTerms(_name_wallet(section, name), limits, per)


def _resolve_share(place: str, said: Mapping[str, Any], windows: Mapping[str, BudgetTerms]) -> Mapping[str, Any]:
    """The same budget in tokens: a share of a window is a part of its tokens, in its periods."""
    if "window" not in said and "share" not in said:
        return said
    for field in ("window", "share"):
        if field not in said:
            raise ConfigurationError(f"{place}{field} is missing: a share of a window needs both window and share")
    for field in ("max_tokens", "per"):
        if field in said:
            raise ConfigurationError(f"{place}{field} comes from the window: leave out {field}, or window and share")
    name, share = _read_value(f"{place}window", said["window"], str), said["share"]
    window = windows.get(name)
    if window is None:
        meant = close_to(name, tuple(windows))
        known = f"there are {', '.join(windows)}" if windows else f"add [windows.{name}] with per and max_tokens"
        raise ConfigurationError(
            f"{place}window: there is no window {name!r:.60}; {f'did you mean {meant!r}?' if meant else known}"
        )
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ConfigurationError(f"{place}share must be a part of the window, above 0 and at most 1, not {share!r:.60}")
    tokens = share_of(window.limits.max_tokens or 0, Decimal(repr(share)))
    if tokens < 1:
        raise ConfigurationError(f"{place}share: {share} of the window's tokens is less than one token")
    rest = {field: value for field, value in said.items() if field not in ("window", "share")}
    return {**rest, "max_tokens": tokens, "per": window.per}


def _read_limits(place: str, said: Mapping[str, Any], names: Mapping[str, str]) -> Limits:
    _check_names(place, said, tuple(names))
    try:
        return Limits(**{names[key]: value for key, value in said.items()})
    except ConfigurationError as error:
        text = str(error)
        for ours, theirs in names.items():
            text = text.replace(f"Limits.{theirs}", f"{place}{ours}")
        raise ConfigurationError(text) from None
    except TypeError as error:
        raise ConfigurationError(f"{place.rstrip('.')}: {error}") from None


def _read_prices(said: Mapping[str, Any]) -> Mapping[str, Any]:
    from glidepath.agent import check_prices

    prices = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    check_prices(prices)
    return prices


def _check_names(place: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in said:
        if name in known:
            continue
        other = _SPOKEN.get(name)
        meant = other if other in known else close_to(name, known)
        hint = f"did you mean {place}{meant}?" if meant else f"there are {', '.join(known)}"
        raise ConfigurationError(f"there is no key {place}{name}; {hint}")


def _section(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    said = found.get(name, {})
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"{name} must be a table: write [{name}] above its keys")
    return said


def _tables(found: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    said = _section(found, name)
    for key, value in said.items():
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{name}.{key} must be a table: write [{name}.{key}] above its keys")
    return list(said.items())


def _read_value(place: str, value: object, kind: type) -> Any:
    if type(value) is not kind:
        wanted = {"str": "a text in quotes", "bool": "true or false"}.get(kind.__name__, kind.__name__)
        raise ConfigurationError(f"{place} must be {wanted}, not {value!r:.60}")
    return value


def _read_words(place: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigurationError(f'{place} must be a list of texts, such as ["claude-*"], not {value!r:.60}')
    return tuple(value)


def _read_number(place: str, value: object, read: Callable[[object], object], words: str) -> float:
    number = read(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < 2**40:
        raise ConfigurationError(f"{place} must be {words}, not {value!r:.60}")
    return number


def _read_seconds(place: str, value: object) -> float:
    return float(_read_number(place, value, parse_seconds, "a time such as 30, 90s or 5m"))


def _read_size(place: str, value: object) -> int:
    return int(_read_number(place, value, parse_int, "a number of bytes, such as 33554432 or 32m"))
