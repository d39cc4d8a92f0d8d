"""Public benchmarks as datasets, where their packages are installed: their tasks, their tools, their own checkers."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from glidepath.apps.evals.benchmarks.from_agentdojo import agentdojo
    from glidepath.apps.evals.benchmarks.from_bfcl import bfcl
    from glidepath.apps.evals.benchmarks.from_tau import tau
    from glidepath.apps.evals.benchmarks.world import WorldCheck, WorldPlugin, furnish, list_done

__all__ = ["WorldCheck", "WorldPlugin", "agentdojo", "bfcl", "furnish", "list_done", "tau"]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        from_agentdojo=("agentdojo",),
        from_bfcl=("bfcl",),
        from_tau=("tau",),
        world=("WorldCheck", "WorldPlugin", "furnish", "list_done"),
    )
