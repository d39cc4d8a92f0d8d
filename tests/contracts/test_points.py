"""Every extension point has its contract, and every implementation of ours is certified."""

import importlib

import pytest
from tests.extension_points import EXTENSION_POINTS, TEXTBOOK

from glidepath.spi import HOOKS
from glidepath.testing.conformance import CONTRACTS, Contract, clauses_of

from . import test_hooks, test_kernel, test_sources, test_stores, test_teams

CERTIFIED = [
    kind
    for module in (test_hooks, test_kernel, test_sources, test_stores, test_teams)
    for name, kind in vars(module).items()
    if name.startswith("Test") and issubclass(kind, Contract)
]


def load(path):
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def test_every_extension_point_has_a_contract_and_no_contract_is_for_nothing():
    assert set(CONTRACTS) == {point.name for point in EXTENSION_POINTS}
    assert all(CONTRACTS.values())


@pytest.mark.parametrize("point", EXTENSION_POINTS, ids=lambda point: point.name)
def test_every_implementation_keeps_the_contract(point):
    contract = CONTRACTS[point.name][0]
    subjects = {getattr(kind, "subject", None) for kind in CERTIFIED if issubclass(kind, contract)}
    missing = [path for path in point.implementations if load(path) not in subjects]
    assert not missing, f"no class in tests/contracts certifies {missing}"
    assert subjects, f"nothing at all keeps the contract of {point.name}"
    assert len(point.implementations) >= 2 or point.name in TEXTBOOK


@pytest.mark.parametrize("contract", sorted({kind for kinds in CONTRACTS.values() for kind in kinds}, key=str))
def test_clauses_are_numbered_without_gaps(contract):
    clauses = clauses_of(contract)
    assert len(clauses) >= 4
    counted = {}
    for clause in clauses:
        letters, _, number = clause.number.partition("-")
        counted.setdefault(letters, []).append(int(number))
        assert clause.test.startswith(f"test_{letters.lower()}_{number}_"), clause
        assert clause.text.endswith("."), clause
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in counted.values()), counted


def test_numbers_are_used_once():
    seen = {}
    for kinds in CONTRACTS.values():
        for kind in kinds:
            for clause in clauses_of(kind):
                assert seen.setdefault(clause.number, clause) == clause


def test_every_hook_has_a_contract_of_its_own():
    kinds = [CONTRACTS[hook][0] for hook in HOOKS]
    assert [kind.hook for kind in kinds] == list(HOOKS)
    assert len(set(kinds)) == len(HOOKS)


def test_a_test_without_a_number_is_no_clause():
    class Mine(Contract):
        def test_something(self):
            """It works."""

    with pytest.raises(ValueError, match=r"Mine\.test_something is not a clause"):
        clauses_of(Mine)
