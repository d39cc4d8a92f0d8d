"""The contracts of stores in turbulence: the same promises while clocks, the network and processes fail, by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from glidepath.testing.conformance.contract import Contract, missing
from glidepath.testing.turbulence import Turbulence


class _Turbulent(Contract):
    seeds: Iterable[int] = range(100)
    """Each is another life of the store, of 60 happenings. More find more."""
    _wallets: bool

    def make_world(self, clock: Callable[[], float]) -> Callable[[Callable[[], float]], Any]:
        """A function that opens the store: on new, empty data, with a lease of 10 seconds, for a process's clock."""
        raise NotImplementedError(missing(self, "make_world"))

    def _require(self, *rules: str) -> None:
        """Fails with the shortest program that breaks one of these rules."""
        Turbulence(self.make_world, wallets=self._wallets).check(self.seeds, rules=rules)


class TurbulentStoreContract(_Turbulent):
    """Subclass this and provide `make_world(clock)`: new, empty data, and a function that opens a store on it.

    That function is called for each process, with the process's clock; `clock` is that of the machine with the data.
    Leases last 10 seconds. `seeds` says how much is tried. A failure shows a program that repeats it.
    """

    _wallets = False

    def test_turb_1_what_was_acknowledged_is_kept(self) -> None:
        """TURB-1: an acknowledged commit is in the journal, once, as it was written, and nothing else is there."""
        self._require("kept")

    def test_turb_2_journals_have_no_gap(self) -> None:
        """TURB-2: commits are numbered without a gap, and the head is the last one."""
        self._require("chain")

    def test_turb_3_tokens_fence(self) -> None:
        """TURB-3: tokens grow; what a former owner writes is refused, and its heartbeat hears of it, however late."""
        self._require("fenced")

    def test_turb_4_nobody_takes_a_lease_in_force(self) -> None:
        """TURB-4: while clocks are right, a session is granted to nobody else before its lease is over."""
        self._require("alone")

    def test_turb_5_sessions_are_free_again(self) -> None:
        """TURB-5: a minute after the trouble, every session can be read and claimed."""
        self._require("free")


class TurbulentWalletContract(_Turbulent):
    """Subclass this and provide `make_world(clock)`, as for `TurbulentStoreContract`."""

    _wallets = True

    def test_wturb_1_no_limit_is_exceeded(self) -> None:
        """WTURB-1: what is used and held of a wallet is never more than its limit."""
        self._require("limit")

    def test_wturb_2_nothing_that_was_spent_is_forgotten(self) -> None:
        """WTURB-2: in the end, all that was spent is used, also by runs that died or could not tell."""
        self._require("counted")

    def test_wturb_3_nothing_is_used_that_was_not_spent(self) -> None:
        """WTURB-3: without trouble, what is used is what was spent."""
        self._require("exact")

    def test_wturb_4_nothing_is_held_for_runs_that_are_over(self) -> None:
        """WTURB-4: a minute after the trouble, and after a sweep, nothing is held."""
        self._require("given_back")
