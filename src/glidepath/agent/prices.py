"""What a token costs: from the configuration, from the model, or looked up; else unknown."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import Price, pico
from glidepath.values import EXACT, ConfigurationError, install_line

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig


def find_price(config: LoopConfig, model: Any, *, needed: bool) -> Price | None:
    """The price of a model; raises `ConfigurationError` when a money limit needs one and none is known."""
    checked = check_prices(config.prices)
    for place in ("", f"{getattr(model, 'provider', None)}:", f"{getattr(model, 'host', None)}:"):
        name = f"{place}{model.name}"
        if name in checked:
            return checked[name] if checked[name].cache_write is not None else _price_at_length(checked[name], model)
    own = getattr(model, "price", None)
    price = None if own is None else Price.per_million(own, field=f"{type(model).__name__}.price")
    if not needed:
        return price
    found = price or _price_at_length(look_up_price(model.name, getattr(model, "provider", None)), model)
    price = found if found is not None and not is_free(found) else _make_stand_in_price(config, checked)
    if price is None and found is not None:
        raise ConfigurationError(
            f"a money limit (max_cost) would limit nothing: the price found for model {model.name!r} is 0. If it is "
            f"free, say so with prices={{{model.name!r}: (0, 0)}}, or remove max_cost; if it is not, pass its price "
            "in dollars per million tokens"
        )
    if price is None:
        raise ConfigurationError(
            f"a money limit (max_cost) needs a price, and none is known for model {model.name!r}: "
            f"pass prices={{{model.name!r}: (input, output)}} in dollars per million tokens, "
            f"or unpriced='estimate:<model>' to use another model's price{_hint_at_prices()}"
        )
    return price


def check_prices(prices: object) -> dict[str, Price]:
    """The prices of a configuration; raises `ConfigurationError` naming the one that is wrong."""
    prices = prices or {}
    if not hasattr(prices, "items"):
        raise ConfigurationError(f"prices must map model names to (input, output), not {prices!r:.100}")
    return {name: Price.per_million(given, field=f"prices[{name!r}]") for name, given in prices.items()}


def is_free(price: Price) -> bool:
    """Neither input nor output costs anything: a limit on money would limit nothing."""
    return not price.input and not price.output


def _make_stand_in_price(config: LoopConfig, checked: dict[str, Price]) -> Price | None:
    unpriced = config.unpriced
    if unpriced is None:
        return None
    kind, _, name = unpriced.partition(":") if isinstance(unpriced, str) else ("", "", "")
    if kind != "estimate" or not name:
        raise ConfigurationError(f"unpriced must be 'estimate:<model>', not {unpriced!r}")
    provider, colon, bare = name.rpartition(":")  # also as a model string
    price = checked.get(name) or look_up_price(name, None) or (look_up_price(bare, provider) if colon else None)
    if price is None:
        raise ConfigurationError(f"unpriced: no price is known for model {name!r} either; name another model")
    return price


def _price_at_length(price: Price | None, model: object) -> Price | None:
    """A price for a model whose cache costs more to write than plain input, or than the list says: for an hour."""
    rate = getattr(model, "cache_write_rate", None)
    if price is None or rate is None:
        return price
    write = max(price.cache_write or 0, math.ceil(EXACT.multiply(Decimal(price.input), Decimal(rate))))
    return replace(price, cache_write=write, tier=_price_at_length(price.tier, model))


def _hint_at_prices() -> str:
    """A hint for anyone without a price list."""
    from importlib.util import find_spec

    known = find_spec("genai_prices") is not None
    return "" if known else f"; {install_line('prices')} brings the prices of known models"


def look_up_price(name: str, provider: object) -> Price | None:
    """The price in the genai-prices data set, when that package is installed."""
    try:
        from datetime import UTC, datetime

        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    provider = _LISTED.get(provider, provider) if isinstance(provider, str) else None
    try:
        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    given = model.get_prices(datetime.now(UTC))
    price = _price(given, name, tier=None)
    starts = [tier.start for part in _PARTS for tier in getattr(getattr(given, part, None), "tiers", ())]
    if price is None or not starts:
        return price
    return replace(price, tier_start=min(starts), tier=_price(given, name, tier=min(starts)))


_LISTED = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "openai-compatible": None,
    "bedrock": "aws",
    "vertex": "google",
    "xai": "x-ai",
}
"""What hosts are called in that data, where it differs from the model string."""
_PARTS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "web_searches_kcount")


def _price(given: object, name: str, *, tier: int | None) -> Price | None:
    """The base price, or the highest of its tiers: a budget must hold in the worst case."""
    parts = [_step(getattr(given, part, None), tier) for part in _PARTS]
    if parts[0] is None or parts[1] is None:
        return None
    return replace(Price.per_million(parts, field=f"the price of {name!r}"), **_media(given, name, tier))


_MEDIA = {
    "audio_input": "input_audio_mtok",
    "audio_cached": "cache_audio_read_mtok",
    "audio_output": "output_audio_mtok",
    "image_input": "input_image_mtok",
    "image_cached": "cache_image_read_mtok",
    "image_output": "output_image_mtok",
}


def _media(given: object, name: str, tier: int | None) -> dict[str, int]:
    """What sound and pictures cost, where the data has prices of their own for them."""
    found = {}
    for field, part in _MEDIA.items():
        price = _step(getattr(given, part, None), tier)
        if price is not None:
            found[field] = -(-pico(price, field=f"the price of {name!r}") // 10**6)
    return found


def _step(price: Any, tier: int | None) -> Any:
    """A price without tiers: its base, or the highest."""
    if not hasattr(price, "tiers"):
        return price
    return price.base if tier is None else max([price.base, *[step.price for step in price.tiers]])
