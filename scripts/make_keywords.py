"""Write what must be static text about settings, from their declarations in LoopConfig, Limits and GuardrailsConfig.

- agent/keywords.pyi: the keywords of `Agent(...)` as a type, so that an editor completes it and a checker knows it
- agent/setters.pyi: the methods of `AgentBuilder`, which `agent/setters.py` makes, for the same reason
- apps/cli/setting_rows.py: the rows of files, variables, flags and schema, for a command line that starts quickly
- the tables of docs/configuration.md

A test compares the files with this script.

python scripts/make_keywords.py
"""

import ast
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glidepath"
PAGE = ROOT / "docs" / "configuration.md"
LONGEST = 92  # characters of a text that stay on one line
APART = ("model", "output_type", "deps_type")  # one is required, the others are type parameters of `Agent`
OWNERS = {
    "LoopConfig": "agent/config.py",
    "Limits": "agent/limits.py",
    "GuardrailsConfig": "guards/guardrails_config.py",
}
KEYWORDS = '''"""The keywords of `Agent(...)`, as a type for editors and checkers. Made by scripts/make_keywords.py."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from os import PathLike
from typing import Any, Required, TypedDict

from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Limits
from glidepath.agent.skills import AgentFile, Skill
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.guards.approvals import Rules
from glidepath.models import HostedTool
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    OutputContext,
    Plugin,
    PromptContext,
    ProtocolPolicy,
    ResourceConstraint,
    ResourceContext,
    RunInfo,
    SessionStore,
    StopGuard,
    TokenEstimator,
)
from glidepath.texts import Texts
from glidepath.tools import Tool
from glidepath.tools.sources import ToolSource

__all__ = ["AgentChanges", "AgentKeywords", "AgentSettings", "LimitKeywords"]


class _Rest(TypedDict, total=False):
    """Every setting but the model and the types of the output and of `deps`."""

'''
SETTERS = '''"""Every setting as a method of a builder. Made by scripts/make_keywords.py from the declarations."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from os import PathLike
from typing import Any, Self

from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Limits
from glidepath.agent.skills import AgentFile, Skill
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.guards.approvals import Rules
from glidepath.models import HostedTool
from glidepath.spi import (
    CallGuard,
    ContextStrategy,
    Model,
    OutputContext,
    Plugin,
    PromptContext,
    ProtocolPolicy,
    ResourceConstraint,
    ResourceContext,
    RunInfo,
    SessionStore,
    StopGuard,
    TokenEstimator,
)
from glidepath.texts import Texts
from glidepath.tools import Tool
from glidepath.tools.sources import ToolSource

__all__ = ["Setters"]


class Setters:
    """One method for every setting. Each takes effect on this object and returns it."""

    _values: dict[str, Any]
    _parts: dict[str, dict[str, Any]]
    def _set(self, field: str, value: object) -> Self: ...
    def _add(self, field: str, value: object) -> Self: ...
'''
ROWS = '''"""The agent's settings as a file, a variable or a flag has them. Made by scripts/make_keywords.py."""

from __future__ import annotations

from glidepath.values.setting import Setting

ROWS = (
'''


def declarations(owner):
    """Every field of a class with its type as it is written, and its setting."""
    from glidepath import GuardrailsConfig, Limits, LoopConfig
    from glidepath.values import settings_of

    kinds = {"LoopConfig": LoopConfig, "Limits": Limits, "GuardrailsConfig": GuardrailsConfig}
    tree = ast.parse((PACKAGE / OWNERS[owner]).read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    settings = settings_of(kinds[owner])
    for node in found.body:
        if isinstance(node, ast.AnnAssign):
            given = {one.arg: ast.unparse(one.value) for one in node.value.keywords}
            kind = ast.unparse(node.annotation).strip("'")
            yield node.target.id, kind, settings[node.target.id], given.get("default")


def given(kind, one):
    """The type of what a setting takes: also "50k" for a number, and "5m" or a timedelta for seconds."""
    wider = one.wider or ("Decimal | str | float" if kind == "Fraction" else kind)
    plain = one.kind.removesuffix("?")
    if plain in ("int", "count"):
        return wider.replace("int", "int | str", 1)
    return wider.replace("float", "float | str | timedelta", 1) if plain == "seconds" else wider


def keywords():
    lines = [
        f"    {name}: {given(kind, one)}" for name, kind, one, _ in declarations("LoopConfig") if name not in APART
    ]
    tail = [
        "",
        "",
        "class AgentChanges(_Rest, total=False):",
        '    """What `agent.replace(...)` takes: any setting but `output_type`."""',
        "",
        "    model: Model | str",
        "",
        "",
        "class AgentSettings(_Rest, total=False):",
        '    """What `Agent(model, ...)` takes beside its model."""',
        "",
        "",
        "class AgentKeywords(_Rest, total=False):",
        '    """What `Agent(...)` takes: the settings, of which only the model is needed."""',
        "",
        "    model: Required[Model | str]",
        "",
        "",
        "class LimitKeywords(TypedDict, total=False):",
        '    """What `Limits(...)` takes."""',
        "",
        *[f"    {name}: {given(kind, one)}" for name, kind, one, _ in declarations("Limits")],
    ]
    return KEYWORDS + "\n".join([*lines, *tail]) + "\n"


def setters():
    from glidepath.values import describe_setting

    lines = []
    for owner in OWNERS:
        for name, kind, one, _ in declarations(owner):
            value = f"value: {given(kind, one)}" + (" = ..." if one.kind == "bool" else "")
            lines += [f"    def {name}(self, {value}) -> Self:", f'        """{describe_setting(one)}"""']
    return SETTERS + "\n".join(lines) + "\n"


def rows():
    from glidepath.values import Setting

    lines, only = [], []
    shown = ("kind", "help", "flag", "seed", "choices", "metavar", "default", "zero_is_off", "in_file", "found")
    for owner in ("Limits", "GuardrailsConfig", "LoopConfig"):
        for _, _, one, _ in declarations(owner):
            if one.python_only:
                only.append(f'    "{one.python}": "{one.python_only}",')
                continue
            known = Setting._field_defaults
            given = [
                f"{name}={literal(getattr(one, name))}" for name in shown if getattr(one, name) != known.get(name, "")
            ]
            lines.append(f"    Setting({', '.join(given)}, key={literal(one.key)}, python={literal(one.python)}),")
    tail = [")", "PYTHON_ONLY: dict[str, str] = {", *only, "}", '"""What a file cannot have, and why."""']
    return ROWS + "\n".join([*lines, *tail]) + "\n"


def literal(value):
    """A value as Python has it; a long text in pieces, so that no line is long."""
    if isinstance(value, tuple):
        return f"({', '.join([literal(one) for one in value])}{',' if len(value) == 1 else ''})"
    if not isinstance(value, str):
        return repr(value)
    pieces = textwrap.wrap(value, LONGEST, drop_whitespace=False, break_on_hyphens=False) or [""]
    return json.dumps(value) if len(pieces) == 1 else f"({' '.join(map(json.dumps, pieces))})"


def table(owner):
    lines = ["| field | default | meaning |", "|---|---|---|"]
    for name, _, one, default in declarations(owner):
        text = (one.in_python or one.help).replace("|", "\\|")
        value = "required" if default is None else f"`{default.replace('_', '') if default[0].isdigit() else default}`"
        lines.append(f"| `{name}` | {value} | {text}{f'; see {one.see}' if one.see else ''} |")
    return "\n".join(lines)


def page():
    text = PAGE.read_text(encoding="utf-8")
    for owner in OWNERS:
        pattern = rf"(## {owner}\n(?:(?!\| field).*\n)*)(?:\|.*\n)+"
        text = re.sub(pattern, lambda found, owner=owner: found[1] + table(owner) + "\n", text, count=1)
    return text


FILES = {
    PACKAGE / "agent" / "keywords.pyi": keywords,
    PACKAGE / "agent" / "setters.pyi": setters,
    PACKAGE / "apps" / "cli" / "setting_rows.py": rows,
    PAGE: page,
}


def texts():
    """What belongs into each file; Python as ruff leaves it, without the imports that nothing needs."""
    made = {path: make() for path, make in FILES.items()}
    return {path: tidy(path, text) if path.suffix in (".py", ".pyi") else text for path, text in made.items()}


def tidy(path, text):
    for command in (["check", "--fix", "--quiet", "--exit-zero", "--select", "F401,I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
