"""`glidepath runs show --plot`: how each limit of a stored run was used up.

A row is a turn, as `max_turns` counts it. The call of a landing is paid from the reserve and is not a turn, so its row
is called a landing. A session with several messages gets one row for each message.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.status import clip_line
from glidepath.run import dollars
from glidepath.values import Burn, ConfigurationError, text_burndown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from glidepath.sessions import StoredJournal
    from glidepath.spi import SessionStore
    from glidepath.testing import Flown
    from glidepath.testing.simulator.whatif import WhatIfMoment

_KINDS = (
    ("turns", "max_iterations", "turns"),
    ("tokens", "max_tokens", "tokens"),
    ("dollars", "max_cost", "money"),
    ("tool calls", "max_tool_calls", "tool_calls"),
    ("seconds", "timeout", "elapsed"),
)
_TASK = 30


async def plot_session(session: str, store: SessionStore, world: CliContext) -> int:
    """Print what was left of each limit after each turn, or after each message of a session that has several."""
    from glidepath.sessions import read_journal

    journal = await read_journal(store, _check_not_a_team(session, "--plot"))
    runs, limits = _runs(session, journal), _limits(journal)
    if not runs:
        world.note("nothing has been used yet, so there is nothing to plot")
        return 0
    lines = _format_messages(runs, limits) if len(runs) > 1 else _format_turns(runs[0], limits)
    world.write("".join(f"{line}\n" for line in lines))
    return 0


async def show_json(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Print a session as one JSON object, with `--plot` its burn-down, too."""
    from glidepath import _wire
    from glidepath.sessions import read_journal

    session = _check_not_a_team(options.session, "--json")
    journal = await read_journal(store, session)
    folded, last = journal.folded, options.limit
    messages = folded.messages if last is None else folded.messages[max(len(folded.messages) - max(last, 0), 0) :]
    known: dict[str, Any] = {"session_id": session, "result": folded.result, "messages": messages}
    if options.plot:
        known["burn_down"] = burndown_json(session, journal)
    world.write(_wire.encoder(enc_hook=repr)(known).decode() + "\n")
    return 0


def burndown_json(session: str, journal: StoredJournal) -> list[dict[str, Any]]:
    """The same as plain data: each message of the session with its limits, and what was used after each reply."""
    limits = _limits(journal)
    return [
        {
            "run_id": run.run_id,
            "outcome": run.outcome,
            "task": run.task,
            "limits": {name.replace(" ", "_"): limits[field] for name, field, _ in _KINDS if field in limits},
            "replies": [
                {
                    "turn": None if landing else moment.own_turns,
                    **{name.replace(" ", "_"): _amount_at(run, moment, kind) for name, _, kind in _KINDS},
                }
                for moment, landing in _mark_landings(run)
            ],
        }
        for run in _runs(session, journal)
    ]


def _format_turns(run: Flown, limits: Mapping[str, float]) -> list[str]:
    labels = ["landing" if landing else f"turn {moment.own_turns:>4}" for moment, landing in _mark_landings(run)]
    last = run.last
    notes = {"turns": ", child agents included"} if last.turns - last.carried.turns != last.own_turns else {}
    burns = [
        Burn(name, _figures(run, kind), limits.get(field), notes.get(kind, ""))
        for name, field, kind in _KINDS
        if kind != "money" or run.priced
    ]
    return [*text_burndown(burns, labels=labels), *_explain_missing_price([run])]


def _format_messages(runs: Sequence[Flown], limits: Mapping[str, float]) -> list[str]:
    """One row a message: what it left of each limit, which is its own or the whole conversation's."""
    wide = len(str(len(runs)))
    labels = [
        f"message {number:>{wide}} {clip_line(_join_lines(run.task), _TASK)}" for number, run in enumerate(runs, 1)
    ]
    burns = []
    for name, field, kind in _KINDS:
        if kind == "money" and not all(run.priced for run in runs):
            continue
        used = [_figures(run, kind)[-1] for run in runs]
        shared = kind != "elapsed" and any(getattr(run.last.carried, kind) for run in runs)
        limit = limits.get(field)
        if limit is None:
            burns.append(Burn(name, [used[-1] if shared else sum(used)], None, " in the whole session"))
        else:
            note = " of the whole session" if shared else " in the last message; each may use as much"
            burns.append(Burn(name, used, limit, note))
    return [*text_burndown(burns, labels=labels), *_explain_missing_price(runs)]


def _explain_missing_price(runs: Sequence[Flown]) -> list[str]:
    return [] if all(run.priced for run in runs) else ["", "dollars: unknown, because the model has no price"]


def _mark_landings(run: Flown) -> list[tuple[WhatIfMoment, bool]]:
    """The replies, and whether each is one of a landing."""
    before = [0, *[moment.landing_calls for moment in run.moments]]
    return [(moment, moment.landing_calls > earlier) for moment, earlier in zip(run.moments, before, strict=False)]


def _amount_at(run: Flown, moment: WhatIfMoment, kind: str) -> float | None:
    if kind == "money":
        return float(dollars(moment.money)) if run.priced else None
    figure: float = getattr(moment, kind)
    return figure


def _figures(run: Flown, kind: str) -> list[float]:
    return [float(_amount_at(run, moment, kind) or 0) for moment in run.moments]


def _check_not_a_team(session: str, flag: str) -> str:
    if session.startswith("team:"):
        raise ConfigurationError(f"{flag}: {session} is a team; name the session of one of its members")
    return session


def _runs(session: str, journal: StoredJournal) -> list[Flown]:
    from glidepath.testing.simulator.whatif import session_runs

    return list(session_runs(session, journal.commits))


def _limits(journal: StoredJournal) -> dict[str, float]:
    config = journal.folded.config
    known = {} if config is None else config.limits
    found: dict[str, float] = {}
    for _, field, _ in _KINDS:
        with suppress(InvalidOperation):  # of a damaged or foreign journal
            found |= {field: float(Decimal(known[field]))} if field in known else {}
    return found


def _join_lines(text: str) -> str:
    return " ".join(text.split())
