"""Keeps garbage collection from delaying keys."""

from __future__ import annotations

import gc

_YOUNG = 1


def keep_heap() -> None:
    """Call it between turns: what is alive now is never looked at again by the collector.

    A full collection visits every object of the process. Modules, and what is drawn of a long conversation, make that
    a tenth of a second or more, in which no key is looked at. Afterwards it visits what the turn has made, and no more.
    """
    gc.collect(_YOUNG)
    gc.freeze()
