"""Run your own configuration against the flight simulator, in your own test suite."""

from glidepath.testing.conformance.specimen_contract import assert_contained, simulator

__all__ = ["assert_contained", "simulator"]
