"""The `glidepath` command: parses the arguments, runs one command and returns its exit code."""

from glidepath.apps.cli import main

__all__ = ["main"]
