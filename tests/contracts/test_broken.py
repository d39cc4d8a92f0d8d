"""For every clause something broken fails it, and nothing outside the listed consequences."""

import pytest

from glidepath.testing.conformance import CONTRACTS, clauses_of

from .broken import (
    catalogs,
    coordinators,
    evaluators,
    excerpts,
    hooks,
    inboxes,
    kernel,
    provenances,
    reviews,
    shaping,
    sources,
    stores,
    turbulence,
    wallets,
)
from .examine import BROKEN, failures

WHOLE = (
    catalogs.Trial,
    coordinators.Trial,
    coordinators.OtherPlan,
    evaluators.Trial,
    excerpts.Trial,
    hooks.After,
    hooks.Before,
    hooks.Follows,
    hooks.Gates,
    hooks.Observes,
    hooks.Recovers,
    hooks.Steers,
    hooks.Transforms,
    inboxes.Trial,
    kernel.ConstraintTrial,
    kernel.EstimatorTrial,
    kernel.ModelTrial,
    kernel.PolicyTrial,
    provenances.Trial,
    reviews.Planned,
    reviews.Reviewed,
    shaping.GuardTrial,
    shaping.StopTrial,
    shaping.StrategyTrial,
    sources.SourceTrial,
    stores.Trial,
    turbulence.Trial,
    turbulence.WalletTrial,
    wallets.Trial,
)


def test_there_is_something_broken_for_every_clause():
    clauses = {clause.number for kinds in CONTRACTS.values() for kind in kinds for clause in clauses_of(kind)}
    assert {broken.clause for broken in BROKEN} == clauses


@pytest.mark.parametrize("trial", WHOLE, ids=lambda trial: f"{trial.__module__.rpartition('.')[2]}.{trial.__name__}")
def test_what_the_broken_ones_are_made_of_is_whole(trial):
    assert failures(trial) == {}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_fails_its_clause_and_what_follows_from_it(broken, monkeypatch):
    monkeypatch.setenv("CI", "true")  # pytest shows whole diffs then: a clause may not take hours to say what differs
    expected = {broken.clause, *broken.also}
    failed = failures(broken.trial, expected)
    if set(failed) != expected:  # some only break after the clauses before them
        failed = failures(broken.trial)
    assert set(failed) == expected, broken.trial.__doc__


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_fails_its_clause_and_nothing_unexpected(broken, monkeypatch):
    monkeypatch.setenv("CI", "true")
    failed = failures(broken.trial)
    assert broken.clause in failed, f"{broken.trial.__doc__} fails {sorted(failed)}"
    unexpected = {
        number: repr(error) for number, error in failed.items() if number not in {broken.clause, *broken.also}
    }
    assert not unexpected, broken.trial.__doc__
    assert broken.also <= set(failed), f"no consequence of it: {sorted(broken.also - set(failed))}"
