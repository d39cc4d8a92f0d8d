"""The input line: several lines, a history, and completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import commonprefix

from textual import events as keys
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

from glidepath._sdk_privates import learn_alt_enter
from glidepath.apps.cli.attachments import last_word_of
from glidepath.apps.cli.chat.history_search import HistorySearch
from glidepath.apps.cli.chat.input_history import InputHistory
from glidepath.apps.cli.chat.rest_of_word import RestOfWord

_BREAKS = ("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter")
_ENTER_WITH_A_MODIFIER = "\r"  # how Textual ends the name of such a key when it comes in xterm's form, `27;2;13~`
_FEW = 8
_EDITING = {key: one.action for one in TextArea.BINDINGS if isinstance(one, Binding) for key in one.key.split(",")}
"""What a key does to the text. Textual does it later, when keys that follow may have been handled."""

Complete = Callable[[str], Sequence[str]]
"""Completions for the start of a word."""


class Prompt(TextArea):
    """Enter sends what was typed; Shift-Enter, Ctrl-J or a paste make more lines of it.

    Up and Down go through the history, Ctrl-R searches it, Tab completes a /command or an @file.
    """

    DEFAULT_CSS = """
    Prompt { height: auto; max-height: 10; min-height: 1; border: none; padding: 0 1; background: $surface; }
    Prompt:focus { border: none; }
    """

    class Submitted(Message):
        """Sent when the person submits a text."""

        def __init__(self, prompt: Prompt, value: str) -> None:
            super().__init__()
            self.prompt = prompt
            self.value = value

    class Hint(Message):
        """A hint about the text being typed; empty to remove it."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    since: float = 0.0
    """Keys from before this moment do not count."""
    single: Sequence[str] = ()
    """Keys that are an answer by themselves, while the line is empty."""

    def __init__(self, history: InputHistory, complete: Complete, placeholder: str) -> None:
        learn_alt_enter()
        super().__init__(id="prompt", placeholder=placeholder, compact=True, highlight_cursor_line=False)
        self.past = history
        self._usual, self._choice = placeholder, ""
        self._rest = RestOfWord()
        self._complete = complete
        self.search = HistorySearch(self)

    @property
    def value(self) -> str:
        """The text in the line."""
        return self.text

    @value.setter
    def value(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    @property
    def said(self) -> str:
        """The text in the line, stripped."""
        return self.text.strip()

    def show_hint(self, text: str) -> None:
        """Show a hint about the text being typed; an empty one removes it."""
        self.post_message(self.Hint(text))

    def put_back(self, texts: Sequence[str]) -> None:
        """Put a message that was sent too early back into the line, before what is being typed."""
        self.value = "\n".join([*texts, *([self.said] if self.said else [])])

    def expect_keys(self, keys: Sequence[str], typed: str = "") -> None:
        """Take these keys as answers from now on, while the line is empty; none of them when no question is open.

        `typed` names the answers that need Enter.
        """
        self.single = keys
        self._choice = ", ".join(keys[:-1]) + f" or {keys[-1]}" if keys else ""
        first = f"{typed} and Enter; or press" if typed else "Press"
        self.placeholder = f"{first} {self._choice}" if keys else self._usual
        self.show_hint("")

    def discard_input(self, more: float = 0.0) -> str:
        """Empty the line and drop every key that was pressed before now, and for `more` seconds; what was there."""
        self.since = Message().time + more
        self.search.leave()
        draft, self.value = self.said, ""
        return draft

    # --- keys -----------------------------------------------------------------------------------------------------

    async def _on_key(self, event: keys.Key) -> None:
        if event.time < self.since:
            self._consume_key(event)
            return
        if self.search.is_search_key(event) or (not self.text and self._rest.is_rest_of_answer(event)):
            self._consume_key(event)
        elif event.key == "enter":
            # Textual handles Enter later; keys pressed in the meantime would still get into the line.
            self._consume_key(event)
            self._send(self.said)
        elif event.key in _BREAKS or event.key.endswith(_ENTER_WITH_A_MODIFIER):
            self._consume_key(event)
            self.insert("\n")
        elif event.key.lower() in self.single and not self.text:  # with Caps Lock, too
            self._consume_key(event)
            self.post_message(self.Submitted(self, event.key.lower()))
            self.single = ()  # one key answers one question
            self._rest.note_answer_key(event)
        elif (event.key == "up" and self._walk(older=True)) or (event.key == "down" and self._walk(older=False)):
            self._consume_key(event)
        elif event.key == "ctrl+r":
            self._consume_key(event)
            self.search.begin()
        elif event.key == "tab":
            self._consume_key(event)
            self._finish_word()
        elif event.key in _EDITING:
            self._consume_key(event)
            await self.run_action(_EDITING[event.key])
            self.show_hint("") if self.single and not self.text else None
        elif event.is_printable:
            self.insert(self._rest.take_back_keys()) if not self.text else None
            self.past.forget_place()
            self.show_hint(f"Enter sends this; empty the line to press {self._choice}" if self.single else "")

    def action_delete_to_start_of_line(self) -> None:
        """Ctrl-U: delete what is before the cursor, however many rows of the screen it takes."""
        row, column = self.cursor_location
        self.delete((row, 0), (row, column))

    def _consume_key(self, event: keys.Key) -> None:
        event.stop()
        event.prevent_default()

    def _send(self, text: str) -> None:
        self.value = ""
        self.show_hint("")
        self.post_message(self.Submitted(self, text))

    def _walk(self, *, older: bool) -> bool:
        """Walk through the history from the first or last line; elsewhere the arrows move the cursor."""
        row, _ = self.cursor_location
        if (older and row > 0) or (not older and row < self.document.line_count - 1):
            return False
        line = self.past.older(self.text) if older else self.past.newer()
        if line is not None:
            self.value = line
        return True

    async def _on_paste(self, event: keys.Paste) -> None:
        event.stop()
        event.prevent_default()
        if event.time < self.since:
            return
        lines = "\n".join(event.text.strip("\r\n").splitlines())
        if lines:
            self.replace(lines, *self.selection)
            self.move_cursor(self.cursor_location)

    # --- completion -----------------------------------------------------------------------------------------------

    def _finish_word(self) -> None:
        row, column = self.cursor_location
        line = self.document[row][:column]
        word = line if line.startswith("/") and row == 0 else last_word_of(line)
        found = list(self._complete(word)) if word.startswith(("/", "@")) else []
        if not found:
            return
        whole = found[0] + ("" if found[0].endswith("/") else " ") if len(found) == 1 else commonprefix(found)  # noqa: RUF071
        if len(whole) > len(word):
            self.replace(whole, (row, column - len(word)), (row, column))
            self.move_cursor((row, column - len(word) + len(whole)))
        more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
        self.show_hint("  ".join(found[:_FEW]) + more if len(found) > 1 else "")
