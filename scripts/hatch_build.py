"""What hatchling asks while it builds: is the flight deck's page there, and can npm make it?

A page that is there is taken as it is. Where it is missing, npm builds it if there is an npm. Without one the package
has no page, and `glidepath serve` says so. With GLIDEPATH_RELEASE=1 a package without its page is an error instead.
An editable install builds nothing: `make deck-build` does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("src/glidepath/apps/server/static/index.html")
SOURCES = ("deck/package-lock.json", "deck/src/main.tsx")


class DeckHook(BuildHookInterface):
    """Brings the built page into wheels and source archives."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):  # noqa: ARG002 - hatchling's signature
        """Before the files are collected."""
        if version == "editable":
            return
        root = Path(self.root)
        page = root / PAGE
        why = "" if page.is_file() else build_page(root)
        if page.is_file():
            return
        if os.environ.get("GLIDEPATH_RELEASE"):
            sys.exit(f"a release needs the flight deck's page, and {PAGE} is missing: {why}")
        print(f"glidepath: the package has no flight deck: {why}", file=sys.stderr)


def build_page(root):
    """Let npm build the page; why there is none, or nothing."""
    if not all((root / name).is_file() for name in SOURCES):
        return "its sources are not here"
    npm = shutil.which("npm")
    if npm is None:
        return "npm is missing"
    for arguments in (["ci", "--no-audit", "--no-fund", "--loglevel=error"], ["run", "build", "--silent"]):
        done = subprocess.run(
            [npm, "--prefix", str(root / "deck"), *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"npm {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}"
    return ""
