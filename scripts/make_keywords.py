"""Write agent/keywords.py: the keywords of `Agent(...)` as a type, made from the fields of `LoopConfig`.

An editor completes `Agent(` from it and a type checker knows each value. A test compares the file with this script.

python scripts/make_keywords.py
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "glidepath"
TARGET = PACKAGE / "agent" / "keywords.py"
APART = (
    "model",
    "output_type",
    "deps_type",
)  # one is required, the others decide the types of the result and of `deps`
WIDER = {  # what may be written, where that is more than what is kept
    "tools": "Iterable[Tool | ToolSource | Callable[..., Any]]",
    "tool_sources": "Iterable[ToolSource]",
    "constraints": "Iterable[ResourceConstraint | str]",
    "plugins": "Iterable[Plugin | str]",
    "fallback_models": "Iterable[Model | str]",
    "stop_sequences": "Iterable[str]",
    "store": "SessionStore | None",
    "default_execution_mode": "ExecutionMode",
}
HEAD = '''"""The keywords of `Agent(...)`, as a type for editors and type checkers. Made by scripts/make_keywords.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Required, TypedDict

from glidepath.agent.config import ExecutionMode
from glidepath.agent.limits import Budget, Limits
from glidepath.events import Event
from glidepath.guards import GuardrailsConfig, MaxTokensRecovery
from glidepath.run import CancelToken, Decision, Inherit
from glidepath.sessions import Session
from glidepath.spi import Model, Plugin, ProtocolPolicy, ResourceConstraint, RunInfo, SessionStore, TokenEstimator
from glidepath.texts import Texts
from glidepath.tools import Tool, ToolContext
from glidepath.tools.sources import ToolSource

__all__ = ["AgentChanges", "AgentKeywords", "ResumeKeywords", "RunKeywords"]


class _Rest(TypedDict, total=False):
    """Every setting but the model and the types of the output and of `deps`."""

'''


def fields() -> dict[str, str]:
    """Every setting with the type it is annotated with."""
    tree = ast.parse((PACKAGE / "agent" / "config.py").read_text(encoding="utf-8"))
    (config,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "LoopConfig"]
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in config.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _keywords(name: str, method: str, sync: str) -> list[str]:
    """The keywords of a method of `Agent`, for its twin without an event loop."""
    tree = ast.parse((PACKAGE / "agent" / "agent.py").read_text(encoding="utf-8"))
    (agent,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Agent"]
    (found,) = [node for node in agent.body if isinstance(node, ast.AsyncFunctionDef) and node.name == method]
    head = ["", "", f"class {name}(TypedDict, total=False):", f'    """What `{sync}` takes, as `{method}` does."""', ""]
    return head + [
        f"    {one.arg}: {ast.unparse(one.annotation).replace('DepsT | None', 'Any')}" for one in found.args.kwonlyargs
    ]


def text() -> str:
    """The whole file."""
    lines = [f"    {name}: {WIDER.get(name, kind)}" for name, kind in fields().items() if name not in APART]
    tail = [
        "",
        "",
        "class AgentChanges(_Rest, total=False):",
        '    """What `agent.replace(...)` takes: any setting but `output_type`."""',
        "",
        "    model: Model | str",
        "",
        "",
        "class AgentKeywords(_Rest, total=False):",
        '    """What `Agent(...)` takes: the settings, of which only the model is needed."""',
        "",
        "    model: Required[Model | str]",
        *_keywords("RunKeywords", "run", "run_sync"),
        *_keywords("ResumeKeywords", "resume", "resume_sync"),
    ]
    return HEAD + "\n".join([*lines, *tail]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
