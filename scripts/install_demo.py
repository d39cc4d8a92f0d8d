"""Make the small environment of `make demo`: only what the demo needs, pinned, with its progress on one line.

usage: python scripts/install_demo.py FOLDER
"""

import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ("requirements/demo.txt", "requirements/build.txt")
WIDTH = 78
LAST_WORDS = 15  # lines of pip's that a failure shows


def install(folder):
    """The exit code of the step that failed, or 0."""
    began = time.monotonic()
    show = Progress()
    show.say("making an environment")
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    files = [word for name in PINNED for word in ("-r", str(ROOT / name))]
    for arguments in (
        ["--require-hashes", "--progress-bar", "off", *files],
        ["--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    ):
        code = run_pip([*pip, *arguments], show)
        if code:
            return code
    show.say(f"installed in {time.monotonic() - began:.0f} s")
    show.end()
    (folder / ".stamp").touch()
    return 0


def run_pip(command, show):
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            said.append(line)
            words = line.split()
            if words[:1] == ["Collecting"]:
                show.count(words[1].partition("==")[0])
            elif words[:1] == ["Installing"]:
                show.say(f"unpacking {show.packages} packages")
    if pip.returncode:
        show.end()
        sys.stderr.writelines(said[-LAST_WORDS:])
    return pip.returncode


class Progress:
    """One line that is written again on a terminal; elsewhere only its stages are printed."""

    def __init__(self):
        self.packages = 0
        self._stage = ""
        self._live = sys.stdout.isatty()

    def count(self, name):
        """Another package is there."""
        self.packages += 1
        if self._live:
            self._rewrite(f"package {self.packages}: {name}")

    def say(self, text):
        """A stage has begun."""
        if self._live:
            self._rewrite(text)
        elif text != self._stage:
            print(f"demo: {text}", flush=True)
        self._stage = text

    def end(self):
        """Leave the line as it is."""
        if self._live:
            print(flush=True)

    def _rewrite(self, text):
        print(f"\rdemo: {text}"[:WIDTH].ljust(WIDTH), end="", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(install(Path(sys.argv[1])))
