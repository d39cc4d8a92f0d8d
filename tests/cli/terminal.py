"""A real terminal for tests: tmux, its screen as text, and golden files to compare it with."""

import os
import re
import shutil
import subprocess
import sys
import time

from .shell_user import DRIVER, HERE, environment

GOLDEN = HERE / "golden"
SPINNER = re.compile("[\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f]")
PATIENCE = 120.0
DECIDING = ("[y/N]", "allow it?")
READ = 0.9
"""Seconds after which a question takes answers: nobody can have read it before."""


class Terminal:
    """One command in a tmux window of its own server. Use it as a context manager."""

    def __init__(self, width, folder, *argv, height=24, frozen=True, **environ):
        program = shutil.which("tmux")
        assert program, "tmux is part of the test set-up: sh scripts/install_test_programs.sh"
        self._socket = folder / f"tmux-{width}"
        self._tmux = [program, "-S", str(self._socket), "-f", os.devnull]
        self._codes = folder / f"code-{width}"
        start = [str(DRIVER)] if frozen else ["-m", "glidepath.cli"]
        words = " ".join(_quoted(word) for word in [sys.executable, *start, *argv])
        script = f"{words}; echo $? > {self._codes}; cat"  # the screen stays
        self._command = [*self._tmux, "new-session", "-d", "-x", str(width), "-y", str(height), script]
        self._folder = folder
        kept = {"XDG_DATA_HOME": str(folder / "data")}
        self._environ = environment(TERM="screen-256color", **{**kept, **environ})

    def __enter__(self):
        env = {key: value for key, value in self._environ.items() if key not in ("TMUX", "COLUMNS", "LINES")}
        subprocess.run(self._command, cwd=self._folder, env=env, check=True, capture_output=True)
        return self

    def __exit__(self, *_):
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)

    def screen(self, *, colors=False):
        argv = [*self._tmux, "capture-pane", "-p", *(["-e"] if colors else [])]
        text = subprocess.run(argv, capture_output=True, text=True, check=True, encoding="utf-8").stdout
        return SPINNER.sub("*", "\n".join(line.rstrip() for line in text.splitlines()).rstrip()) + "\n"

    def until(self, *words):
        """Wait until all the words are on the screen, and it stands still; returns it."""
        deadline = time.monotonic() + PATIENCE
        before = ""
        while True:
            shown = self.screen()
            if all(word in shown for word in words) and shown == before:
                if any(word in shown for word in DECIDING):
                    time.sleep(READ)
                return shown
            before = shown
            assert time.monotonic() < deadline, f"{words} never came:\n{shown}"
            time.sleep(0.15)

    def type(self, *keys):
        subprocess.run([*self._tmux, "send-keys", *keys], check=True, capture_output=True)

    def code(self):
        """The exit code, when the command has ended."""
        deadline = time.monotonic() + PATIENCE
        while not (self._codes.exists() and self._codes.read_text().strip()):
            assert time.monotonic() < deadline, f"it never ended:\n{self.screen()}"
            time.sleep(0.05)
        return int(self._codes.read_text())


def _quoted(word):
    return "'" + str(word).replace("'", "'\\''") + "'"


def compare(name, shown):
    """The screen is as it was kept; GLIDEPATH_GOLDEN=1 keeps it anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GLIDEPATH_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert path.exists(), f"no golden {path.name}: look at it with GLIDEPATH_GOLDEN=1\n{shown}"
    assert shown == path.read_text(encoding="utf-8"), f"{path.name} differs:\n{shown}"
