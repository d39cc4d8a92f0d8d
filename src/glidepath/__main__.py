"""`python -m glidepath` is `glidepath`."""

import sys

from glidepath.cli import main

if __name__ == "__main__":
    sys.exit(main())
