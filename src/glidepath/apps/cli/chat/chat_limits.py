"""The limits of a chat: those that a person gave are the conversation's, defaults hold for each message.

Time is working time: what a person takes to read, to type or to decide does not count.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Limits
from glidepath.apps.cli.layers import Known
from glidepath.apps.cli.status import format_money
from glidepath.values import ConfigurationError, close_to, format_seconds

if TYPE_CHECKING:
    from glidepath.apps.cli.chat.chat_conversation import Conversation
    from glidepath.values import RunResult

FIELDS = {
    "turns": "max_iterations",
    "tokens": "max_tokens",
    "cost": "max_cost",
    "time": "timeout",
    "tool-calls": "max_tool_calls",
}
_FLAGS = {"turns": "--max-turns", "cost": "--max-budget-usd"}
_KEPT = ("tokens", "cost", "tool-calls")  # a session counts these itself


def conversation_limits(talk: Conversation) -> Limits | None:
    """The limits that the session keeps; None when a person gave none of them."""
    given = {FIELDS[name]: _limit(talk, name) for name in _KEPT if _is_given(talk, name)}
    return Limits(**given) if given else None


def message_limits(talk: Conversation) -> Limits | None:
    """The limits of the next message, with what the conversation has left; None when they are the agent's own.

    Raises `ConfigurationError` when it has nothing left.
    """
    left: dict[str, Any] = {}
    for name in ("turns", "time"):
        if not _is_given(talk, name):
            continue
        left[FIELDS[name]] = rest = _limit(talk, name) - _amount_used(talk, name)
        if rest <= 0:
            whole, twice = _format_amount(name, _limit(talk, name)), _format_amount(name, 2 * _limit(talk, name))
            raise ConfigurationError(
                f"Not sent: this conversation has used its {_noun(name)} ({whole}). /limits {name} {twice} raises it."
            )
    return replace(talk.agent.config.limits, **left) if left else None


def limit_used_up(talk: Conversation, result: RunResult | None) -> str:
    """The conversation's limit that this turn ended for; empty for another end, and for a limit of each message."""
    from glidepath.apps.cli.commands.run_command import limit_that_was_hit

    hit = limit_that_was_hit(result)
    return next((name for name, field in FIELDS.items() if hit == f"limits.{field}" and _is_given(talk, name)), "")


def key_to_raise(talk: Conversation, result: RunResult | None) -> str:
    """The setting that must be higher when this conversation is opened again; empty if none must be."""
    name = limit_used_up(talk, result)
    return f"limits.{FIELDS[name]}" if name and name != "time" else ""  # working time counts from the opening


def limits_command(talk: Conversation, text: str) -> str:
    """`/limits` shows them, `/limits tokens 50k` sets one for the conversation."""
    name, _, value = text.partition(" ")
    if not name:
        rows = [_row(talk, one) for one in FIELDS]
        return "\n".join([*rows, "/limits NAME VALUE sets one for the conversation: /limits tokens 200k"])
    if name not in FIELDS:
        meant = close_to(name, FIELDS)
        return f"There is no limit {name!r}." + (f" Did you mean {meant}?" if meant else f" Use {', '.join(FIELDS)}.")
    if talk.busy:
        return "A turn is running: Esc interrupts it."
    if not value.strip():
        return _row(talk, name)
    try:
        wanted = getattr(Limits(**{FIELDS[name]: value.strip()}), FIELDS[name])
        agent = talk.agent.replace(limits=replace(talk.agent.config.limits, **{FIELDS[name]: wanted}))
    except ConfigurationError as error:
        return str(error)
    flag = _FLAGS.get(name, f"--max-{name}" if name != "time" else "--timeout")
    talk.settings.known[f"limits.{FIELDS[name]}"] = Known(wanted, f"flag {flag}", value.strip())
    talk.use_agent(agent)
    return _row(talk, name)


def _is_given(talk: Conversation, name: str) -> bool:
    return talk.settings.is_set_by_person(f"limits.{FIELDS[name]}") and _limit(talk, name) is not None


def _limit(talk: Conversation, name: str) -> Any:
    return getattr(talk.agent.config.limits, FIELDS[name])


def _amount_used(talk: Conversation, name: str) -> Any:
    totals = talk.session.totals
    used = {"turns": totals.turns, "tokens": totals.usage.total, "cost": totals.cost or Decimal(0)}
    return {**used, "time": talk.worked, "tool-calls": totals.all_tool_calls}[name]


def _row(talk: Conversation, name: str) -> str:
    limit = _limit(talk, name)
    if limit is None:
        return f"{name:<11} no limit"
    if not _is_given(talk, name):
        whose = "the default" if talk.settings.agent is None else "the agent's own"
        return f"{name:<11} {_format_amount(name, limit)} for each message ({whose})"
    return (
        f"{name:<11} {_format_amount(name, limit)} for the conversation, "
        f"{_format_amount(name, _amount_used(talk, name))} used"
    )


def _noun(name: str) -> str:
    return {"turns": "model turns", "time": "working time"}[name]


def _format_amount(name: str, amount: Any) -> str:
    if name == "cost":
        return format_money(Decimal(str(amount)))
    return format_seconds(round(amount, 1)) if name == "time" else str(amount)
