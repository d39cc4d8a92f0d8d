"""What the fleet's tables are called and which version they have; `fleet.sql` makes them and their functions."""

from __future__ import annotations

from importlib.resources import files

LAYOUT = 1
PARTS = 5  # the version of what an older release tolerates: functions with the same signature, extra tables
FREED = "glidepath_freed"  # the channel for: a budget has room again
QUEUED = "glidepath_queued"  # the channel for: a run was queued
ADVISORY = 0x676C6966
FLEET = "fleet"


def schema() -> str:
    """The statements that make the tables and functions, or bring those of an older release up to date."""
    text = (files(__package__) / "fleet.sql").read_text(encoding="utf-8")
    for name, value in (("@LAYOUT", LAYOUT), ("@PARTS", PARTS), ("@FREED", FREED)):
        text = text.replace(name, str(value))
    return text
