"""The wind tunnel: bad days on request, between a real agent and its model."""

from glidepath.apps.gate.wind_tunnel.scenarios import (
    LIST,
    SCENARIOS,
    Scenario,
    describe_scenarios,
    read_injection,
)
from glidepath.apps.gate.wind_tunnel.tunnel import WindTunnel

__all__ = ["LIST", "SCENARIOS", "Scenario", "WindTunnel", "describe_scenarios", "read_injection"]
