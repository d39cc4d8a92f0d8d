"""The reference of the site where a docstring is not enough: one row for each parameter, typed as a person writes it.

`Agent(...)`, `Limits`, `LoopConfig` and `GuardrailsConfig` declare each setting once (glidepath.values.setting). Their
pages are made from these declarations, as docs/configuration.md is, with types that link to their own entries.
"""

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
DECLARED = ("LoopConfig", "Limits", "GuardrailsConfig")
AGENT = """\
## Agent(...) { #agent-parameters }

What `Agent(...)` takes, by keyword. Only `model` is needed. `agent.replace(...)` takes the same.

"""
LOW = "---\nsearch:\n  boost: 0.02\n---\n"
"""Before a page that a search shall find after the guides."""


@cache
def load_script(name: str) -> ModuleType:
    """Another script as a module."""
    sys.path.insert(0, str(ROOT / "src"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_names(file: Path) -> list[str]:
    """What `__all__` of a module holds; a facade takes it from the module behind it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(getattr(target, "id", "") == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))
        if isinstance(node, ast.ImportFrom) and any(one.name == "__all__" for one in node.names):
            return public_names(source_of(node.module or ""))
    return []


def source_of(module: str) -> Path:
    """The file of a module of ours."""
    place = ROOT / "src" / Path(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def definition(module: str, name: str) -> str:
    """Where a public name is defined, as a path: facades import it from there, some only when it is asked for."""
    file = source_of(module)
    if not file.exists():
        return f"{module}.{name}"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    stars = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glidepath"):
            for one in node.names:
                if (one.asname or one.name) == name:
                    return definition(node.module or "", one.name)
                stars += [node.module or ""] if one.name == "*" else []
    if not any(getattr(node, "name", "") == name for node in tree.body):
        for star in stars:
            if name in public_names(source_of(star)):
                return definition(star, name)
    return f"{module}.{name}"


@cache
def homes() -> dict[str, str]:
    """Every public name with its path, which is the anchor of its entry."""
    found: dict[str, str] = {}
    for module in load_script("make_surface").MODULES:
        for name in public_names(source_of(module)):
            found.setdefault(name, definition(module, name))
    return found


def linked_type(text: str) -> str:
    """A type for a table, each public name in it a link."""
    text = re.sub(r"\bAny\b", "Any", text).replace("|", "\\|")

    def link(match: re.Match[str]) -> str:
        name = match[0]
        return f"[{name}][{homes()[name]}]" if name in homes() else name

    shown = re.sub(r"\b[A-Z]\w+\b", link, text).replace("[[", "&#91;[")
    return f'<code class="type">{shown}</code>'


def parameters(owner: str) -> str:
    """The rows of a declared class: parameter, type, default, meaning."""
    keywords = load_script("make_keywords")
    rows = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for name, kind, one, default in keywords.declarations(owner):
        figure = default.replace("_", "") if default and default[0].isdigit() else default
        shown = "required" if figure is None else f"`{figure}`"
        meaning = re.sub(r"\]\((?!\w+:|\.\./)", "](../", one.in_python or one.help).replace("|", "\\|")
        see = f"; see {one.see.replace('](../README.md', '](../readme.md')}" if one.see else ""
        see = re.sub(r"\]\((?!\.\./|#)", "](../", see)
        see = re.sub(r"\]\(#(\w+)\)", lambda match: f"](../configuration.md#{match[1]})", see)
        rows.append(f"| `{name}` | {linked_type(keywords.given(kind, one))} | {shown} | {meaning}{see} |")
    return "\n".join(rows)


def declared_entry(module: str, name: str) -> str:
    """The entry of a class whose fields are settings."""
    keywords = load_script("make_keywords")
    tree = ast.parse((keywords.PACKAGE / keywords.OWNERS[name]).read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return f"## {name} {{ #{definition(module, name)} }}\n\n{ast.get_docstring(found) or ''}\n\n{parameters(name)}\n"


def entry(module: str, name: str) -> str:
    """The entry of one public name."""
    if name in DECLARED and module == "glidepath":
        return declared_entry(module, name)
    if (module, name) == ("glidepath", "Agent"):
        plain = "    options:\n      merge_init_into_class: false\n      show_signature: false\n"
        hidden = '      filters: ["!^_", "!^__init__$"]\n'
        return f"{AGENT}{parameters('LoopConfig')}\n\n::: {definition(module, name)}\n{plain}{hidden}"
    return f"::: {definition(module, name)}\n"


def module_page(module: str) -> str:
    """The reference of one public module: everything in its `__all__`."""
    file = source_of(module)
    names = public_names(file)
    if not names:
        raise ValueError(f"{file} has no __all__ that can be read")
    about = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    shown = sorted((name for name in names if not name.startswith("__")), key=str.isupper)  # constants last
    members = [entry(module, name) for name in shown]
    return "\n".join([f"{LOW}# {module}\n\n{about}\n", *members])
