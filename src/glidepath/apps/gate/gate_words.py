"""What the gate itself says: to a model that must finish, and to the client when no model can answer any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.values import Texts, pluralize

if TYPE_CHECKING:
    from glidepath.apps.gate.tree import GateLimits

MARK = "[glidepath]"
"""How our own words begin, so that nobody mistakes them for the model's."""

_NAMES = {"tokens": "token budget", "money": "cost budget", "turns": "number of calls", "time": "time"}


def soft_notice(texts: Texts, resource: str) -> str:
    """The early notice: little is left, finish."""
    return f"{MARK} {texts.fill('wind_down', limit=_NAMES.get(resource, 'budget'))}"


def landing_notice(texts: Texts) -> str:
    """With the last call of an agent."""
    return f"{MARK} {texts.fill('landing')}"


def describe_limit(limits: GateLimits, resource: str) -> str:
    """Which limit of a run ended it, with its figure."""
    if resource == "tokens" and limits.tokens is not None:
        return f"the limit of {pluralize(limits.tokens, 'token', f'{limits.tokens:,}')} is reached"
    if resource == "money" and limits.money is not None:
        return f"the limit of ${limits.money / 10**12:.2f} is reached"
    if resource == "turns" and limits.calls is not None:
        return f"the limit of {pluralize(limits.calls, 'call', f'{limits.calls:,}')} is reached"
    if resource == "time" and limits.seconds is not None:
        return f"the time limit of {limits.seconds:g} seconds is reached"
    return "the budget is used up"


def describe_family(resource: str, limit: int) -> str:
    """How many sub-agents, or levels of them, a run may have."""
    return f"this run may have {pluralize(limit, 'sub-agent' if resource == 'descendants' else 'level of sub-agents')}"


def own_words(reason: str, *, asked: bool, before: str = "") -> str:
    """The answer when the model wrote none. `asked`: it was asked for one, and answered otherwise.

    `before` is the answer with which the agent has landed: a program that asks again prints what it gets last.
    """
    why = "The model was asked for a final answer and wrote none." if asked else "No further model call was made."
    words = f"{MARK} The run was ended here: {reason}. {why}"
    return f"{words} Its last answer was:\n\n{before}" if before else words


def cut_note(reason: str) -> str:
    """The note after a reply that was ended while it was being written."""
    return f"\n\n{MARK} The reply was cut here: {reason}."
