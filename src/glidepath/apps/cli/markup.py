"""An answer in Markdown, block by block while it is written: what is closed is laid out once and never again.

`Blocks` cuts the text into blocks of bounded size, `render_block` lays one of them out. A long code block or list is
cut into pieces, so that the work is in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

_FENCE = re.compile(r" {0,12}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(\s|$)")
_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")
_CELLS = re.compile(r"(?<!\\)\|")
_CODE_LINES, _ITEMS, _LINES, _ROWS = 60, 30, 60, 30
_PARAGRAPH = 8_000  # characters of a paragraph that is still read as Markdown
_GAP, _LEAST = 3, 3  # between two columns of a table, and the width of the narrowest
_THEME = "ansi_dark"


class MarkupBlock(NamedTuple):
    """A piece of an answer. `kind` is text, code, list or table; `more` is true for one that continues the last one.

    Of a long table every piece has its `head`, the first two lines, and the `columns`: how wide they would like to be.
    """

    kind: str
    text: str
    language: str = ""
    more: bool = False
    head: str = ""
    columns: tuple[int, ...] = ()


class Blocks:
    """Takes text as it comes, and gives each block back when it is closed. `open` is the one being written."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._fence = ""
        self._indent = 0
        self._language = ""
        self._kind = ""
        self._items = 0
        self._more = False
        self._blank = False
        self._head = ""
        self._columns: tuple[int, ...] = ()

    @property
    def open(self) -> MarkupBlock | None:
        """The unfinished block, if any."""
        lines = [*self._lines, *([self._partial] if self._partial else [])]
        if not lines and not self._fence:
            return None
        kind = "code" if self._fence else self._kind or "text"
        return MarkupBlock(kind, "\n".join(lines), self._language if self._fence else "", self._more)

    def feed(self, text: str) -> list[MarkupBlock]:
        """The blocks that this text closes."""
        closed: list[MarkupBlock] = []
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            closed += self._take_line(line)
        return closed

    def end(self) -> list[MarkupBlock]:
        """What is left when the answer is complete."""
        line, self._partial = self._partial, ""
        closed = self._take_line(line) if line else []
        closed += self._close()
        self._fence = self._language = ""
        return closed

    # --- one line ---------------------------------------------------------------------------------------------------

    def _take_line(self, line: str) -> list[MarkupBlock]:
        if self._fence:
            return self._take_code_line(line)
        found = _FENCE.match(line)
        if found is not None:
            closed = self._close()
            self._fence, self._language, self._more = found[1], found[2], False
            self._indent = len(line) - len(line.lstrip())
            return closed
        if self._kind == "list":
            return self._take_list_line(line)
        if not line.strip():
            return self._close()
        if not self._lines:
            self._begin(line)
        elif self._kind == "text" and (_ITEM.match(line) or line.startswith("#")):
            return [*self._close(), *self._take_line(line)]
        closed = []
        if len(self._lines) >= (_ROWS if self._kind == "table" else _LINES):
            kind = self._kind
            self._measure() if kind == "table" and not self._more else None
            closed = self._close(more=True)
            self._kind = kind
        self._lines.append(line)
        return [*closed, *(self._close() if line.startswith("#") and self._kind == "text" else [])]

    def _begin(self, line: str) -> None:
        self._kind = "list" if _ITEM.match(line) else "table" if line.lstrip().startswith("|") else "text"
        self._items = int(self._kind == "list")

    def _measure(self) -> None:
        """A table is longer than one piece: its first rows say how wide the columns are in all of it."""
        first, rule, *rows = self._lines
        if _RULE.fullmatch(rule.strip()) is None:
            return  # not a table after all
        table = [_split_cells(line) for line in (first, *rows)]
        self._head = f"{first}\n{rule}"
        self._columns = tuple(
            max([_LEAST, *[cell_len(row[column]) for row in table if column < len(row)]])
            for column in range(len(table[0]))
        )

    def _take_code_line(self, line: str) -> list[MarkupBlock]:
        bare = line.strip()
        if bare and set(bare) == {self._fence[0]} and len(bare) >= len(self._fence):
            closed = self._close()
            self._fence = self._language = ""
            self._more = False
            return closed
        cut = min(self._indent, len(line) - len(line.lstrip(" ")))
        self._lines.append(line[cut:])
        return self._close(more=True) if len(self._lines) >= _CODE_LINES else []

    def _take_list_line(self, line: str) -> list[MarkupBlock]:
        if not line.strip():
            self._blank = True
            return []
        top = _ITEM.match(line) is not None
        if self._blank and not top and not line.startswith((" ", "\t")):
            return [*self._close(), *self._take_line(line)]
        closed = []
        if (top and self._items >= _ITEMS) or len(self._lines) >= _LINES:
            closed = self._close(more=True)
            self._kind = "list"
        if self._blank and self._lines:
            self._lines.append("")
        self._blank = False
        self._items += top
        self._lines.append(line)
        return closed

    def _close(self, *, more: bool = False) -> list[MarkupBlock]:
        lines, self._lines, self._blank = self._lines, [], False
        kind = "code" if self._fence else self._kind
        was, self._more = self._more, more
        self._kind, self._items = "", 0
        head, columns = self._head, self._columns
        if not more:
            self._head, self._columns = "", ()
        if not lines:
            return []
        language = self._language if self._fence else ""
        return [MarkupBlock(kind or "text", "\n".join(lines), language, was, head, columns)]


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELLS.split(line.strip().removeprefix("|").removesuffix("|"))]


# --- how it looks -------------------------------------------------------------------------------------------------


class _Title(Heading):
    """A heading at the left margin, in bold: the usual one of the library is a box in the middle."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class _Page(Markdown):
    elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "heading_open": _Title}


class _PieceOfTable(TableElement):
    """Rows of a long table: every piece has the same columns, only the first one has a header."""

    columns: ClassVar[tuple[int, ...]] = ()
    first: ClassVar[bool] = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=SIMPLE, pad_edge=False, show_edge=False, show_header=self.first, collapse_padding=True)
        heads = self.header.row.cells if self.header is not None and self.header.row is not None else []
        for head, width in zip(heads, _fit_columns(self.columns, options.max_width), strict=False):
            head.content.stylize("markdown.table.header")
            table.add_column(head.content, width=width)
        for row in self.body.rows if self.body is not None else []:
            table.add_row(*[cell.content for cell in row.cells])
        yield table


def _fit_columns(columns: Sequence[int], room: int) -> list[int]:
    """These widths, the widest ones smaller until they fit."""
    left = max(room - _GAP * len(columns), _LEAST * len(columns))
    fitted: dict[int, int] = {}
    for place in sorted(range(len(columns)), key=columns.__getitem__):
        fitted[place] = min(columns[place], left // (len(columns) - len(fitted)))
        left -= fitted[place]
    return [fitted[place] for place in range(len(columns))]


def _piece_of_table(block: MarkupBlock) -> RenderableType:
    page = _Page(f"{block.head}\n{block.text}" if block.more else block.text, code_theme=_THEME, hyperlinks=False)
    kind = type("_Piece", (_PieceOfTable,), {"columns": block.columns, "first": not block.more})
    page.elements = {**page.elements, "table_open": kind}  # type: ignore[misc]
    return page


def plain(block: MarkupBlock) -> Text:
    """An unfinished block, as plain text."""
    return Text(block.text)


class _Trimmed:
    """Without the empty rows around it: the space between blocks is added elsewhere."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner
        self._made: tuple[int, list[list[Segment]]] | None = None  # it is asked for its height, and then drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._made is None or self._made[0] != options.max_width:
            self._made = options.max_width, self._rows(console, options)
        for row in self._made[1]:
            yield from row
            yield Segment.line()

    def _rows(self, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
        rows = console.render_lines(self._inner, options, pad=False)
        full = [bool("".join(part.text for part in row).strip()) for row in rows]
        first = full.index(True) if True in full else 0
        last = len(full) - full[::-1].index(True) if True in full else len(rows)
        return rows[first:last]


def render_block(block: MarkupBlock) -> Any:
    """A closed block, laid out."""
    if block.kind == "code":
        text = Syntax("", block.language or "text", theme=_THEME, background_color="default").highlight(block.text)
        text.rstrip()
        return text
    if block.kind == "table" and block.columns:
        return _Trimmed(_piece_of_table(block))
    if block.kind == "table" and (block.more or block.text.count("\n") >= _ROWS - 1):  # too long for a guess
        return Text(block.text)
    if block.kind == "text" and len(block.text) > _PARAGRAPH:  # not prose, and slow to parse
        return Text(block.text)
    return _Trimmed(_Page(block.text, code_theme=_THEME, hyperlinks=False))
