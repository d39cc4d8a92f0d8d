"""Try an agent on a dataset: pass rate with its interval, cost, and what a smaller budget would buy.

FILE is a dataset: .py, .yaml, .jsonl or .csv. Every case is a durable run: an evaluation that was stopped continues
under the same --name without repeating a finished case.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags, parse_whole_number
from glidepath.apps.cli.cli_context import screen_size
from glidepath.apps.cli.usage_errors import to_write
from glidepath.values import ConfigurationError, check_int, check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glidepath.agent import Limits
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.evals import Curve, EvalProgress, EvalReport

_EXAMPLES = """\
examples:
  glidepath eval cases.csv --agent app:agent --repeat 5 --max-budget-usd 2
  glidepath eval cases.yaml --agent app:agent --at-least 0.9 --junit report.xml --html report.html
  glidepath eval list
  glidepath eval show NAME --html report.html
  glidepath eval compare BEFORE AFTER
  glidepath eval curve NAME --by max_cost --html curve.html

exit codes:
  0  everything is covered, and the pass rate is at least --at-least
  1  the pass rate is below --at-least; compare: the second is worse, and that is hardly chance
  3  something is not covered: the budget ended, a case could not be used, an evaluator could not say
"""
_ACTIONS = ("list", "show", "compare", "curve")
_BELOW, _UNCOVERED = 1, 3
_AT_ONCE, _EVALUATOR_SECONDS = 8, 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "words", nargs="+", metavar="FILE", help="the dataset; or list, show NAME, compare A B, curve NAME"
    )
    what = parser.add_argument_group("what is tried")
    what.add_argument("--agent", metavar="MODULE:NAME", help="the Agent, or a function that makes one for each case")
    program = "a program instead, behind the gate, such as 'claude -p {prompt}'"
    what.add_argument("--command", dest="program", metavar="WORDS", help=program)
    what.add_argument("--upstream", action="append", default=[], metavar="[DIALECT=]URL", help="where its calls go")
    what.add_argument("--case-max-usd", metavar="USD", help="dollars for each run of that program")
    what.add_argument("--case-max-tokens", type=parse_whole_number, metavar="N", help="tokens for each of its runs")
    what.add_argument("--case-timeout", metavar="TIME", help="time for each of its runs: seconds, or 90s, 30m")
    what.add_argument(
        "--evaluator",
        action="append",
        default=[],
        metavar="NAME",
        help="exact, contains, json, regex, delivered, or a function as MODULE:NAME; may be repeated",
    )
    what.add_argument("--repeat", type=int, default=1, metavar="N", help="run every case N times (default: 1)")
    what.add_argument("--head", type=int, metavar="N", help="only the first N cases")
    how = parser.add_argument_group("how")
    at_once = f"cases at the same time (default: {_AT_ONCE})"
    how.add_argument("--concurrency", type=int, default=_AT_ONCE, metavar="N", help=at_once)
    how.add_argument("--max-budget-usd", metavar="USD", help="dollars for all runs and judges together")
    how.add_argument("--max-tokens", type=parse_whole_number, metavar="N", help="tokens for all of them together")
    how.add_argument("--timeout", metavar="TIME", help="time for all of them together: seconds, or 90s, 30m")
    how.add_argument("--name", metavar="NAME", help="the name of the evaluation; one that exists is continued")
    how.add_argument(
        "--evaluator-timeout",
        type=float,
        default=_EVALUATOR_SECONDS,
        metavar="S",
        help=f"seconds that one evaluator has (default: {_EVALUATOR_SECONDS:g})",
    )
    curve = parser.add_argument_group("curve: pass rate and cost at smaller limits for each run, from one evaluation")
    curve.add_argument("--by", default="max_cost", metavar="LIMIT", help="max_cost, max_tokens, max_iterations, ...")
    curve.add_argument("--rerun", action="store_true", help="run every case again at each limit, and compare")
    out = parser.add_argument_group("results")
    out.add_argument("--at-least", type=_parse_share, metavar="SHARE", help="exit with 1 below this pass rate, as 0.9")
    out.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=to_write,
        metavar="FILE",
        help="write the report as JSON; without FILE or with - print it",
    )
    out.add_argument("--junit", type=to_write, metavar="FILE", help="write a JUnit file for a CI server")
    out.add_argument("--html", type=to_write, metavar="FILE", help="write a page with plots")
    out.add_argument("--store", metavar="URL", help="where runs and results are kept; none keeps nothing")
    out.add_argument("--redact", metavar="HOOK", help=argparse.SUPPRESS)
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    action, *rest = options.words
    if action not in _ACTIONS:
        if rest:
            raise ConfigurationError(f"expected one dataset, not {' '.join(options.words)!r:.100}")
        return _evaluate(action, options, world)
    if action == "list":
        return _list(options, world)
    if action == "compare":
        return _compare(rest, options, world)
    if action == "curve":
        return _draw_curve(rest, options, world)
    if len(rest) != 1:
        raise ConfigurationError("show: name one evaluation; `glidepath eval list` has them")
    return _finish(_find_reports(rest, options, world)[0], options, world)


# --- running ------------------------------------------------------------------------------------------------------


def _evaluate(file: str, options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.agent_maker import search_folder
    from glidepath.apps.evals import Dataset, make_eval_name
    from glidepath.run import CancelToken

    if bool(options.agent) == bool(options.program):
        raise ConfigurationError("name the agent under test: --agent MODULE:NAME, or --command 'PROGRAM {prompt}'")
    search_folder(world)  # a dataset in Python may import what the agent is made of
    dataset = Dataset.load(world.folder / Path(file).expanduser())
    if options.head is not None:
        check_int("--head", options.head, required=True)
        dataset = dataset.head(options.head)
    check_int("--repeat", options.repeat, required=True)
    check_int("--concurrency", options.concurrency, required=True)
    check_seconds("--evaluator-timeout", options.evaluator_timeout, required=True)
    agent = _make_command(options, world) if options.program else _find_agent(options.agent, world)
    evaluators = [_find_evaluator(one, world) for one in options.evaluator]
    store, name = _open_store(options, world), options.name or make_eval_name(dataset.name)
    if store is not None:
        world.note(f"evaluation {name}")
    show = _make_progress_display(world)
    token = CancelToken()
    arguments: dict[str, Any] = {
        "evaluators": evaluators,
        "repeat": options.repeat,
        "concurrency": options.concurrency,
        "budget": _make_budget(options),
        "store": store,
        "name": name,
        "evaluator_seconds": options.evaluator_timeout,
        "source": {
            "file": str(world.folder / file),
            "agent": options.agent or "",
            "folder": str(world.folder),
            "evaluators": " ".join(options.evaluator),
        },
    }
    report, signal = asyncio.run(_fly(dataset, agent, arguments, token, show, world))
    show(None)
    code = _finish(report, options, world)
    if store is not None and not report.complete and any(one.open for one in report.results) | bool(signal):
        world.note(f"to continue: {_make_repeat_command(file, options, name)}")
    return code if signal is None else 128 + signal


async def _fly(
    dataset: Any, agent: Any, arguments: dict[str, Any], token: Any, show: Callable[..., None], world: CliContext
) -> tuple[EvalReport, int | None]:
    from glidepath.apps.cli.signals import abandon_tasks, catch_signals
    from glidepath.apps.evals import evaluate

    class Stopping(type(token)):  # type: ignore[misc]
        """Ctrl-C stops at once: an answer that was hurried says nothing about the agent."""

        def wind_down(self, reason: str = "") -> None:
            self.cancel(reason)

    stopping = Stopping()
    try:
        with catch_signals(stopping, lambda _: world.note("stopping; unfinished cases can be continued")) as caught:
            report = await evaluate(dataset, agent, progress=show, cancel=stopping, **arguments)
        return report, caught.number
    finally:
        if arguments["store"] is not None:
            await arguments["store"].close()
        await abandon_tasks()


_REPEATED = (
    *("agent", "program", "upstream", "case_max_usd", "case_max_tokens", "case_timeout"),
    *("evaluator", "evaluator_timeout", "repeat", "head", "concurrency"),
    *("max_budget_usd", "max_tokens", "timeout", "config", "set"),
)
"""What the command that continues an evaluation must repeat."""


def _make_repeat_command(file: str, options: argparse.Namespace, name: str) -> str:
    """The command that continues it: with the same agent, evaluators and budget."""
    usual = {"evaluator_timeout": _EVALUATOR_SECONDS, "repeat": 1, "concurrency": _AT_ONCE}
    words = ["glidepath", "eval", shlex.quote(file)]
    for field in _REPEATED:
        given = getattr(options, field)
        flag = "--command" if field == "program" else f"--{field.replace('_', '-')}"
        if given is not None and given != usual.get(field):
            for one in given if isinstance(given, list) else [given]:
                words += [flag, shlex.quote(str(one))]
    if options.store is not None:  # it may have a password
        words += ["--store", '"$GLIDEPATH_STORE"' if "://" in options.store else shlex.quote(options.store)]
    if options.no_config:
        words.append("--no-config")
    return " ".join([*words, "--name", name])


def _find_agent(named: str, world: CliContext) -> Any:
    from glidepath.apps.cli.deck_server import find_agent

    return find_agent(named, world)


def _make_command(options: argparse.Namespace, world: CliContext) -> Any:
    """The program under test, behind the gate."""
    from glidepath.apps.cli.extras import require_extra

    require_extra("aiohttp", "gate")
    require_extra("uvicorn", "gate")
    from glidepath.apps.gate.evaluated_command import EvaluatedCommand
    from glidepath.apps.gate.run_plan import plan_upstreams

    try:
        words = shlex.split(options.program)
    except ValueError as error:
        raise ConfigurationError(f"--command {options.program!r:.80}: {error}") from None
    given = {"max_cost": options.case_max_usd, "max_tokens": options.case_max_tokens, "timeout": options.case_timeout}
    limits = _make_limits({name: value for name, value in given.items() if value is not None}, "--case-")
    upstreams = plan_upstreams(options.upstream, world.environ)
    return EvaluatedCommand(words, upstreams, limits=limits, environ=world.environ, folder=world.folder)


def _find_evaluator(named: str, world: CliContext) -> Any:
    from glidepath.apps.cli.agent_maker import find_object
    from glidepath.apps.evals import NAMED

    if ":" not in named:
        if named not in NAMED:
            raise ConfigurationError(f"--evaluator {named:.60}: use one of {', '.join(NAMED)}, or MODULE:NAME")
        return NAMED[named]()
    try:
        return find_object(f"python:{named.removeprefix('python:')}", world)
    except ConfigurationError as error:
        raise ConfigurationError(f"--evaluator {error}") from error


def _make_budget(options: argparse.Namespace) -> Limits | None:
    given = {"max_cost": options.max_budget_usd, "max_tokens": options.max_tokens, "timeout": options.timeout}
    return _make_limits({name: value for name, value in given.items() if value is not None}, "--")


def _make_limits(fields: dict[str, Any], flags: str) -> Limits | None:
    """These limits; raises `ConfigurationError` in the words of the flags."""
    from glidepath.agent import Limits

    if not fields:
        return None
    try:
        return Limits(**fields)
    except ConfigurationError as error:
        money = "--max-budget-usd" if flags == "--" else "--case-max-usd"
        text = str(error).replace("Limits.max_cost", money).replace("Limits.max_tokens", f"{flags}max-tokens")
        raise ConfigurationError(text.replace("Limits.", flags)) from None


def _open_store(options: argparse.Namespace, world: CliContext) -> Any:
    """The store that is named, else the default one; None when nothing is kept."""
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import add_redaction, keep_sessions, make_store

    settings = gather(options, world, only=("store", "redact"))
    keep_sessions(settings, world)
    named = settings.get("store")
    return None if not named else add_redaction(make_store(named, world), settings, world)


def _make_progress_display(world: CliContext) -> Callable[[EvalProgress | None], None]:
    from glidepath.apps.evals import format_dollars

    if not world.is_terminal(world.stderr):
        return lambda _: None

    def show(now: EvalProgress | None) -> None:
        if now is None:
            world.stderr.write("\r\x1b[K")
        else:
            full = 24 * now.done // max(1, now.planned)
            cost = "" if now.cost is None else f", {format_dollars(now.cost)}"
            world.stderr.write(
                f"\r\x1b[K[{'#' * full}{'.' * (24 - full)}] {now.done}/{now.planned}  {now.passed} passed, "
                f"{now.failed} failed, {now.uncovered} not covered{cost}"
            )
        world.stderr.flush()

    return show


# --- results ------------------------------------------------------------------------------------------------------


def _find_reports(names: Sequence[str], options: argparse.Namespace, world: CliContext) -> list[EvalReport]:
    """The reports of these names: evaluations in the store, or files that --json has written."""
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import assume_store, make_store, on_store
    from glidepath.apps.evals import EvalReport

    async def read(kept: Any) -> list[EvalReport]:
        return [await EvalReport.find(name, kept) for name in names if name not in files]

    files: dict[str, EvalReport] = {}
    for name in names:
        path = world.folder / Path(name).expanduser()
        if path.suffix == ".json" and path.is_file():
            files[name] = EvalReport.of_json(path.read_bytes())
    stored: list[EvalReport] = []
    if len(files) < len(set(names)):
        settings = gather(options, world, only=("store",))
        stored = on_store(make_store(assume_store(settings, "eval"), world), read)
    rest = iter(stored)
    return [files[name] if name in files else next(rest) for name in names]


def _list(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import assume_store, make_store, on_store
    from glidepath.apps.evals import format_share, list_evaluations
    from glidepath.run import mask_controls

    printed = options.json is not None and str(options.json) == "-"
    if options.json is not None and not printed:
        raise ConfigurationError("list: --json prints one JSON object per evaluation; it writes no file")
    settings = gather(options, world, only=("store",))
    entries = on_store(make_store(assume_store(settings, "eval"), world), list_evaluations)
    for entry in entries:
        told = entry.summary
        rate = told.get("pass_rate")
        share = format_share(rate) if isinstance(rate, int | float) else "-"
        if printed:
            world.write_json({"name": entry.session_id.removeprefix("eval:"), **told})
            continue
        line = (
            f"{entry.session_id.removeprefix('eval:'):<40}  {share:>7}  {told.get('covered', 0)} of "
            f"{told.get('planned', 0)} covered  {told.get('agent', '')} on {told.get('dataset', '')}"
        )
        world.write(f"{mask_controls(line)}\n")
    if not entries:
        world.note("there are no evaluations in this store")
    return 0


def _compare(names: Sequence[str], options: argparse.Namespace, world: CliContext) -> int:
    from glidepath import _wire
    from glidepath.apps.evals import compare_reports

    if len(names) != 2:  # noqa: PLR2004 - before and after
        raise ConfigurationError("compare: name two evaluations, or two files that --json has written")
    found = compare_reports(*_find_reports(names, options, world))
    told = _wire.format_json({"sentence": found.sentence, "comparison": found}).decode() + "\n"
    if options.json is not None and str(options.json) != "-":
        _write_file(options.json, told, world)
    world.write(told if str(options.json) == "-" else found.to_text())
    return _BELOW if found.is_worse else 0


def _draw_curve(names: Sequence[str], options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.agent.limits import OTHER_LIMIT_NAMES
    from glidepath.apps.cli.layers import gather
    from glidepath.apps.cli.stores import assume_store, make_store, on_store
    from glidepath.apps.evals import CurveMaker, Dataset, read_history
    from glidepath.values import StoreError

    if len(names) != 1:
        raise ConfigurationError("curve: name one evaluation; `glidepath eval list` has them")
    (name,) = names

    async def find(store: Any) -> Any:
        try:
            return (await read_history(store, name)).began
        except StoreError as error:
            if error.kind != "missing":
                raise
            return None

    settings = gather(options, world, only=("store",))
    kept = assume_store(settings, "eval")
    began = on_store(make_store(kept, world), find)
    if began is None:
        raise ConfigurationError(f"there is no evaluation {name!r:.80} in this store")
    named, file = options.agent or began.source.get("agent"), began.source.get("file")
    if file and not named:
        raise ConfigurationError(
            "curve: this evaluation is of a command, whose runs are not recorded: only an Agent has one"
        )
    if not named or not file:
        raise ConfigurationError("curve: this evaluation was made in Python: use glidepath.evals.CurveMaker")
    # Outside of every event loop: a module may run one when it is imported.
    agent, dataset = _find_agent(named, world), Dataset.load(file)
    given = options.evaluator or began.source.get("evaluators", "").split()
    evaluators = [_find_evaluator(one, world) for one in given]

    async def draw(store: Any) -> EvalReport:
        maker = CurveMaker(
            dataset.head(began.cases) if len(dataset) > began.cases else dataset,
            agent,
            store,
            name,
            by=OTHER_LIMIT_NAMES.get(options.by, options.by),
            evaluators=evaluators,
        )
        return await maker.make(rerun=options.rerun, concurrency=options.concurrency)

    report = on_store(make_store(kept, world), draw)
    assert report.curve is not None  # noqa: S101 - it was just made
    _show_curve(report.curve, world)
    for path, make in ((options.json, report.to_json), (options.html, report.to_html)):
        if path is not None:
            _write_file(path, make(), world)
    return 0


def _show_curve(curve: Curve, world: CliContext) -> None:
    from glidepath.apps.evals import format_dollars, format_share

    tried = any(one.real_passed is not None for one in curve.points)
    heads = f"{curve.by:>14}  {'PASS RATE':>9}  {'LANDED':>6}  {'COST':>10}  {'TOKENS':>9}"
    world.write(heads + (f"   {'REALLY':>9}  {'LANDED':>6}  {'COST':>10}\n" if tried else "\n"))
    for one in curve.points:
        cost = "-" if one.cost is None else format_dollars(one.cost)
        share = f"{'~' if one.is_assumed else ''}{format_share(one.passed / max(1, one.covered))}"
        line = f"{one.limit:>14}  {share:>9}  {one.landed:>6}  {cost:>10}  {one.tokens:>9,}"
        if one.real_passed is not None:
            real = "-" if one.real_cost is None else format_dollars(one.real_cost)
            line += f"   {format_share(one.real_passed / max(1, one.covered)):>9}  {one.real_landed:>6}  {real:>10}"
        world.write(f"{line}\n")
    world.write(f"\n{curve.describe()}\n")


def _finish(report: EvalReport, options: argparse.Namespace, world: CliContext) -> int:
    """Print and write the report, and say with the exit code whether it is good enough."""
    printed = options.json is not None and str(options.json) == "-"
    width = screen_size(world.stdout)[0] if world.is_terminal(world.stdout) else None
    world.write(report.to_json() + "\n" if printed else report.to_text(width))
    for path, make in (
        (None if printed else options.json, report.to_json),
        (options.junit, report.to_junit),
        (options.html, report.to_html),
    ):
        if path is not None:
            _write_file(path, make(), world)
    if options.at_least is not None and (report.pass_rate is None or report.pass_rate < options.at_least):
        return _BELOW if report.pass_rate is not None else _UNCOVERED
    return 0 if report.complete else _UNCOVERED


def _write_file(path: Path, text: str, world: CliContext) -> None:
    from glidepath.apps.cli.private_files import write_private

    try:
        write_private(world.folder / path, text.encode("utf-8", errors="replace"))
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    world.note(f"wrote {path}")


def _parse_share(text: str) -> float:
    """A share from 0 to 1, or in percent."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share such as 0.9 or 90%, got {text!r:.40}")
    return share
