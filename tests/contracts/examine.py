"""Runs a contract in this process, clause by clause, and says which clauses fail."""

import inspect
from dataclasses import dataclass

from _pytest.outcomes import OutcomeException

from glidepath.testing.conformance import clauses_of

BROKEN = []


@dataclass(frozen=True)
class Broken:
    """A trial of something broken: the contract with it, the clause it breaks, and the allowed consequences."""

    trial: type
    clause: str
    also: frozenset

    @property
    def name(self):
        return f"{self.clause} {self.trial.__name__}"


def breaks(clause, *also):
    """This trial must fail the clause; it may fail those in `also`, and no other. Its docstring says what is wrong."""

    def note(trial):
        assert trial.__doc__, trial
        BROKEN.append(Broken(trial, clause, frozenset(also)))
        return trial

    return note


def failures(contract, only=None):
    """The clauses that fail, each with why; of `only` these, where that is given."""
    found = {}
    for clause in clauses_of(contract):
        if only is not None and clause.number not in only:
            continue
        for arguments in _cases(getattr(contract, clause.test)):
            try:
                getattr(contract(), clause.test)(**arguments)
            except (Exception, OutcomeException) as error:
                if str(error).startswith("Timeout ("):  # of the test itself, not of what it examines
                    raise
                found.setdefault(clause.number, error)
    return found


def _cases(test):
    """The arguments of a parametrized test, one case after the other."""
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            name, values = mark.args
            return [{name: value} for value in values]
    assert list(inspect.signature(test).parameters) == ["self"]
    return [{}]
