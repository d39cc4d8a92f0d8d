"""Ask what other limits, prices or guards would have done to the runs in a store. No model is called.

Example: glidepath whatif sessions.db --limits max_tokens=20000,max_cost=0.10 --plot max_tokens
"""

from __future__ import annotations

import argparse
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from glidepath.values import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glidepath.agent import Limits
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.run import Price
    from glidepath.testing import Flown
    from glidepath.testing.simulator.whatif import Forecast

_SHOWN = 40
_HEADS = ("SESSION", "ENDED", "TURNS", "TOKENS", "COST", "STOPPED BY", "AFTER", "THEN COST", "ANSWER")
_WIDTHS = (7, 11, 5, 7, 8, 23, 5, 9, 0)
_WORDS, _SPARE = (0, 1, 5, 8), (3, 2, 1, 4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from glidepath.apps.cli.session_flags import add_filters, add_store_flags

    parser.add_argument(
        "place", nargs="?", metavar="STORE", help="the store: a path or an address (default: the one in the settings)"
    )
    parser.add_argument(
        "--limits",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="limits to try: max_iterations, max_tokens, max_cost, timeout, max_tool_calls; scope=session bounds whole "
        "sessions instead of each run",
    )
    parser.add_argument(
        "--prices", action="append", default=[], metavar="MODEL=IN/OUT", help="dollars per million tokens; repeatable"
    )
    parser.add_argument(
        "--guards", action="append", default=[], metavar="NAME=N,...", help="max_repeated_tool_steps, max_error_streak"
    )
    parser.add_argument("--plot", metavar="LIMIT", help="plot how many answers each value of this limit would keep")
    parser.add_argument("--svg", metavar="FILE", help="write that plot as SVG")
    parser.add_argument(
        "--all", action="store_true", help="list every run, not only those that would have been stopped"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")
    add_filters(parser)
    add_store_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Fold the runs, and print what would have been."""
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.session_flags import choose_store, query_of
    from glidepath.apps.cli.stores import make_store, on_store
    from glidepath.testing.simulator.whatif import flown_runs, what_if
    from glidepath.values import ConfigurationError

    limits, prices, guards = _limits(options.limits), _prices(options.prices), _guards(options.guards)
    plot = _dimension(options.plot) if options.plot else None
    if options.svg and plot is None:
        raise ConfigurationError("--svg needs --plot LIMIT: the limit to plot")
    if not (options.limits or options.prices or options.guards or plot):
        raise ConfigurationError("tell it what to try: --limits max_tokens=20000, --prices, --guards or --plot LIMIT")
    store = make_store(choose_store(options, world, "whatif"), world)
    runs, unreadable = on_store(store, lambda kept: flown_runs(kept, query_of(options)))
    for problem in unreadable:
        world.note(f"left out: {problem}")
    used = {model for run in runs for model, _, _ in run.last.charges if model}
    for model in prices if runs else ():
        if model not in used:
            known = ", ".join(escape_invisible(name) for name in sorted(used))
            world.note(f"--prices {model}: no run here used this model; the models are {known}")
    fates = what_if(runs, limits, prices=prices, guards=guards)
    if options.json:
        _print_json(fates, world)
    else:
        _print_table(fates, world, everything=options.all)
    if plot:
        _plot(runs, plot, prices, limits.scope, options.svg, world)
    return 0


# --- reading ------------------------------------------------------------------------------------------------------


def _split_pairs(flag: str, given: Sequence[str]) -> list[tuple[str, str]]:
    from glidepath.values import ConfigurationError

    found = []
    for one in ",".join(given).split(",") if given else ():
        name, sign, value = one.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise ConfigurationError(f"{flag}: expected NAME=VALUE, got {one!r:.60}")
        found.append((name.strip(), value.strip()))
    return found


def _dimension(name: str) -> str:
    from glidepath.agent.limits import OTHER_LIMIT_NAMES
    from glidepath.testing.simulator.whatif import DIMENSIONS
    from glidepath.values import ConfigurationError

    meant = OTHER_LIMIT_NAMES.get(name, name)
    if meant not in DIMENSIONS:
        raise ConfigurationError(f"there is no limit {name!r:.40} to try; use one of {', '.join(DIMENSIONS)}")
    return meant


def _limits(given: Sequence[str]) -> Limits:
    from glidepath.agent import Limits
    from glidepath.apps.cli.setting_values import read_text
    from glidepath.apps.cli.settings import BY_KEY

    fields: dict[str, Any] = {}
    for name, text in _split_pairs("--limits", given):
        if name == "scope":
            fields[name] = text
            continue
        meant = _dimension(name)
        fields[meant] = read_text(BY_KEY[f"limits.{meant}"], text, f"--limits {name}")
    return Limits(**fields)


def _prices(given: Sequence[str]) -> Mapping[str, Price]:
    from glidepath.run import Price
    from glidepath.values import ConfigurationError

    found = {}
    for model, text in _split_pairs("--prices", given):
        try:
            parts = [Decimal(part) for part in text.split("/")]
        except InvalidOperation:
            parts = []
        if len(parts) not in (2, 4):
            raise ConfigurationError(f"--prices {model}: expected IN/OUT in dollars per million, got {text!r:.60}")
        found[model] = Price.per_million(parts, field=f"--prices {model}")
    return found


def _guards(given: Sequence[str]) -> Mapping[str, int]:
    from glidepath.values import ConfigurationError

    found = {}
    for name, text in _split_pairs("--guards", given):
        if not text.isdecimal() or not int(text):
            raise ConfigurationError(f"--guards {name}: expected a whole number of at least 1, got {text!r:.60}")
        found[name] = int(text)
    return found


# --- printing ------------------------------------------------------------------------------------------------------


def _print_table(fates: Sequence[Forecast], world: CliContext, *, everything: bool) -> None:
    from glidepath.apps.cli.status import format_money

    shown = [one for one in fates if everything or one.trip is not None]
    if shown:
        live = world.is_terminal(world.stdout)
        world.write("".join(f"{line}\n" for line in _table([_row(one, live=live) for one in shown], world, live=live)))
    answered = sum(one.run.answered for one in fates)
    lost, stopped = sum(one.lost for one in fates), sum(one.trip is not None for one in fates)
    paid = sum((_amount_paid(one.run) for one in fates), Decimal(0))
    then = sum((one.cost if one.trip is None else one.trip.cost for one in fates), Decimal(0))
    told = f"cost {format_money(paid)} and would have been {format_money(then)}"
    if not any(map(_has_price, fates)):
        told = "the cost is unknown, because no run has a price: --prices MODEL=IN/OUT"
    elif not any(one.run.priced for one in fates):
        told = f"what they cost is unknown; it would have been {format_money(then)}"
    runs, answers = pluralize(len(fates), "run"), pluralize(answered, "answer")
    world.write(f"{runs}: {stopped} would have been stopped; {lost} of {answers} lost; {told}\n")


def _row(one: Forecast, *, live: bool) -> list[str]:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.session_names import shorten_id
    from glidepath.apps.cli.status import clip_line, format_count, format_money

    run, trip = one.run, one.trip
    cost, instead = (
        format_money(_amount_paid(run)) if run.priced else "-",
        format_money((trip or one).cost) if _has_price(one) else "-",
    )
    name = clip_line(escape_invisible(shorten_id(run.session_id) if live else run.session_id), _SHOWN)
    row = [name, run.outcome, str(run.last.own_turns), format_count(run.tokens), cost]
    if trip is None:
        return [*row, "-", "-", instead, "kept" if run.answered else "none"]
    return [*row, trip.by, str(trip.reply), instead, "LOST" if one.lost else "none"]


def _table(rows: Sequence[Sequence[str]], world: CliContext, *, live: bool) -> Iterator[str]:
    """The lines of the table. On a terminal, columns are as wide as what is in them, and the least needed ones go."""
    from glidepath.apps.cli.cli_context import screen_size

    columns = [list(column) for column in zip(_HEADS, *rows, strict=True)]
    widths = [
        max(map(len, column)) if live else max(least, *map(len, column))
        for column, least in zip(columns, _WIDTHS, strict=True)
    ]
    kept = list(range(len(columns)))
    for place in _SPARE if live else ():
        if sum(widths[one] + 2 for one in kept) - 2 > screen_size(world.stdout)[0]:
            kept.remove(place)
    for line in zip(*columns, strict=True):
        cells = [f"{line[one]:{'<' if one in _WORDS else '>'}{widths[one]}}" for one in kept]
        yield "  ".join(cells).rstrip()


def _amount_paid(run: Flown) -> Decimal:
    """What was really paid for it."""
    from glidepath.run import dollars

    return dollars(run.paid)


def _has_price(one: Forecast) -> bool:
    """True when what a run would have cost is known; by the given prices, if not from its journal."""
    return one.run.priced or bool(one.cost)


def _print_json(fates: Sequence[Forecast], world: CliContext) -> None:
    for one in fates:
        run, trip = one.run, one.trip
        told = {
            "session_id": run.session_id,
            "run_id": run.run_id,
            "agent": run.agent,
            "outcome": run.outcome,
            "replies": len(run.moments),
            "tokens": run.tokens,
            "cost": str(_amount_paid(run)) if run.priced else None,
            "stopped_by": None if trip is None else trip.by,
            "after_reply": None if trip is None else trip.reply,
            "cost_then": str((trip or one).cost) if _has_price(one) else None,
            "answer": "lost" if one.lost else "kept" if run.answered else "none",
        }
        world.write_json(told)


def _plot(
    runs: Sequence[Flown], name: str, prices: Mapping[str, Price], scope: str, file: str | None, world: CliContext
) -> None:
    from glidepath.testing.simulator.plots import svg_plot, text_plot
    from glidepath.testing.simulator.whatif import choose_values, count_unaffected
    from glidepath.values import ConfigurationError

    total = sum(run.answered and not run.is_copy for run in runs)
    points = count_unaffected(runs, name, choose_values(runs, name, prices, scope=scope), prices, scope=scope)
    title = f"answers kept by {name}"
    world.write("\n" + "".join(f"{line}\n" for line in text_plot(title, points, total)))
    if file:
        try:
            (world.folder / file).write_text(svg_plot(title, points, total), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"--svg: {file} cannot be written: {error.strerror}") from None
        world.note(f"wrote the plot to {file}")
