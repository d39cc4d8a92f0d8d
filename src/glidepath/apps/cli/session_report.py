"""`glidepath sessions report`: what the sessions of a store have cost, added up by user, agent or model."""

from __future__ import annotations

import argparse
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import encode

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.sessions import CostRow
    from glidepath.spi import SessionStore

_EVERY = ""


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a report."""
    parser.add_argument("--by", default="user", help="what a row is: user, agent or model (default: user)")
    parser.add_argument(
        "--month", nargs="?", const=_EVERY, metavar="YYYY-MM", help="a row for each month, or this month only"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")


async def report(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Print the report."""
    from glidepath.sessions import report_costs

    month: str | None = options.month
    found = await report_costs(store, by=options.by, month=month or None, monthly=month is not None)
    rows = [_as_json(row, options.by) for row in found]
    if options.json:
        world.write("".join(encode(row).decode() + "\n" for row in rows))
    elif rows:
        _print_table(rows, options.by, world, months=month is not None)
    else:
        world.note("no session matches")
    return 0


def _as_json(row: CostRow, by: str) -> dict[str, Any]:
    shown: dict[str, Any] = {} if row.month is None else {"month": row.month}
    return {
        **shown,
        by: row.name,
        "sessions": row.sessions,
        "runs": row.runs,
        "tokens": row.tokens,
        "cost": f"{row.cost:f}",
        "unpriced": row.unpriced,
    }


def _print_table(rows: list[dict[str, Any]], by: str, world: CliContext, *, months: bool) -> None:
    from glidepath.apps.cli.display_text import escape_invisible

    names = [escape_invisible(row[by] or "(none)") for row in rows]
    width = max(len(by), *map(len, names))
    head = f"{by.upper():<{width}}  {'SESSIONS':>8}  {'RUNS':>6}  {'TOKENS':>12}  {'COST':>12}"
    lines = [f"{'MONTH':<7}  {head}" if months else head]
    for row, name in zip(rows, names, strict=True):
        cost = f"${Decimal(row['cost']):.4f}"
        line = f"{name:<{width}}  {row['sessions']:>8}  {row['runs']:>6}  {row['tokens']:>12,}  {cost:>12}"
        lines.append(f"{row.get('month', ''):<7}  {line}" if months else line)
    world.write("".join(f"{line}\n" for line in lines))
    unknown = sum(row["unpriced"] for row in rows)
    if unknown:
        world.note(f"{unknown} of them without a known price: pass prices to count what they cost")
