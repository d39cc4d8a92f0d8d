"""Renders the table of settings: as the JSON Schema of a file, and as the reference in the documentation."""

from __future__ import annotations

from typing import Any

from glidepath.agent import Limits, LoopConfig
from glidepath.apps.cli.setting_rows import PYTHON_ONLY
from glidepath.apps.cli.settings import SECTIONS, SETTINGS, variable_name_of
from glidepath.guards import GuardrailsConfig
from glidepath.values import Setting, format_seconds

_HOMES: dict[str, Any] = {"LoopConfig": LoopConfig, "Limits": Limits, "GuardrailsConfig": GuardrailsConfig}
_OFF: dict[str, Any] = {"enum": ["off", "none", None]}
_SHORT = r"^[0-9][0-9_,.]*[kKmM]?$"
_TIME = r"^\s*([0-9.]+h)?([0-9.]+m)?([0-9.]+s?)?\s*$"
_FIGURE = r"^\$?[0-9.]+$"
_PRICE: dict[str, Any] = {"type": ["number", "string"]}
_RECOVERY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_attempts": {"type": "integer", "minimum": 1},
        "scaling": {"type": "string", "pattern": "^(double|linear:[0-9]+|fixed:[0-9, ]+)$"},
        "ceiling": {"type": "integer", "minimum": 1},
    },
}


def defaults() -> dict[str, Any]:
    """The Python default of every setting that has one, by key."""
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        group, _, field = setting.python.partition(".")
        if not group:
            continue
        kind = _HOMES[group]
        known = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
        if field in known:
            found[setting.key] = getattr(known[field], "factory", lambda value=known[field]: value)()
    return found


def json_schema() -> dict[str, Any]:
    """JSON Schema of a configuration file, older keys included."""
    root: dict[str, Any] = {"$schema": {"type": "string"}}
    inner: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for setting in SETTINGS:
        if not setting.in_file:
            continue
        section, _, name = setting.key.rpartition(".")
        (inner[section] if section else root)[name] = _describe_setting(setting)
        if setting.seed and setting.seed != setting.key:
            older = _describe_setting(setting, zero=True)
            older["description"] = f"the older name of {setting.key}; 0 is off"
            older["deprecated"] = True
            root[setting.seed] = older
    for section in SECTIONS:
        root[section] = {"type": "object", "additionalProperties": False, "properties": inner[section]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "glidepath configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": root,
    }


def _describe_setting(setting: Setting, *, zero: bool = False) -> dict[str, Any]:
    kind = setting.kind.rstrip("?")
    least = 0 if zero or setting.zero_is_off else 1
    above = {"minimum": 0} if zero else {"exclusiveMinimum": 0}
    forms: dict[str, dict[str, Any]] = {
        "int": _describe_number(_SHORT, "integer", minimum=least),
        "count": _describe_number(_SHORT, "integer", minimum=0),
        "money": _describe_number(_FIGURE, **above),
        "fraction": _describe_number(_FIGURE, minimum=0, exclusiveMaximum=1),
        "number": _describe_number(_FIGURE, minimum=0),
        "seconds": _describe_number(_TIME, **above),
        "text": {"type": "string"},
        "bool": {"type": "boolean"},
        "choice": {"enum": list(setting.choices)},
        "names": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True},
        "table": {"type": "object"},
        "prices": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": _PRICE, "minItems": 2, "maxItems": 4},
        },
        "recovery": _RECOVERY,
    }
    made = forms[kind]
    if setting.kind.endswith("?"):
        made = {"anyOf": [*made.get("anyOf", [made]), _OFF]}
    return {**made, "description": setting.help}


def _describe_number(pattern: str, kind: str = "number", /, **bounds: int) -> dict[str, Any]:
    """A number within bounds, or its text."""
    return {"anyOf": [{"type": kind, **bounds}, {"type": "string", "pattern": pattern}]}


def markdown_table() -> str:
    """Every setting in a row: file key, older key, flag, variable, Python name, what it does."""
    rows = ["| file key | older key | flag | variable | Python | meaning |", "|---|---|---|---|---|---|"]
    for setting in SETTINGS:
        older = setting.seed if setting.seed != setting.key else "same" if setting.seed else ""
        cells = (
            f"`{setting.key}`" if setting.in_file else "not in a file",
            f"`{older}`" if older not in ("", "same") else older,
            f"`{setting.flag}`" if setting.flag else "",
            f"`{variable_name_of(setting)}`",
            f"`{setting.python}`" if setting.python else "",
            setting.help.replace("<", "&lt;") + _words(setting),
        )
        rows.append("| " + " | ".join(cells) + " |")
    rows += [f"| | | | | `{name}` | {why} |" for name, why in PYTHON_ONLY.items()]
    return "\n".join(rows)


def _words(setting: Setting) -> str:
    words = f": {', '.join(f'`{word}`' for word in setting.choices)}" if setting.choices else ""
    if setting.default is None or setting.default is True:
        return words
    shown = ", ".join(setting.default) if isinstance(setting.default, tuple) else setting.default
    shown = format_seconds(shown) if isinstance(shown, float) else shown
    return f"{words}; the command line's default is {shown}"
