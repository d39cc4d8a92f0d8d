"""`glidepath` on a clock that stands still, so that a screen is the same every time."""

import sys

from glidepath.cli import main
from glidepath.cli.world import CliContext

if __name__ == "__main__":
    world = CliContext.real()
    world.now = lambda: 0.0
    sys.exit(main(world=world))
