"""The flight simulator: tests a configuration against a library of misbehaving models and tools."""

from glidepath.testing.simulator import Flight, Report, fly, simulate

__all__ = ["Flight", "Report", "fly", "simulate"]
