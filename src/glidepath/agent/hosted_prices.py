"""What the tools of a provider cost: by its price list, else by what it is known to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.run import Price, pico
from glidepath.spi import HostedReserve, reserve_for

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig

_SEARCH = "0.01"
"""Dollars of a search where neither a price list nor the adapter knows better."""


def add_fees(price: Price, config: LoopConfig, model: object) -> Price:
    """The price with what searches and containers of this model's provider cost."""
    search = price.web_search or _read_fee(model, "search_price", _SEARCH)
    session = price.code_session or _read_fee(model, "session_price", "0")
    tier = None if price.tier is None else add_fees(price.tier, config, model)
    return replace(price, web_search=search, code_session=session, tier=tier)


def reserve_hosted(config: LoopConfig, price: Price | None) -> HostedReserve | None:
    """What the hosted tools of one call may cost at most, beside its prompt and its reply."""
    search, session = (0, 0) if price is None else (price.web_search, price.code_session)
    return reserve_for(config.hosted_tools, search=search, session=session)


def _read_fee(model: object, name: str, otherwise: str) -> int:
    return pico(getattr(model, name, None) or otherwise, field=f"{type(model).__name__}.{name}")
