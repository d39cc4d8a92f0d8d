"""What a hangup means to a server: its operator wants the configuration read again, or its terminal is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

_TERMINAL = "/dev/tty"


def watch_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """Call `reload` in the running loop when this process gets SIGHUP, or `stop` when its terminal was closed.

    A process that was started with `nohup` is never stopped by it.
    """
    had_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def decide() -> None:
        if had_terminal and not has_terminal():
            stop()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, decide)


def has_terminal() -> bool:
    """True when this process has a controlling terminal that is still there."""
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
