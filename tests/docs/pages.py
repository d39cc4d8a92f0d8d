"""The pages of the documentation, their fenced blocks, links and tables."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(.*)$")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
MARK = "\x1e"
SECONDS = 60


@dataclass
class Block:
    """A fenced block: its info string, its text, and the line on which its text begins."""

    info: str
    text: str
    line: int
    output: str | None = field(default=None)

    @property
    def language(self) -> str:
        return self.info.split(" ", 1)[0]


def script(path: Path) -> ModuleType:
    """A program of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page; a `text output` block also stands as the `output` of the python block before it."""
    found: list[Block] = []
    start: tuple[str, int] | None = None
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            start = (fence[1].strip(), number + 1)
            continue
        info, first = start
        block = Block(info, "\n".join(lines[first:number]) + "\n", first + 1)
        if info == "text output":
            assert found, f"{name(path)}:{first}: an output without a block before it"
            assert found[-1].info == "python", f"{name(path)}:{first}: an output of a block that does not run"
            found[-1].output = block.text
        found.append(block)
        start = None
    assert start is None, f"{name(path)}: the block of line {start} is never closed"
    return found


def program(path: Path, *, between: str = "") -> str:
    """The python blocks of a page as one program, whose line numbers are those of the page; empty without any."""
    lines: list[str] = []
    for block in blocks(path):
        if block.info == "python":
            gap = [""] * (block.line - 1 - len(lines))
            if lines:
                gap[-1] = between
            lines += [*gap, *block.text.splitlines()]
    return "\n".join([*lines, ""])


def run_blocks(path: Path, folder: Path) -> tuple[list[Block], list[str]]:
    """Run the python blocks of a page in order, in one namespace and one fresh process; what each of them printed."""
    ready = [block for block in blocks(path) if block.info == "python"]
    script = folder / "page.py"
    script.write_text(program(path, between=f"print({MARK!r}, end='')"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{name(path)}, lines as in the page:\n{done.stderr}"
    return ready, done.stdout.split(MARK)


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    kept, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(path: Path) -> list[str]:
    """The relative targets a page points to."""
    found = LINK.findall(prose(path))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as repository hosts make them."""
    heads = re.findall(r"^#+ +(.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def tables(path: Path) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, the heading first, the ruler left out."""
    found: list[list[list[str]]] = []
    inside = False
    for line in prose(path).splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            found.append([])
            inside = True
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(cells)
    return found


def table(path: Path, *heading: str) -> list[list[str]]:
    """The rows of the only table with this heading."""
    matching = [rows[1:] for rows in tables(path) if rows[0] == list(heading)]
    assert len(matching) == 1, f"{name(path)} has {len(matching)} tables headed {heading}"
    return matching[0]


def code(cell: str) -> str:
    """What a cell shows as code."""
    assert cell.startswith("`"), f"expected code, found {cell!r}"
    assert cell.endswith("`"), f"expected code, found {cell!r}"
    return cell.strip("`")
