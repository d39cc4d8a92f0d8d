"""Run your own configuration against the flight simulator, in your own test suite.

    from glidepath.conformance.specimen_contract import simulator

    def test_my_agent_lands(simulator):
        simulator(my_agent, seeds=3)

Without the fixture: `assert_contained(my_agent)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import pytest

from glidepath.agent import Agent, LoopConfig
from glidepath.testing.simulator import Report, simulate
from glidepath.testing.simulator.findings import Finding
from glidepath.values import ConfigurationError, pluralize


def assert_contained(
    subject: Agent | LoopConfig,
    *,
    seeds: int | Iterable[int] = 1,
    only: Sequence[str] = (),
    real_time: bool = False,
    accept: Collection[str] = (),
) -> Report:
    """Run a configuration against every specimen; raises AssertionError with the holes and how to close them.

    `only` takes names or families of specimens. `real_time` adds those that need real seconds. `accept` names findings
    that you have reviewed and accept; one that does not occur is an error, so that the list stays short.
    """
    if isinstance(accept, str) or not all(isinstance(code, str) for code in accept):
        raise ConfigurationError(
            f"accept must be the codes of findings, such as ['unbounded_reply'], not {accept!r:.80}"
        )
    if subject is None:
        raise ConfigurationError("assert_contained needs an Agent or a LoopConfig, not None")
    report = simulate(subject, seeds=seeds, only=only, real_time=real_time)
    holes = [finding for finding in report.findings if finding.severity == "hole" and finding.code not in accept]
    idle = sorted(set(accept) - {finding.code for finding in report.findings})
    if holes or idle:
        raise AssertionError(_describe_holes(report, holes, idle))
    return report


@pytest.fixture
def simulator() -> Callable[..., Report]:
    """`assert_contained`, as a fixture: import it into your test module or your conftest."""
    return assert_contained


def _describe_holes(report: Report, holes: Sequence[Finding], idle: Sequence[str]) -> str:
    lines = [f"{pluralize(len(holes), 'hole')} in {pluralize(len(report.flights), 'flight')}:"]
    for finding in holes:
        lines += ["", f"{finding.code}: {finding.what}", f"  {finding.advice}"]
        lines.append(f"  specimens: {', '.join(finding.specimens) or 'none'}")
    if idle:
        lines += ["", f"accepted, but not found (leave them out): {', '.join(idle)}"]
    return "\n".join(lines)
