"""The flight simulator: tests a configuration against a library of misbehaving models and tools.

    report = simulate(agent)
    assert report.ok, report.advice()

The model and the tools are replaced by specimens and by stand-ins with the same schemas; limits, guards, constraints
and plugins are the real ones. Flights run in virtual time and are the same for the same seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath._wire import Value, encode
from glidepath.agent import Agent, Limits, LoopConfig
from glidepath.testing import ScriptedModel
from glidepath.testing.simulator.findings import Finding, find
from glidepath.testing.simulator.flight import Flight, fly
from glidepath.testing.specimens import SPECIMENS, Specimen
from glidepath.tools import tool
from glidepath.values import ConfigurationError, close_to

__all__ = ["Flight", "Report", "fly", "simulate"]

MOST_SEEDS = 10_000


class Report(Value, frozen=True, kw_only=True):
    """All flights of one configuration, and what they say about it."""

    flights: tuple[Flight, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()
    """Specimens that were skipped because this configuration has no tools."""
    cpu_seconds: float = 0.0
    limits: Mapping[str, float] = {}
    """The limits that the configuration sets: turns, tokens, dollars, tool calls, seconds."""

    @property
    def ok(self) -> bool:
        """True when no hole was found; warnings are for people."""
        return not any(finding.severity == "hole" for finding in self.findings)

    def advice(self) -> str:
        """The findings as plain text, one paragraph each."""
        if not self.findings:
            return "No holes found."
        return "\n".join(
            f"{finding.severity.upper()} {finding.code}: {finding.what}. {finding.advice}" for finding in self.findings
        )


def default_config() -> LoopConfig:
    """The configuration to simulate by default: the command line's defaults, with two tools."""

    @tool(read_only=True)
    async def search(query: str) -> str:
        """Search the catalog."""
        return query

    @tool(read_only=True)
    async def fetch(page: int) -> str:
        """Fetch one page."""
        return str(page)

    limits = Limits(max_iterations=50, max_tokens=200_000, max_cost="2.00", timeout=1800, max_tool_calls=200)
    agent = Agent(
        model=ScriptedModel(name="model", price=("3", "15")), tools=[search, fetch], limits=limits, tool_timeout=120
    )
    return agent.config


def simulate(
    subject: Agent | LoopConfig | None = None,
    *,
    seeds: int | Iterable[int] = 1,
    only: Sequence[str] = (),
    real_time: bool = True,
    progress: Callable[[int, int, Flight], None] | None = None,
) -> Report:
    """Run a configuration against every specimen, once for each seed.

    `only` takes names or families of specimens. `progress` is called with the number of finished flights, the total,
    and the last flight. Specimens that need real time run once, and not at all with `real_time=False`.
    """
    config = _config_of(subject)
    chosen = _choose_specimens(only)
    skipped = tuple(kind.name for kind in chosen if kind.needs_tools and not config.tools)
    kinds, numbers = [kind for kind in chosen if kind.name not in skipped], _seeds(seeds)
    plan = [(kind, seed) for seed in numbers for kind in kinds if not kind.real_time]
    plan += [(kind, numbers[0]) for kind in kinds if kind.real_time and real_time]
    began = time.process_time()
    flights: list[Flight] = []
    for kind, seed in plan:
        flights.append(fly(config, kind, seed))
        if progress is not None:
            progress(len(flights), len(plan), flights[-1])
    cpu = round(time.process_time() - began, 3)
    limits = _figures(config)
    return Report(
        flights=tuple(flights), findings=find(config, flights), skipped=skipped, cpu_seconds=cpu, limits=limits
    )


def _figures(config: LoopConfig) -> dict[str, float]:
    limits = config.limits
    known = {
        "turns": limits.max_iterations,
        "tokens": limits.max_tokens,
        "dollars": limits.max_cost,
        "tool calls": limits.max_tool_calls,
        "seconds": limits.timeout,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def encode_report(report: Report) -> str:
    """The report as JSON."""
    return encode(report).decode()


def _config_of(subject: object) -> LoopConfig:
    if subject is None:
        return default_config()
    config = subject.config if isinstance(subject, Agent) else subject
    if not isinstance(config, LoopConfig):
        raise ConfigurationError(f"simulate takes an Agent or a LoopConfig, not {type(subject).__name__}")
    return config


def _seeds(seeds: object) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool) and 1 <= seeds <= MOST_SEEDS:
        return tuple(range(seeds))
    if not isinstance(seeds, int | str) and isinstance(seeds, Iterable):
        given = tuple(seeds)
        if given and all(type(seed) is int for seed in given):
            return given
    raise ConfigurationError(
        f"seeds must be a number from 1 to {MOST_SEEDS} or a list of whole numbers, not {seeds!r:.100}"
    )


def _choose_specimens(only: Sequence[str]) -> list[type[Specimen]]:
    if isinstance(only, str):
        only = (only,)
    known = {kind.name for kind in SPECIMENS} | {kind.family for kind in SPECIMENS}
    for name in only:
        if name not in known:
            meant = close_to(str(name), sorted(known))
            hint = f"; did you mean {meant!r}?" if meant else "; `glidepath sim --list` names them all"
            raise ConfigurationError(f"only: there is no scenario or family {name!r}{hint}")
    return [kind for kind in SPECIMENS if not only or kind.name in only or kind.family in only]


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.testing.simulator.flight import Trail as Trail
    from glidepath.testing.simulator.plots import svg_plot as svg_plot, text_plot as text_plot
    from glidepath.testing.simulator.whatif import choose_values as choose_values, count_unaffected as count_unaffected

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__, flight=("Trail",), plots=("svg_plot", "text_plot"), whatif=("choose_values", "count_unaffected")
    )
