"""`python -m glidepath` is `glidepath`."""

import sys

from glidepath.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
