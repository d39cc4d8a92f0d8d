"""`glidepath` on a clock that stands still, so that a screen is the same every time."""

import sys

from glidepath.apps.cli import CliContext
from glidepath.cli import main

if __name__ == "__main__":
    world = CliContext.real()
    world.now = lambda: 0.0
    sys.exit(main(world=world))
