"""The gate: agents written in anything point their base URL here, and land inside their budget with an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._lazy import lazy_attributes

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


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.gate.gate_prices import PriceList as PriceList
    from glidepath.apps.gate.gate_toml import (
        GateConfig as GateConfig,
        load_config as load_config,
        read_config as read_config,
    )
    from glidepath.apps.gate.governing import GateAnswer as GateAnswer, GateRequest as GateRequest
    from glidepath.apps.gate.governor import (
        GateGovernor as GateGovernor,
        choose_upstreams as choose_upstreams,
        make_governor as make_governor,
    )
    from glidepath.apps.gate.known_agents import (
        find_known as find_known,
        finishing_call as finishing_call,
        finishing_tool as finishing_tool,
        recognize as recognize,
        remove_noise as remove_noise,
    )
    from glidepath.apps.gate.lines import BudgetTerms as BudgetTerms, Line as Line, LineBook as LineBook
    from glidepath.apps.gate.listening import (
        GateListener as GateListener,
        freeze_heap as freeze_heap,
        listen_config as listen_config,
    )
    from glidepath.apps.gate.served_gate import ServedGate as ServedGate
    from glidepath.apps.gate.session_keeper import SessionKeeper as SessionKeeper
    from glidepath.apps.gate.tree import GateLimits as GateLimits, give_back_landing as give_back_landing
    from glidepath.apps.gate.upstreams import VENDORS as VENDORS

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        gate_prices=("PriceList",),
        gate_toml=("GateConfig", "load_config", "read_config"),
        governing=("GateAnswer", "GateRequest"),
        governor=("GateGovernor", "choose_upstreams", "make_governor"),
        known_agents=("find_known", "finishing_call", "finishing_tool", "recognize", "remove_noise"),
        lines=("BudgetTerms", "Line", "LineBook"),
        listening=("GateListener", "freeze_heap", "listen_config"),
        served_gate=("ServedGate",),
        session_keeper=("SessionKeeper",),
        tree=("GateLimits", "give_back_landing"),
        upstreams=("VENDORS",),
    )
