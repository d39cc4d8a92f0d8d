"""Ctrl-R: searches what was sent before, and shows the match in the input line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events as keys

if TYPE_CHECKING:
    from glidepath.apps.cli.chat.prompt import Prompt


class HistorySearch:
    """A search in the history of an input line: the words so far, the last match, and the line as it was before."""

    def __init__(self, line: Prompt) -> None:
        self._line = line
        self._words: str | None = None
        self._found: int | None = None
        self._before = ""

    @property
    def active(self) -> bool:
        """True while the history is being searched."""
        return self._words is not None

    def begin(self) -> None:
        """Begin a search."""
        self._words, self._found, self._before = "", None, self._line.text
        self._show_state()

    def is_search_key(self, event: keys.Key) -> bool:
        """True if the key belongs to the search; any other key accepts the match and does its usual work."""
        if self._words is None:
            return False
        if event.key == "ctrl+r":
            self._search_history(self._words, self._found)
        elif event.key == "backspace":
            self._search_history(self._words[:-1], None)
        elif event.is_printable and event.character is not None:
            self._search_history(self._words + event.character, None)
        else:
            self._words = None
            self._line.show_hint("")
            return event.key == "enter"
        return True

    def leave(self) -> None:
        """Leave the search and restore the line."""
        if self._words is not None:
            self._words = None
            self._line.value = self._before
            self._line.show_hint("")

    def _search_history(self, words: str, before: int | None) -> None:
        self._words = words
        found = self._line.past.search(words, before) if words else None
        if found is not None:
            self._found = found
            self._line.value = self._line.past.lines[found]
        self._show_state(missing=bool(words) and found is None)

    def _show_state(self, *, missing: bool = False) -> None:
        state = "nothing older has" if missing else "history search:"
        self._line.show_hint(f"{state} {self._words!r}  (Ctrl-R older, Enter takes it, Esc leaves)")
