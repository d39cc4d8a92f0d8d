"""What the models behind a gate cost: as the operator says, else as the price list says, else unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.agent import check_prices
from glidepath.agent.prices import look_up_price
from glidepath.run import Price

MOST_NAMES = 1_000
_PROVIDERS = {"anthropic": "anthropic", "openai-chat": "openai", "openai-responses": "openai", "gemini": "google"}


def provider_of(dialect: str) -> str | None:
    """Whose models a dialect speaks to."""
    return _PROVIDERS.get(dialect)


class PriceList:
    """Prices by model name. `given` are dollars per million tokens, (input, output), as in the configuration."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self._given = check_prices(given)
        self._found: dict[tuple[str, str], Price | None] = {}

    def find_dearest(self, models: Sequence[str], dialect: str) -> Price | None:
        """The price of the dearest of these models, where one may answer for another; None if one is unknown."""
        first, *others = [self.find(model, dialect) for model in models]
        if first is None or not others:
            return first
        known = [price for price in (first, *others) if price is not None]
        return max(known, key=lambda price: price.worst_input + price.output) if len(known) == len(models) else None

    def find(self, model: str, dialect: str) -> Price | None:
        """The price of a model; None when nobody knows it."""
        if model in self._given:
            return self._given[model]
        key = (model, dialect)
        if key not in self._found:
            if len(self._found) >= MOST_NAMES:  # anyone who calls chooses the names
                self._found.clear()
            self._found[key] = look_up_price(model, _PROVIDERS.get(dialect)) or look_up_price(model, None)
        return self._found[key]
