"""Run your configuration against misbehaving models and tools, before production does.

The model and the tools are replaced; limits, guards, plugins and constraints are yours. Nothing is called outside.
Exit code 0: no hole found. 1: there are holes, and each comes with advice. 2: usage.
"""

from __future__ import annotations

import argparse
from textwrap import fill
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import gather
from glidepath.apps.cli.usage_errors import to_write
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.testing.simulator import Flight, Report

_WIDE = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="MODULE:NAME", help="use this Agent or LoopConfig, not a configuration file")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="run every scenario N times (default: 1)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a scenario or a family of them; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and what each of them does")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=to_write,
        metavar="FILE",
        help="write flights and findings as JSON; without FILE or with - print it",
    )
    parser.add_argument("--html", type=to_write, metavar="FILE", help="write the report as a web page")
    parser.add_argument("--no-real-time", action="store_true", help="skip scenarios that need real threads and seconds")
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Run, print the table and the advice."""
    if options.list:
        return _list(options, world)
    from glidepath.testing import simulate

    subject = choose_subject(options, world)
    printed = options.json is not None and str(options.json) == "-"
    progress = _make_progress_display(world)
    report = simulate(
        subject, seeds=options.seeds, only=options.only, real_time=not options.no_real_time, progress=progress
    )
    progress(0, 0, None)
    if not printed:
        _show(report, world)
    _write(report, options, world, printed=printed)
    return 0 if report.ok else 1


def _list(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.testing import SPECIMENS
    from glidepath.values import ConfigurationError

    printed = options.json is not None and str(options.json) == "-"
    if options.json is not None and not printed:
        raise ConfigurationError("--list --json prints one JSON object per scenario; --list writes no file")
    if printed:
        for kind in SPECIMENS:
            world.write_json({"name": kind.name, "family": kind.family, "about": (kind.__doc__ or "").splitlines()[0]})
        return 0
    wide = max(len(kind.name) for kind in SPECIMENS)
    family = ""
    for kind in SPECIMENS:
        if kind.family != family:
            family = kind.family
            world.stdout.write(f"{family}\n")
        world.stdout.write(f"  {kind.name:<{wide}}  {(kind.__doc__ or '').splitlines()[0]}\n")
    return 0


def choose_subject(options: argparse.Namespace, world: CliContext) -> Any:
    """The named agent, else the one in the configuration file, else None for the defaults."""
    from glidepath.apps.cli.agent_maker import config_fields, make_tools
    from glidepath.apps.cli.deck_server import find_agent

    if options.agent:
        return find_agent(options.agent, world)
    settings = gather(options, world)
    if settings.file is None:
        return None
    from glidepath.agent import LoopConfig
    from glidepath.testing import ScriptedModel

    fields = config_fields(settings)
    fields["model"] = ScriptedModel(name=settings.get("model") or "model")  # never called, so no key is needed
    fields["tools"] = make_tools(settings, world)
    return LoopConfig(**fields)


def _make_progress_display(world: CliContext) -> Any:
    if not world.is_terminal(world.stderr):
        return lambda *_: None

    def show(done: int, of: int, flight: Flight | None) -> None:
        if flight is None:
            world.stderr.write("\r\x1b[K")
        elif done % 5 == 0 or done == of:
            full = 24 * done // of
            world.stderr.write(f"\r[{'#' * full}{'.' * (24 - full)}] {done}/{of} {flight.specimen[:30]:<30}")
        world.stderr.flush()

    return show


def _show(report: Report, world: CliContext) -> None:
    rows: dict[str, list[Flight]] = {}
    for flight in report.flights:
        rows.setdefault(flight.specimen, []).append(flight)
    world.stdout.write(f"{'scenario':<26} {'held':<4} {'ended':<26} {'answer':<7} {'over':>4} {'time':>7}\n")
    for name, flights in rows.items():
        worst = max(flights, key=lambda flight: (not flight.contained, len(flight.problems), flight.overshoot))
        ended = "cannot take off" if worst.refused else f"{worst.state}/{worst.outcome}"
        world.stdout.write(
            f"{name:<26} {'yes' if worst.contained else 'NO':<4} {ended[:26]:<26} {worst.answer:<7} "
            f"{worst.overshoot:>4.0%} {worst.seconds:>5.1f} s\n"
        )
    contained = sum(flight.contained for flight in report.flights)
    world.stdout.write(
        f"\n{contained} of {pluralize(len(report.flights), 'flight')} contained, {report.cpu_seconds:g} s of CPU time\n"
    )
    if report.skipped:
        world.stdout.write(f"not run, because the configuration has no tools: {', '.join(report.skipped)}\n")
    for finding in report.findings:
        text = f"{finding.severity.upper()} {finding.code}: {finding.what}. {finding.advice}"
        world.stdout.write("\n" + fill(text, _WIDE, subsequent_indent="  ", break_on_hyphens=False) + "\n")
    if not report.findings:
        world.stdout.write("no holes found\n")


def _write(report: Report, options: argparse.Namespace, world: CliContext, *, printed: bool) -> None:
    from glidepath.testing.simulator import encode_report
    from glidepath.testing.simulator.page import page

    if printed:
        world.stdout.write(encode_report(report) + "\n")
    for path, text in ((None if printed else options.json, encode_report(report)), (options.html, page(report))):
        if path is not None:
            try:
                (world.folder / path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
            world.note(f"wrote {path}")
