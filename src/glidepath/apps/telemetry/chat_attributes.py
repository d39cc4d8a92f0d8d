"""What the span of a model call says at its end: tokens, money, and what the provider said about its reply."""

from __future__ import annotations

from typing import Any

from glidepath.apps.telemetry.span_content import clean
from glidepath.apps.telemetry.vocabulary import finish_reason
from glidepath.values import AssistantMessage, BudgetSettled, StopReason

__all__ = ["add_figures", "add_reply"]

_FINISHED = {reason.value: (finish_reason(reason),) for reason in StopReason}


def add_figures(attributes: dict[str, Any], settled: BudgetSettled) -> None:
    """What the call has used and cost. Each token is on one span."""
    usage = settled.usage
    attributes["gen_ai.usage.input_tokens"] = usage.input
    attributes["gen_ai.usage.output_tokens"] = usage.output
    if usage.cache_read:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.cache_write:  # two names: one that is read today, one that will be
        attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
        attributes["gen_ai.usage.cache_write.input_tokens"] = usage.cache_write
    if usage.reasoning:
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
    if usage.estimated:
        attributes["glidepath.usage.estimated"] = True
    picodollars = settled.picodollars
    if picodollars is not None:
        cost = picodollars / 1e12
        attributes["glidepath.cost"] = attributes["operation.cost"] = attributes["gen_ai.usage.cost"] = cost
        attributes["glidepath.cost.picodollars"] = picodollars


def add_reply(attributes: dict[str, Any], reply: AssistantMessage) -> None:
    """What the provider said about its reply."""
    attributes["gen_ai.response.finish_reasons"] = _FINISHED[reply.stop_reason._value_]
    info = reply.info
    if info is not None:
        if info.response_id:
            attributes["gen_ai.response.id"] = clean(info.response_id)
        if info.model:
            attributes["gen_ai.response.model"] = clean(info.model)
