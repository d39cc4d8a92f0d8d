"""Write the proofs into docs/guarantees.md: every test whose name carries the number of a guarantee.

python scripts/make_guarantees.py
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
BEGIN = "<!-- proofs of G{number}: written by scripts/make_guarantees.py -->"
END = "<!-- end of proofs -->"
COUNT = 19
NAME = re.compile(r"test_((?:g\d+_)+)\w+")


def proofs() -> dict[int, list[tuple[str, str]]]:
    """For each guarantee its tests: the file's path and the test's name, sorted."""
    found: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            match = NAME.match(node.name)
            for number in re.findall(r"\d+", match[1]) if match else ():
                found[int(number)].add((file.relative_to(ROOT).as_posix(), node.name))
    return {number: sorted(tests) for number, tests in found.items()}


def section(number: int, tests: list[tuple[str, str]]) -> str:
    """What stands between the marks: one line for a file, its tests below."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for file, name in tests:
        by_file[file].append(name)
    lines = [BEGIN.format(number=number)]
    for file, names in by_file.items():
        shown = ",\n  ".join(f"`{name}`" for name in names)
        lines.append(f"- [{file.removeprefix('tests/')}](../{file}):\n  {shown}")
    return "\n".join([*lines, END])


def updated(page: str) -> str:
    """The page with the proofs as they are now."""
    found = proofs()
    for number in range(1, COUNT + 1):
        begin = BEGIN.format(number=number)
        if page.count(begin) != 1:
            raise SystemExit(f"{PAGE.name} needs exactly one line {begin}")
        head, _, rest = page.partition(begin)
        page = head + section(number, found.get(number, [])) + rest.partition(END)[2]
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
