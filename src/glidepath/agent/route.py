"""The models of an agent, in the order in which they are used: each with its own price, window, caps and health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent.prices import find_price, is_free
from glidepath.run import Plan, Price, Route, model_breaker

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.spi import Model

UNKNOWN_OUTPUT = 4096  # what is reserved at first for a model whose maximum nobody knows
CEILING = 32_768  # tokens of a reply, by our own count, from a model whose maximum nobody knows
METERED = 4  # bytes of a token while a reply streams
LONGEST = 8  # bytes of a token at most: a model that keeps to its own maximum is never cut


def output_limit_of(model: object) -> int:
    """The model's own maximum, or what is reserved when nobody knows it."""
    known = getattr(model, "max_output_tokens", None)
    return known if isinstance(known, int) and known > 0 else UNKNOWN_OUTPUT


def window_of(config: LoopConfig, model: object) -> int | None:
    """The tokens that fit into a request: what was configured, else what the model says; None if nobody knows."""
    return config.context_window or getattr(model, "context_window", None)


def reply_ceiling(model: object) -> int:
    """Bytes at which a reply ends that was sent no output cap: the model's own maximum, else 32,768 tokens."""
    known = getattr(model, "max_output_tokens", None)
    return known * LONGEST if isinstance(known, int) and known > 0 else CEILING * METERED


def vendor_of(model: object) -> str | None:
    """The vendor of a model, if it says so."""
    vendor = getattr(model, "vendor", None)
    return vendor if isinstance(vendor, str) and vendor else None


def add_fallback_route(plan: Plan, config: LoopConfig) -> Plan:
    """The plan with a route to its fallback models; unchanged when there are none."""
    if not config.fallback_models:
        return plan
    return join_plans([plan, *[_replace_model(plan, config, model) for model in config.fallback_models]])


def add_prices(plan: Plan, config: LoopConfig) -> Plan:
    """The plan with a price for every model, for a budget that limits money; raises `ConfigurationError`."""
    plans = (plan,) if plan.route is None else plan.route.plans
    # A price of 0 must have been stated, which `find_price` knows.
    sure = [None if one.price is None or is_free(one.price) else one.price for one in plans]
    if None not in sure:
        return plan
    prices = [price or find_price(config, one.model, needed=True) for one, price in zip(plans, sure, strict=True)]
    known = [replace(one, **_with_fees(price, config, one.model)) for one, price in zip(plans, prices, strict=True)]
    return known[0] if plan.route is None else join_plans(known)


def join_plans(plans: list[Plan]) -> Plan:
    """The first of these plans, on one route with the others."""
    route = Route()
    route.plans = tuple([replace(plan, route=route, position=place) for place, plan in enumerate(plans)])
    return route.plans[0]


def facts_of(model: Any, config: LoopConfig) -> dict[str, Any]:
    """What a plan knows of its model."""
    return {
        "model": model,
        "model_name": model.name,
        "vendor": vendor_of(model),
        "health": model_breaker(model),
        "books_with_care": bool(config.hosted_tools) or getattr(model, "count_tokens", None) is not None,
        **_with_fees(find_price(config, model, needed=config.limits.max_cost is not None), config, model),
        "counts_down": config.task_budget and getattr(model, "takes_task_budget", False) is True,
        "usage_is_billed": getattr(model, "usage_is_billed", False) is True,
        "counter": getattr(model, "count_tokens", None),
        "reply_bytes": reply_ceiling(model),
    }


def _with_fees(price: Price | None, config: LoopConfig, model: Any) -> dict[str, Any]:
    """What its tokens cost, and what its provider's own tools may cost above that."""
    if not config.hosted_tools:
        return {"price": price, "hosted": None}
    from glidepath.agent.hosted_prices import add_fees, reserve_hosted

    price = None if price is None else add_fees(price, config, model)
    return {"price": price, "hosted": reserve_hosted(config, price)}


def _replace_model(plan: Plan, config: LoopConfig, model: Model) -> Plan:
    known = output_limit_of(model)
    cap = plan.max_output_tokens
    if cap is not None and isinstance(getattr(model, "max_output_tokens", None), int):
        cap = min(cap, known)  # what the first model may write can be too much for this one
    return replace(
        plan,
        model_id=model.name,
        context_window=getattr(model, "context_window", None) or config.context_window,
        max_output_tokens=cap,
        first_output_tokens=cap or known,
        **facts_of(model, config),
    )
