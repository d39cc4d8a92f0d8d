"""Who types `yes` and Enter has answered with the `y`: the rest answers nothing, and is not a message either."""

from __future__ import annotations

from textual import events as keys

_WORDS = {"y": "es", "n": "o", "a": "lways", "e": "dit"}
_SOON = 1.0
"""Seconds from one key of a word to the next."""


class RestOfWord:
    """Holds back keys that may be the rest of an answer. What turns out to be another word is given back."""

    def __init__(self) -> None:
        self._left = ""
        self._held = ""
        self._until = 0.0

    def note_answer_key(self, event: keys.Key) -> None:
        """This key has answered a question."""
        self._left, self._held = _WORDS.get(event.key.lower(), ""), ""
        self._until = event.time + _SOON

    def is_rest_of_answer(self, event: keys.Key) -> bool:
        """True for a key that belongs to the answer; the Enter at its end, too, which must not answer another one."""
        soon = event.time < self._until
        if soon and event.key == "enter" and not (self._held and self._left):
            self._until, self._held = 0.0, ""
            return True
        if soon and self._left and event.key.lower() == self._left[0]:
            self._held += event.character or event.key
            self._left = self._left[1:]
            self._until = event.time + _SOON
            return True
        if not event.is_printable or not (soon or self._left):  # a whole word, and then a pause
            self._held = ""
        self._until, self._left = 0.0, ""
        return False

    def take_back_keys(self) -> str:
        """The keys that were held back, if they are the beginning of something else."""
        held, self._held = self._held, ""
        return held
