"""Keeps a long conversation as quick as a short one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rich.console import Group
from rich.text import Text
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from glidepath.apps.cli.file_changes import color_rows
from glidepath.apps.cli.markup import Blocks, render_block
from glidepath.apps.cli.status import strip_control_characters


class LogEntry(Static):
    """A text in the log, which can be drawn while it is hidden."""

    kept: Region | None = None
    """Its place when it was hidden: Textual forgets it."""

    @property
    def region(self) -> Region:
        """Its place, now or when it was hidden."""
        return super().region if self.kept is None else self.kept


class OldMessages(Widget):
    """Everything above the last few messages, as one widget.

    Textual looks at every displayed widget whenever it lays anything out, so a reply would cost more the longer the
    conversation is. The old ones are hidden here; they keep their size, and draw their rows when a person scrolls up.
    When the width changes, they are shown, laid out, and hidden again.
    """

    DEFAULT_CSS = "OldMessages { height: auto; display: none; }"
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._hidden: list[Widget] = []
        self._parts: list[LogEntry] = []
        self._tops: list[int] = []
        self._height = 0
        self._width = 0

    def take(self, widgets: Sequence[Widget]) -> None:
        """Hide these and draw them from now on. They follow what is already here and must not change any more."""
        taken: list[Widget] = []
        for widget in widgets:
            width, height = widget.virtual_region.size
            if not width or not height or (self._height and width != self._width):
                break  # not laid out yet
            top = widget.virtual_region.y
            for part in (widget, *widget.query_children(LogEntry)):
                if isinstance(part, LogEntry):
                    place = part.virtual_region
                    part.kept = place.reset_offset
                    self._parts.append(part)
                    self._tops.append(top if part is widget else top + place.y)
            self._width, self._height = width, top + height
            taken.append(widget)
        if not taken:
            return
        self._hidden += taken
        with self.app.batch_update():
            for widget in taken:
                widget.display = False
            self.styles.margin = (0, 0, taken[-1].styles.margin.bottom, 0)
            self.display = True
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        """The rows of the hidden widgets; for another width they are laid out again soon."""
        if self._height and width != self._width:
            self._width = width
            self.call_later(self._lay_out_again)
        return self._height

    def render_line(self, y: int) -> Strip:
        """A row of the widget that is there, or an empty one between two of them."""
        row, style = Strip.blank(0), self.visual_style.rich_style
        place = bisect_right(self._tops, y) - 1
        if place >= 0:
            part, within = self._parts[place], y - self._tops[place]
            if within < part.region.height:
                [row] = part.render_lines(Region(0, within, part.region.width, 1))
        return row.adjust_cell_length(self.size.width, style)

    def _lay_out_again(self) -> None:
        for part in self._parts:
            part.kept = None
        hidden, self._hidden, self._parts, self._tops, self._height = self._hidden, [], [], [], 0
        with self.app.batch_update():
            self.display = False
            for widget in hidden:
                widget.display = True
        self.call_after_refresh(self.take, hidden)


class StatusLine(Widget):
    """One line. To change it does not lay the log out again, which takes the longer the more is in it."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._text = Text()

    def show(self, text: Text) -> None:
        """Draw it if it is another one."""
        if text != self._text:
            self._text = text
            self.refresh()

    def render(self) -> Text:
        """The text of the moment."""
        return self._text


def answer_entries(line: str, said: str, answer: str) -> list[LogEntry]:
    """What the log shows for a command: a diff in colors; the last `answer` of a resumed conversation as Markdown."""
    if line.startswith("/diff"):
        return [LogEntry(diff_text(said.split("\n")), classes="note", markup=False)]
    head, found, tail = said.partition(f"\n{answer}") if answer and line.startswith("/resume") else (said, "", "")
    entries = [LogEntry(Text(strip_control_characters(head)), classes="note", markup=False)]
    if found:
        blocks = Blocks()
        rows = [render_block(block) for block in [*blocks.feed(f"{answer}\n"), *blocks.end()]]
        spaced = [part for row in rows for part in (Text(""), row)][1:]
        entries.append(LogEntry(Group(*spaced), classes="answer", markup=False))
    if tail.strip():
        entries.append(LogEntry(Text(strip_control_characters(tail.strip("\n"))), classes="note", markup=False))
    return entries


def diff_text(rows: Sequence[str]) -> Text:
    """Rows of a diff: added ones green, removed ones red."""
    text = Text()
    for number, (row, color) in enumerate(color_rows(rows)):
        text.append(("\n" if number else "") + strip_control_characters(row), style=color)
    return text
