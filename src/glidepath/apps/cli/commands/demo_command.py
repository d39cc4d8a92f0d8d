"""See in a minute what is different: an agent you did not write lands, a budget holds, a loop is noticed.

The first scene puts a small foreign agent behind the gate. The others run on the embedded model, a real one of 135
million parameters: no key, no account, no network once the model is here. Where it is unavailable, a scripted model
takes its place. With your own task, one agent with one tool answers it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import gather
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.spi import Model

EMBEDDED = "local:smollm2"
SCRIPTED = "scripted"
NEXT = """\
Next, the agent that you use, with a limit:
  glidepath gate run --max-budget-usd 0.50 -- claude -p "fix the failing test"
Or with a model of your choice, on the folder you are in:
  export ANTHROPIC_API_KEY=...
  glidepath run --model anthropic:claude-sonnet-4-5 --max-budget-usd 0.50 "what is in this folder?"
  glidepath chat --model anthropic:claude-sonnet-4-5
`glidepath models` lists the others, `glidepath run --help` every flag.
"""
_MADE_UP = "what it says is made up, what the runtime does is real."
_ABOUT = (
    "The model is local:smollm2, a real model of 135 million parameters. It runs on this machine and needs no key. "
    "It is small, so watch what the runtime does, not what the model says."
)
_MEGA = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", help="ask this instead: one agent with an atlas of three cities")
    parser.add_argument(
        "--model", metavar="NAME", default=EMBEDDED, help=f"another model, or {SCRIPTED} (default: {EMBEDDED})"
    )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Fetch the model if needed, play the scenes, and print what to do next."""
    if options.task is not None:
        return _run_one_task(options, world)
    from glidepath.apps.cli.demo_gate import play_gate

    if not asyncio.run(play_gate(world)):
        world.complain("the gate could not be shown; `glidepath gate run --help` has its flags")
        return 1
    world.write("\n")
    model = _model_or_script(options.model, world)
    try:
        fine = asyncio.run(_play_scenes(model, world))
        if not fine and options.model == EMBEDDED and model.name != SCRIPTED:
            from glidepath.apps.cli.demo_scenarios import make_scripted_model

            world.write("\nThe embedded model does not work here, so here it is again with a scripted model:\n")
            fine = asyncio.run(_play_scenes(make_scripted_model(), world))
    finally:
        getattr(model, "close", _do_nothing)()
    if not fine:
        world.complain("the model failed; `glidepath demo --model scripted` needs none")
        return 1
    _show_simulator(world)
    world.write("\n" + NEXT)
    return 0


async def _play_scenes(model: Model, world: CliContext) -> bool:
    """Play the scenes in order; False as soon as the model fails."""
    from glidepath.apps.cli.demo_scenarios import DemoStage

    stage = DemoStage(model, world)
    return await stage.limit() and await stage.budget() and await stage.loop()


def _model_or_script(name: str, world: CliContext) -> Any:
    """The named model; a scripted one if the embedded model is unavailable."""
    from glidepath.apps.cli.agent_maker import make_model
    from glidepath.apps.cli.demo_scenarios import make_scripted_model, wrap_text

    if name == SCRIPTED:
        world.write(wrap_text(f"The model is scripted: {_MADE_UP}", world))
        return make_scripted_model()
    if name != EMBEDDED:
        world.write(f"The model is {name}.\n")
        return make_model(name, world)
    try:
        _fetch(world)
        model = make_model(name, world)
    except ConfigurationError as error:
        world.write(f"The embedded model is not available: {str(error).splitlines()[0]}\n")
        world.write(wrap_text(f"A scripted model takes its place: {_MADE_UP}", world))
        return make_scripted_model()
    world.write(wrap_text(_ABOUT, world))
    return model


def _show_simulator(world: CliContext) -> None:
    """Two lines of `glidepath sim`."""
    from glidepath.apps.cli.demo_scenarios import wrap_text
    from glidepath.testing import SPECIMENS, simulate

    report = simulate(real_time=False)
    held = sum(flight.contained for flight in report.flights)
    holes = "no holes found" if report.ok else f"{len(report.findings)} findings"
    slow = sum(kind.real_time for kind in SPECIMENS)
    world.write("\n")
    for indent, line in (
        ("", "`glidepath sim` runs a configuration against misbehaving models and tools before production does:"),
        ("   ", f"{held} of {len(report.flights)} scenarios were contained by the default limits and guards, {holes}"),
        ("   ", f"({slow} more take real seconds; `glidepath sim` runs all {len(SPECIMENS)})"),
    ):
        world.write(wrap_text(line, world, indent))


def _run_one_task(options: argparse.Namespace, world: CliContext) -> int:
    """Let one agent with one tool answer a question, as `glidepath run` would show it."""
    from glidepath.agent import Agent, Limits
    from glidepath.apps.cli.agent_maker import make_model
    from glidepath.apps.cli.commands.run_command import make_screen, run_agent
    from glidepath.apps.cli.demo_scenarios import look_up_city, make_scripted_model

    settings = gather(argparse.Namespace(no_config=True), world)
    own = options.model == EMBEDDED
    if own:
        _fetch(world)
    model = make_scripted_model() if options.model == SCRIPTED else make_model(options.model, world)
    limits = Limits(max_iterations=4, max_tokens=4000, timeout=120)
    agent = Agent(
        model=model, tools=[look_up_city], limits=limits, temperature=0 if own else None, max_output_tokens=256
    )
    world.write(f"model  {options.model}\ntool   atlas\nlimits 4 turns, 4k tokens, 2 minutes\n\n> {options.task}\n")
    try:
        code = asyncio.run(run_agent(agent, options.task, make_screen(settings, agent, world), settings, world))
    finally:
        getattr(model, "close", _do_nothing)()
    if code == 0:
        world.write("\n" + NEXT)
    return code


def _fetch(world: CliContext) -> None:
    from glidepath.models import pull

    pull("smollm2", progress=progress_line(world))


def progress_line(world: CliContext) -> Callable[[int, int], None]:
    """A function that shows download progress, on a terminal only."""
    live = world.is_terminal(world.stderr)
    last = [-1]

    def show(done: int, total: int) -> None:
        share = min(100, done * 100 // total) if total else 100
        if share == last[0] or (last[0] < 0 and share == 100):  # noqa: PLR2004 - it was here already
            return
        last[0] = share
        if live:
            end = "\n" if share == 100 else ""  # noqa: PLR2004
            world.stderr.write(f"\rfetching the model {share:3d} % of {total // _MEGA} MB{end}")
            world.stderr.flush()

    return show


def _do_nothing() -> None:
    pass
