"""Keys that terminals send and Textual does not know."""

from __future__ import annotations

import contextlib

_ALT_ENTER = "\x1b\r"


def learn_alt_enter() -> None:
    """Have Alt-Enter come as the key that begins another line; to Textual it is Enter."""
    with contextlib.suppress(ImportError, AttributeError, TypeError):  # names of Textual that may change
        from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
        from textual.keys import Keys

        ANSI_SEQUENCES_KEYS[_ALT_ENTER] = (Keys.ControlJ,)  # type: ignore[index]
