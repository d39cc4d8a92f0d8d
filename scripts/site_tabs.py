"""Two tabs for a program of the pages: with a real model, to be copied, and the form that the tests run.

The first is made from the second: the scripted model becomes a model string, and what only the script needed goes. A
program that stays scripted all the same, because it shows faults or a clock, keeps its one form.
"""

import ast
import textwrap

MODEL = '"anthropic:claude-sonnet-4-5"'
SCRIPTS = frozenset({"ScriptedModel"})
FAKES = frozenset({"Turn", "VirtualClock", "call", "fail", "fly", "hang", "say", "truncated"})
"""Names of the fakes and of helpers for them, which pages import once for all their programs."""
TESTING = "glidepath.testing"


def with_tabs(text: str) -> str:
    """The page with tabs for every program that has a form with a real model."""
    done: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].startswith("```python"):
            done.append(lines[at])
            at += 1
            continue
        end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("```")), len(lines) - 1)
        real = real_form("\n".join(lines[at + 1 : end]))
        block = lines[at : end + 1]
        at = end + 1
        if real is None:
            done += block
            continue
        if at < len(lines) and ".output" in lines[at] and lines[at].startswith("```"):
            close = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("```")), len(lines) - 1)
            block += ["", *lines[at : close + 1]]
            at = close + 1
        done += ["", '=== "With a model"', "", indented(["```python", *real.split("\n"), "```"])]
        done += ["", '=== "As tested"', "", indented(block), ""]
    return "\n".join(done)


def indented(lines: list[str]) -> str:
    """Lines of a tab."""
    return textwrap.indent("\n".join(lines), "    ")


def real_form(code: str) -> str | None:
    """The program with a model string instead of each scripted model; None where it would not be the same program."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    cuts = [(node, MODEL) for node in ast.walk(tree) if is_script(node)]
    cuts = [
        (node, text) for node, text in cuts if not any(node is not other and holds(other, node) for other, _ in cuts)
    ]
    if not cuts:
        return None
    lines = code.split("\n")
    scripts = {one.id for node, _ in cuts for one in ast.walk(node) if isinstance(one, ast.Name)}
    for node, text in sorted(cuts, key=lambda cut: (cut[0].lineno, cut[0].col_offset), reverse=True):
        replace_node(lines, node, text)
    return without_leftovers("\n".join(lines), scripts)


def is_script(node: ast.AST) -> bool:
    """Is this `ScriptedModel(...)`, perhaps with `.forever(...)` behind it?"""
    while isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Name):
            return node.id in SCRIPTS
        node = node.value if isinstance(node, ast.Attribute) else node
    return False


def holds(outer: ast.AST, inner: ast.AST) -> bool:
    """Is one node inside the other?"""
    return any(one is inner for one in ast.walk(outer))


def replace_node(lines: list[str], node: ast.AST, text: str) -> None:
    """Put a text where a node stands."""
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    head = lines[first].encode()[: node.col_offset].decode()  # type: ignore[attr-defined]
    tail = lines[last].encode()[node.end_col_offset :].decode()  # type: ignore[attr-defined]
    lines[first : last + 1] = [head + text + tail]


def without_leftovers(code: str, scripts: set[str]) -> str | None:
    """Without imports, functions and prices that only the script used; None if something of the script is left."""
    while True:
        tree = ast.parse(code)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        lines = code.split("\n")
        drop = next((one for one in tree.body if is_leftover(one, used, scripts)), None)
        price = next((one for one in ast.walk(tree) if is_price(one)), None)
        if drop is not None:
            keep_import(lines, drop, used) if isinstance(drop, ast.ImportFrom) else remove(lines, drop)
        elif price is not None:
            if not lines[price.lineno - 1].lstrip().startswith("prices=") or price.end_lineno != price.lineno:
                return None
            del lines[price.lineno - 1]
        else:
            break
        code = "\n".join(lines)
    if used & FAKES:
        return None
    left = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and (one.module or "").startswith(TESTING)]
    return None if left else tidy(code)


def is_leftover(node: ast.AST, used: set[str], scripts: set[str]) -> bool:
    """An import from the fakes that nothing uses, or a function that only the script called."""
    if isinstance(node, ast.ImportFrom):
        return node.module == TESTING and any((one.asname or one.name) not in used for one in node.names)
    return isinstance(node, ast.FunctionDef) and node.name in scripts - used


def is_price(node: ast.AST) -> bool:
    """The price of a scripted model: a real one has its own."""
    return isinstance(node, ast.keyword) and node.arg == "prices" and "scripted" in ast.unparse(node.value)


def keep_import(lines: list[str], node: ast.ImportFrom, used: set[str]) -> None:
    """Import only what is used."""
    names = ", ".join(one.name for one in node.names if (one.asname or one.name) in used)
    lines[node.lineno - 1 : node.end_lineno] = [f"from {node.module} import {names}"] if names else []


def remove(lines: list[str], node: ast.AST) -> None:
    """Take a statement out, with the empty lines behind it."""
    first, last = node.lineno - 1, node.end_lineno  # type: ignore[attr-defined]
    while last < len(lines) and not lines[last].strip():
        last += 1
    del lines[first:last]


def tidy(code: str) -> str | None:
    """At most one empty line, none at the ends; None where it is no program any more."""
    lines: list[str] = []
    for line in code.strip("\n").split("\n"):
        if line.strip() or (lines and lines[-1].strip()):
            lines.append(line.rstrip())
    text = "\n".join(lines)
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text
