"""What if: stored runs under other limits, prices and guards. Figures come from the journals; no model is called."""

from glidepath.testing.simulator.whatif import flown_runs, what_if

__all__ = ["flown_runs", "what_if"]
