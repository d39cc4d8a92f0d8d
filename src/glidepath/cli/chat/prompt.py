"""The line one types into."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events as keys
from textual.message import Message
from textual.widgets import Input

__all__ = ["Prompt"]

_BREAK = "\u23ce"  # stands for the end of a line, so that a paste of many lines fits into one


class Prompt(Input):
    """An input whose line is taken as it is when Enter is pressed, and that keeps every line of a paste."""

    since: float = 0.0
    """Keys from before this moment do not count."""

    def text(self) -> str:
        """What was typed, with its line breaks."""
        return self.value.replace(_BREAK, "\n").strip()

    def put_back(self, texts: Sequence[str]) -> None:
        """What was sent too early stands in the line again, before what is being typed."""
        lines = "\n".join([*texts, *([self.text()] if self.text() else [])])
        self.value = lines.replace("\n", _BREAK)
        self.cursor_position = len(self.value)

    def forget_typed(self) -> str:
        """Empty the line, and take no key that was pressed before now, wherever it is waiting; what stood there."""
        self.since = Message().time
        draft, self.value = self.text(), ""
        return draft

    async def _on_key(self, event: keys.Key) -> None:
        if event.time < self.since:
            event.stop()
            event.prevent_default()
            return
        # Textual passes Enter around before it acts on it; what is typed meanwhile would still get into the line.
        if event.key != "enter":
            return  # Input's own handler is called next
        event.stop()
        event.prevent_default()
        text, self.value = self.text(), ""
        self.post_message(self.Submitted(self, text))

    def _on_paste(self, event: keys.Paste) -> None:
        event.stop()
        event.prevent_default()
        if event.time < self.since:
            return
        lines = _BREAK.join(event.text.strip("\r\n").splitlines())
        if not lines:
            return
        selection = self.selection
        if selection.is_empty:
            self.insert_text_at_cursor(lines)
        else:
            self.replace(lines, *selection)
