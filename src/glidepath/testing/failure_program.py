"""How a failure says its functions in the program that repeats it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from glidepath._wire import Value


class Named(Value, frozen=True):
    """What a program calls a function: by its own name, imported, or by the name of the parameter it was given as."""

    name: str
    line: str = ""
    """How it is imported; empty where only its maker has it."""


def name_in_program(function: object, otherwise: str) -> Named:
    """How a program names a function."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "") or ""
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else ""
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return Named(otherwise)
    if name.isidentifier():
        return Named(name, f"from {module} import {name}\n")
    kind, _, method = name.partition(".")
    # A method of an object without any state, as of a test class: the program makes another such object.
    if method.isidentifier() and getattr(getattr(function, "__self__", None), "__dict__", None) == {}:
        return Named(f"{kind}().{method}", f"from {module} import {kind}\n")
    return Named(otherwise)


def write_program(imports: str, functions: Iterable[Named], call: str) -> str:
    """The program: what it imports, what it needs from its maker, and the call."""
    functions = [*functions]
    lines = "".join(dict.fromkeys(one.line for one in functions))
    missing = [one.name for one in functions if not one.line]
    yours = f"# {' and '.join(missing)}: as you have given {'it' if len(missing) == 1 else 'them'}\n" if missing else ""
    return f"{imports}\n{lines}{yours}\n{call}"
