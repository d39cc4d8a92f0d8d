"""Shows an answer in the chat while it is written."""

from __future__ import annotations

import time
from itertools import accumulate, takewhile
from typing import Any

from rich.console import Group
from rich.text import Text
from textual.containers import Vertical
from textual.timer import Timer

from glidepath.apps.cli.chat.old_messages import LogEntry
from glidepath.apps.cli.markup import Blocks, MarkupBlock, plain, render_block
from glidepath.apps.cli.readable import replace_control_characters

_SOONEST = 0.05
_LATEST = 1.0
_SHARE = 5  # drawing takes at most a fifth of the time
_AT_ONCE, _LETTERS = 2, 600  # blocks laid out in one go, or small ones of this many characters: keys come in between
_LEAST = 20  # what a block counts, however short
_PASSAGE, _BLOCK = 6_000, 50  # characters of one widget, and what each of its blocks counts in addition: every widget
# of the log costs time whenever something is drawn, and so does every block of the last one


class ChatReply(Vertical):
    """Markdown that grows. A block that is closed is laid out once; the one being written is shown as plain text.

    However fast the text comes, it is drawn at most twenty times a second, and never for more than a fifth of the time.
    Blocks of text share a widget, so that a long conversation stays quick.
    """

    DEFAULT_CSS = """
    ChatReply { height: auto; margin: 0 0 1 0; }
    ChatReply > Static { height: auto; margin: 0; }
    ChatReply > .apart { margin: 1 0 0 0; }
    ChatReply > .code { border-left: thick $panel; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__(classes="model")
        self.text = ""
        """The whole text so far."""
        self._written = Blocks()
        self._finished: list[MarkupBlock] = []
        self._growing: LogEntry | None = None
        self._passage: LogEntry | None = None
        self._rows: list[Any] = []
        self._room = 0
        self._placed = 0
        self._spent = 0.0
        self._beat: Timer | None = None

    def write(self, text: str) -> None:
        """Add text."""
        shown = replace_control_characters(text)
        self.text += shown
        self._finished += self._written.feed(shown)
        self._show_soon()

    def end(self) -> None:
        """The answer is complete."""
        self._finished += self._written.end()
        self._show_soon()

    @property
    def complete(self) -> bool:
        """True when all that came is on the screen."""
        return self._beat is None and not self._finished

    def _show_soon(self) -> None:
        if self._beat is None and self.is_attached:
            self._beat = self.set_timer(min(_LATEST, max(_SOONEST, _SHARE * self._spent)), self._show_more)

    def on_mount(self) -> None:
        """Draw text that came before the widget was mounted."""
        self._show_soon()

    def _show_more(self) -> None:
        self._beat = None
        began = time.perf_counter()
        many = self._count_blocks_to_lay_out()
        new = [widget for block in self._finished[:many] for widget in self._place(block)]
        del self._finished[:many]
        left = None if self._finished else self._written.open
        if left is None:
            if self._growing is not None:
                self._growing.remove()
                self._growing = None
            self.mount(*new)
        else:
            if self._growing is None:
                self._growing = LogEntry("", markup=False)
                self.mount(*new, self._growing)
            elif new:
                self.mount(*new, before=self._growing)
            self._growing.set_classes(self._looks_of(left))
            self._growing.update(plain(left) if left.text else Text(" "))
        self._spent = time.perf_counter() - began
        self.call_after_refresh(self._count_drawing_time, began)
        if self._finished:
            self._show_soon()

    def _count_blocks_to_lay_out(self) -> int:
        """How many blocks to lay out now: a reply of many short ones must not lag behind what is already there."""
        sizes = accumulate(_LEAST + len(block.text) for block in self._finished)
        return max(_AT_ONCE, sum(1 for _ in takewhile(lambda size: size <= _LETTERS, sizes)))

    def _count_drawing_time(self, began: float) -> None:
        """The screen shows it: what that took counts as well."""
        self._spent = time.perf_counter() - began

    def _place(self, block: MarkupBlock) -> list[LogEntry]:
        """The widget that this block begins; None if it joins the one before it."""
        laid_out = render_block(block)
        if block.kind != "code" and self._passage is not None and len(block.text) <= self._room:
            self._rows += [laid_out] if block.more else [Text(""), laid_out]
            self._room -= _BLOCK + len(block.text)
            self._passage.update(Group(*self._rows))
            return []
        widget = LogEntry(laid_out, classes=" ".join(self._looks_of(block)), markup=False)
        self._passage = None if block.kind == "code" else widget
        self._rows, self._room = [laid_out], _PASSAGE - len(block.text)
        self._placed += 1
        return [widget]

    def _looks_of(self, block: MarkupBlock) -> list[str]:
        apart = ["apart"] if self._placed and not block.more else []
        return [*apart, *(["code"] if block.kind == "code" else [])]
