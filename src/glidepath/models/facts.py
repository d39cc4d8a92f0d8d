"""What is known about models beforehand: their windows, from the genai-prices data where that is installed."""

from __future__ import annotations

__all__ = ["known_window"]


def known_window(name: str, provider: str | None) -> int | None:
    """The context window of a model, in tokens; None when it is unknown."""
    if provider is None:
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    try:
        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    window = model.context_window
    return window if type(window) is int and window > 0 else None
