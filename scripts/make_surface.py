"""Write the public surface to api/, one file per module, so that no change of it goes unnoticed.

python scripts/make_surface.py           # rewrite api/
python scripts/make_surface.py --check   # exit with 1 when it is not up to date
"""

import argparse
import enum
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from glidepath.values import stability_of

FOLDER = Path(__file__).resolve().parent.parent / "api"
MODULES = (
    "glidepath",
    "glidepath.agent.replay",
    "glidepath.code",
    "glidepath.conformance",
    "glidepath.conformance.specimen_contract",
    "glidepath.conformance.store_contract",
    "glidepath.constraints",
    "glidepath.context",
    "glidepath.engines.dbos",
    "glidepath.errors",
    "glidepath.evals",
    "glidepath.events",
    "glidepath.gate",
    "glidepath.guards",
    "glidepath.mcp",
    "glidepath.mcp.pins",
    "glidepath.messages",
    "glidepath.models",
    "glidepath.models.history",
    "glidepath.observe",
    "glidepath.otel",
    "glidepath.outcome",
    "glidepath.plugins",
    "glidepath.provenance",
    "glidepath.resilience",
    "glidepath.run.question",
    "glidepath.sandbox",
    "glidepath.serve",
    "glidepath.serve.locks",
    "glidepath.sessions",
    "glidepath.sim",
    "glidepath.sim.whatif",
    "glidepath.spi",
    "glidepath.stability",
    "glidepath.teams",
    "glidepath.testing",
    "glidepath.testing.specimens",
    "glidepath.texts",
    "glidepath.tools",
    "glidepath.workspace",
)
"""The modules whose `__all__` is public. Everything else may change at any time."""
LONGEST = 200
SPECIAL = ("__init__", "__call__", "__enter__", "__aenter__", "__aiter__", "__len__")
"""The special methods that are part of a surface when a class defines them itself."""


def shown(value: Any) -> str:
    """A default or constant, without anything that differs from process to process."""
    factory = getattr(value, "factory", None)
    if factory is not None:
        return f"{getattr(factory, '__name__', 'factory')}()"
    if inspect.isroutine(value) or inspect.isclass(value):
        return str(getattr(value, "__qualname__", value))
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def annotation(note: Any) -> str:
    """An annotation as it is written; one that was resolved is shown by its name, without its module."""
    if isinstance(note, str):
        return note
    if inspect.isclass(note):
        return str(note.__qualname__)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", str(note))


def signature(function: Any) -> str:
    """The parameters and the answer of a function."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parts: list[str] = []
    star = False
    for item in found.parameters.values():
        name = {item.VAR_POSITIONAL: "*", item.VAR_KEYWORD: "**"}.get(item.kind, "") + item.name
        star = star or item.kind is item.VAR_POSITIONAL
        if item.kind is item.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        text = name if item.annotation is item.empty else f"{name}: {annotation(item.annotation)}"
        parts.append(text if item.default is item.empty else f"{text} = {shown(item.default)}")
    back = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    return f"({', '.join(parts)}){back}"


def mark(thing: Any) -> str:
    """How firm it is, when it says so."""
    found = stability_of(thing)
    return "" if found is None else f"  # {found.level}"


def fields(kind: Any) -> list[str]:
    """The fields of a value, with type and default."""
    notes: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        notes |= inspect.get_annotations(owner)
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    lines = []
    for name in kind.__struct_fields__:
        default = f" = {shown(defaults[name])}" if name in defaults and "NODEFAULT" not in repr(defaults[name]) else ""
        lines.append(f"    {name}: {annotation(notes[name])}{default}")
    return lines


def members(kind: Any) -> list[str]:
    """The public methods, properties and settings a class defines itself."""
    lines = []
    taken = set(getattr(kind, "__struct_fields__", ()))
    for name, value in sorted(vars(kind).items()):
        if (name.startswith("_") and name not in SPECIAL) or name in taken:
            continue
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if name == "__init__" and taken:
            continue
        if isinstance(value, property):
            lines.append(f"    {name}: property{mark(value.fget)}")
        elif inspect.isfunction(plain):
            lead = "async def" if inspect.iscoroutinefunction(plain) else "def"
            lines.append(f"    {lead} {name}{signature(plain)}{mark(plain)}")
        elif inspect.isclass(value):
            lines.append(f"    class {name}")
        elif not callable(value) and not inspect.isdatadescriptor(value):
            lines.append(f"    {name} = {shown(value)}")
    return lines


def described(name: str, thing: Any) -> list[str]:
    """One exported name."""
    if inspect.isclass(thing):
        bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
        lines = [f"class {name}({bases}){mark(thing)}" if bases else f"class {name}{mark(thing)}"]
        if issubclass(thing, enum.Enum):
            return [*lines, *(f"    {item.name} = {item.value!r}" for item in thing)]
        return [*lines, *(fields(thing) if hasattr(thing, "__struct_fields__") else []), *members(thing)]
    if inspect.isroutine(thing):
        lead = "async def" if inspect.iscoroutinefunction(thing) else "def"
        return [f"{lead} {name}{signature(thing)}{mark(thing)}"]
    if isinstance(thing, str | int | float | tuple | frozenset):
        return [f"{name} = {shown(sorted(thing) if isinstance(thing, frozenset) else thing)}"]
    return [f"{name}: {type(thing).__name__}"]


def dump(module: str) -> str:
    """The surface of a module; of the package itself the names only, which are described where they live."""
    home = importlib.import_module(module)
    lines = [f"# {module}, made by scripts/make_surface.py"]
    for name in sorted(home.__all__):
        thing = getattr(home, name)
        if module == "glidepath":
            lines.append(f"{name}: {getattr(thing, '__module__', type(thing).__name__)}")
        else:
            lines += ["", *described(name, thing)]
    if module == "glidepath":
        for name in ("Agent", "AgentBuilder", "Budget", "CancelToken", "LoopConfig", "Limits"):
            lines += ["", *described(name, getattr(home, name))]
    return "\n".join(lines) + "\n"


def outdated() -> dict[Path, str | None]:
    """What each file that is not up to date should hold; None for one that should not be there."""
    wanted: dict[Path, str | None] = {FOLDER / f"{module}.txt": dump(module) for module in MODULES}
    there = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    changed = {path: text for path, text in wanted.items() if there.get(path) != text}
    return changed | {path: None for path in there if path not in wanted}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is out of date")
    options = parser.parse_args()
    changed = outdated()
    for path, text in changed.items():
        print(f"{path.name} {'is out of date' if options.check else 'written'}")
        if options.check:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(bool(changed) and options.check)


if __name__ == "__main__":
    sys.exit(main())
