"""The gate: agents written in anything point their base URL here, and land inside their budget with an answer."""

from __future__ import annotations

from typing import Any

__all__ = ["Gate", "Upstream"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and not aiohttp with everything else."""
    if name == "Gate":
        from glidepath.apps.gate.local_gate import Gate

        return Gate
    if name == "Upstream":
        from glidepath.apps.gate.upstreams import Upstream

        return Upstream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
