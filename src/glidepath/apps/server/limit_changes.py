"""Limits that a request changes: which it may, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from glidepath._wire import replace
from glidepath.agent import Limits
from glidepath.apps.server.refusals import HttpError
from glidepath.values import ConfigurationError, settings_of


def change_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """These limits with some of them changed; raises `HttpError` naming the one that is wrong."""
    for name in changes:
        if name not in Limits.__struct_fields__:
            raise HttpError(400, "bad_limit", str(Limits.no_such_setting(name)))
    try:
        fixed = {
            name: str(value) if name == "max_cost" and isinstance(value, float) else value
            for name, value in changes.items()
        }
        return replace(limits, **fixed)
    except (ConfigurationError, TypeError, ValueError) as error:
        raise HttpError(400, "bad_limit", str(error)) from None


def check_lowered(now: Limits, then: Limits) -> None:
    """Raise `HttpError` unless every limit allows as much as it does now, or less."""
    for name, setting in settings_of(Limits).items():
        most, asked = getattr(now, name), getattr(then, name)
        if asked != most and not setting.is_narrower(asked, most):
            raise HttpError(
                403, "limit_raised", f"{name} is {most} for this agent: this key cannot change it to {asked}"
            )


def check_raised(now: Mapping[str, str], changes: Mapping[str, Any]) -> None:
    """Raise `HttpError` unless each change is of a limit that there is `now`, to a figure that is not lower."""
    asked = change_limits(Limits(), changes)
    for name in changes:
        figure = getattr(asked, name)
        if name not in now:
            there = ", ".join(now) or "none"
            raise HttpError(400, "bad_limit", f"{name}: this run has no such limit; it has {there}")
        if figure is None or Decimal(str(figure)) < Decimal(now[name]):
            raise HttpError(
                400, "bad_limit", f"{name}: {figure} is less than {now[name]}; a running limit can only be raised"
            )
