"""Put a gate before an agent that is not written in glidepath: it lands inside its budget, with an answer.

`gate run` starts a command behind its own gate. `gate serve` is a gate for many, with keys. `gate env` prints the
variables that point a shell at a gate that runs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Protocol

from glidepath.apps.cli.arguments import parse_whole_number

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext


class Flags(Protocol):
    """A parser, or a group of one."""

    def add_argument(self, *names: str, **options: Any) -> object:
        """Add a flag."""
        ...


_EXAMPLES = """\
examples:
  glidepath gate run --max-budget-usd 0.50 -- claude -p "fix the failing test"
  glidepath gate run --max-tokens 200k --report run.json -- codex exec "write the changelog"
  glidepath gate run --max-calls 40 --upstream http://127.0.0.1:11434 -- opencode run "tidy up"
  glidepath gate run --inject cut-stream -- claude -p "fix the failing test"
  glidepath gate serve --config gate.toml
  eval "$(glidepath gate env)"
"""
_RUN = """\
Everything after -- is the command. It gets its own terminal and signals, and its exit code is passed on. Known
programs are prepared by a table (claude, codex, opencode, gemini, qwen, aider, mini, goose, also behind npx, uvx,
node or python); others by the variables of the vendors' SDKs. No file of yours is changed.

Whose key is used: with --upstream, or when a vendor's key is in the environment, the command gets a key of this gate
and the vendor's key stays here (swap). Otherwise the command's own login is passed through to the vendor.
"""
_MOST_CODE = 255


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    run = actions.add_parser(
        "run",
        help="run a command behind its own gate",
        usage="glidepath gate run [flags] -- COMMAND ...",
        epilog=_RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run_flags(run)
    serve = actions.add_parser("serve", help="a gate for many agents, with keys and budgets from a file")
    _add_serve_flags(serve)
    env = actions.add_parser("env", help='print variables for a shell: eval "$(glidepath gate env)"')
    env.add_argument("--line", default="", metavar="PATH", help="names the line below the key, such as ann/run-77")
    env.add_argument("--port", type=int, metavar="N", help="the port of the gate, where more than one runs")


def add_limit_flags(run: Flags) -> None:
    """Add the limits of a run behind a gate."""
    run.add_argument("--max-tokens", type=parse_whole_number, metavar="N", help="tokens in total, input and output")
    run.add_argument("--max-budget-usd", metavar="USD", help="dollars in total")
    run.add_argument("--max-calls", type=parse_whole_number, metavar="N", help="model calls in total")
    run.add_argument("--timeout", metavar="TIME", help="time for the whole run: seconds, or 90s, 30m, 1h30m")


def add_upstream_flags(run: Flags) -> None:
    """Add where its calls go."""
    run.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="[DIALECT=]URL",
        help="where calls go, for anthropic, openai or gemini, or for all; may be repeated (default: the vendors)",
    )
    run.add_argument(
        "--passthrough", action="store_true", help="the command keeps its own login, also when a key is there"
    )


def _add_run_flags(run: argparse.ArgumentParser) -> None:
    add_limit_flags(run)
    add_upstream_flags(run)
    run.add_argument(
        "--store",
        metavar="URL",
        help="where the run is kept: a path, postgresql://..., none (default: GLIDEPATH_STORE, else default)",
    )
    run.add_argument("--report", metavar="FILE", help="write what was used, by whom, and how it ended, as JSON")
    run.add_argument("--observe", action="store_true", help="change and refuse nothing; only count")
    run.add_argument(
        "--inject",
        default="",
        metavar="SCENARIO[,SEED]",
        help="a bad day between the command and its model, such as cut-stream or rate-limit-storm,7; list shows all",
    )
    run.add_argument("--record", action="store_true", help="keep requests and replies, to be replayed")
    _add_otel_flag(run)
    run.add_argument(
        "--exit-landed", type=int, metavar="CODE", help="exit with this code when a limit landed a command that exits 0"
    )
    run.add_argument("words", nargs="*", metavar="COMMAND", help="the command and its arguments, after --")


def _add_otel_flag(parser: Flags) -> None:
    parser.add_argument(
        "--otel",
        action="store_true",
        help="send spans and metrics to OpenTelemetry, set up by the usual OTEL_* variables",
    )


def _add_serve_flags(serve: argparse.ArgumentParser) -> None:
    from glidepath.apps.cli.commands.serve_command import add_lock_flags

    serve.add_argument("--config", required=True, metavar="FILE", help="gate.toml: upstreams, keys, limits, models")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=7448, help="which port (default: 7448); 0 takes a free one")
    serve.add_argument(
        "--store", metavar="URL", help="where runs and keys are kept (default: GLIDEPATH_STORE, else serve)"
    )
    add_lock_flags(serve)
    _add_otel_flag(serve)
    serve.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="another host name that requests may use"
    )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    from glidepath.apps.cli.extras import require_extra

    if options.action == "env":
        from glidepath.apps.cli.gate_server import print_env

        return print_env(options, world)
    require_extra("aiohttp", "gate")
    require_extra("uvicorn", "gate")
    if options.action == "serve":
        from glidepath.apps.cli.gate_server import serve

        return serve(options, world)
    return _run(options, world)


def _run(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.gate.child import CannotStart
    from glidepath.apps.gate.run_behind import run_command
    from glidepath.apps.gate.run_plan import plan_upstreams
    from glidepath.apps.gate.wind_tunnel import LIST, describe_scenarios, read_injection
    from glidepath.values import ConfigurationError

    if options.inject == LIST:
        world.write(describe_scenarios() + "\n")
        return 0
    if options.inject:
        read_injection(options.inject)
    if not options.words:
        raise ConfigurationError("name the command after --: glidepath gate run --max-tokens 200k -- claude -p '...'")
    if options.exit_landed is not None and not 0 <= options.exit_landed <= _MOST_CODE:
        raise ConfigurationError(f"--exit-landed must be between 0 and {_MOST_CODE}, not {options.exit_landed}")
    upstreams = plan_upstreams(options.upstream, world.environ, passthrough=options.passthrough)
    limits = read_limits(options)
    try:
        flown = run_command(
            options.words,
            limits=limits,
            upstreams=upstreams,
            environ=world.environ,
            say=world.note,
            observe=options.observe,
            store=_find_store(options.store, world),
            inject=options.inject,
            record=options.record,
            telemetry=_find_telemetry(options),
        )
    except CannotStart as error:
        world.complain(str(error))
        return error.code
    world.note(flown.words)
    if options.report:
        write_report(options.report, flown.report | {"exit_code": flown.code, "command": options.words[0]}, world)
    landed = bool(flown.report.get("landed"))
    return options.exit_landed if landed and flown.code == 0 and options.exit_landed is not None else flown.code


def _find_telemetry(options: argparse.Namespace) -> Any:
    """What sets telemetry up, where that was asked for; what it needs is checked here."""
    if not options.otel:
        return None
    from glidepath.apps.cli.agent_maker import check_telemetry, make_telemetry

    check_telemetry()
    return make_telemetry


def _find_store(said: str | None, world: CliContext) -> Any:
    """Where the run is kept, as other runs of this person are; None when it is not."""
    from glidepath.apps.cli.stores import DEFAULT_STORE, NO_STORE, check_store, open_redacted_store, why_not_kept

    name = said or world.environ.get("GLIDEPATH_STORE")
    if name == NO_STORE:
        return None
    if name is None:
        why = why_not_kept()
        if why is not None:
            world.note(f"glidepath gate: this run is not kept: {why}")
            return None
        name = DEFAULT_STORE
    check_store(name, world, new=True)
    return open_redacted_store(name, None, world)


def read_limits(options: argparse.Namespace) -> Any:
    """The limits in the flags; raises `ConfigurationError`."""
    from glidepath.agent import Limits
    from glidepath.values import ConfigurationError

    given = {
        "max_tokens": options.max_tokens,
        "max_cost": options.max_budget_usd,
        "max_iterations": options.max_calls,
        "timeout": options.timeout,
    }
    flags = {"max_cost": "--max-budget-usd", "max_iterations": "--max-calls"}
    try:
        return Limits(**{name: value for name, value in given.items() if value is not None})
    except ConfigurationError as error:
        text = str(error)
        for name in given:
            text = text.replace(f"Limits.{name}", flags.get(name, f"--{name.replace('_', '-')}"))
        raise ConfigurationError(text) from None


def write_report(name: str, report: dict[str, Any], world: CliContext) -> None:
    """Write what a run used into a file that only its owner can read."""
    import json
    from pathlib import Path

    from glidepath.apps.cli.private_files import write_private
    from glidepath.values import ConfigurationError

    path = world.folder / Path(name).expanduser()
    try:
        write_private(path, json.dumps(report, indent=1, default=str).encode() + b"\n")
    except OSError as error:
        raise ConfigurationError(f"--report: {path} cannot be written: {error.strerror}") from None
