"""What was promised to whom, and the rules that hold whatever happens.

Journals:

- `kept`: a commit that was acknowledged is in the journal, and nothing is there that nobody wrote;
- `chain`: commits are numbered without a gap, and the head is the last one;
- `fenced`: a commit that was sent after a later claim had been granted is refused, and a heartbeat hears that its
  lease is lost;
- `alone`: a session is not granted to a second owner while the lease of the first one is in force;
- `free`: when the trouble is over, every session can be claimed again.

Wallets:

- `limit`: what is used and held never exceeds the limit;
- `counted`: what was spent is used, in the end;
- `exact`: without trouble, nothing else is used;
- `given_back`: nothing is held for runs that are over.
"""

from __future__ import annotations

from collections.abc import Sequence

from glidepath._wire import Record, Value, field
from glidepath.spi import Commit, Entry, Hold, Lease, Wallet
from glidepath.values import pluralize

LEASE = 10.0


class Violation(Value, frozen=True):
    """A rule, and how it was broken."""

    rule: str
    text: str


class Granted(Record):
    """A claim that was granted: from when to when somebody could believe in it."""

    session: str
    lease: Lease
    process: int
    sent: float
    heard: float
    sure_until: float
    """Nobody else may have it before this."""


class Spender(Record):
    """A run that never uses more than it was granted."""

    hold: Hold
    spent: int = 0
    flight: int = 0
    has_asked: bool = False
    is_asking: bool = False
    is_stopped: bool = False
    """Nobody knows what its last draw came to, or another process continues it: it makes no further call."""
    is_over: bool = False


class TurbulenceRecord(Record):
    """Everything that a world has seen."""

    may_trust_clocks: bool = True
    requests: int = 0
    violations: list[Violation] = field(default_factory=list)
    tried: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], bytes] = field(default_factory=dict)
    claims: list[Granted] = field(default_factory=list)
    runs: dict[str, Spender] = field(default_factory=dict)
    """By name, who began it last: what another process knows from its journal when it continues a run."""
    spent: int = 0
    is_calm: bool = True
    """No trouble has come yet: what is used is known exactly."""

    def break_rule(self, rule: str, text: str) -> None:
        """Note a rule that was broken, once for each text."""
        violation = Violation(rule, text)
        if violation not in self.violations:
            self.violations.append(violation)

    # --- journals -------------------------------------------------------------------------------------------------

    def note_claim(self, granted: Granted) -> None:
        """A claim was granted. By the store's clock the lease before it must be over, or given back."""
        for other in self.claims:
            if other.session != granted.session:
                continue
            if other.lease.token == granted.lease.token:
                self.break_rule("fenced", f"two claims of {granted.session} have token {granted.lease.token}")
            if self.may_trust_clocks and other.heard < granted.sent and granted.heard < other.sure_until:
                self.break_rule(
                    "alone",
                    f"process {granted.process} got {granted.session}, which process {other.process} had for another "
                    f"{other.sure_until - granted.heard:.2f} s",
                )
            if other.heard < granted.sent and granted.lease.token < other.lease.token:
                self.break_rule("fenced", f"the token of {granted.session} went back to {granted.lease.token}")
        self.claims.append(granted)

    def note_write(self, lease: Lease, commit: Commit, sent: float) -> None:
        """A commit was acknowledged."""
        place = (lease.session_id, commit.number)
        newer = self._find_newer(lease, sent)
        if newer is not None:
            self.break_rule(
                "fenced",
                f"commit {commit.number} of {lease.session_id} was taken with token {lease.token}, "
                f"after process {newer.process} had got {newer.lease.token}",
            )
        before = self.acknowledged.setdefault(place, commit.hash)
        if before != commit.hash:
            self.break_rule("kept", f"commit {commit.number} of {lease.session_id} was acknowledged twice")

    def note_beat(self, lease: Lease, sent: float) -> None:
        """A heartbeat was answered as if the lease were held."""
        newer = self._find_newer(lease, sent)
        if newer is not None:
            self.break_rule(
                "fenced",
                f"a heartbeat with token {lease.token} of {lease.session_id} did not hear that it is lost, "
                f"after process {newer.process} had got {newer.lease.token}",
            )

    def _find_newer(self, lease: Lease, sent: float) -> Granted | None:
        """A later claim that had been granted when this was sent."""
        for one in self.claims:
            if one.session == lease.session_id and one.lease.token > lease.token and one.heard < sent:
                return one
        return None

    def check_journal(self, session: str, entry: Entry, commits: Sequence[Commit], *, is_last: bool) -> None:
        """What a store has of a session."""
        numbers = [commit.number for commit in commits]
        if numbers != list(range(1, len(commits) + 1)) or (is_last and entry.head != len(commits)):
            self.break_rule("chain", f"{session} has the commits {numbers}, and its head is {entry.head}")
        found = {commit.number: commit.hash for commit in commits}
        for commit in commits:
            if commit.hash not in self.tried.get((session, commit.number), ()) or commit.body != commit.hash:
                self.break_rule("kept", f"nobody wrote commit {commit.number} of {session} as it is there")
        for (name, number), digest in self.acknowledged.items() if is_last else ():
            if name == session and found.get(number) != digest:
                self.break_rule("kept", f"commit {number} of {session} was acknowledged, and is lost")

    # --- wallets --------------------------------------------------------------------------------------------------

    def check_wallet(self, wallet: Wallet, limit: int, *, is_last: bool) -> None:
        """What a store says of a wallet."""
        taken = wallet.tokens + wallet.held_tokens + wallet.disputed_tokens
        if taken > limit or min(wallet.tokens, wallet.held_tokens) < 0:
            self.break_rule("limit", f"{wallet.name} has {wallet.tokens} used, {wallet.held_tokens} held of {limit}")
        if not is_last:
            return
        if wallet.held_tokens or wallet.holds:
            self.break_rule("given_back", f"{pluralize(wallet.held_tokens, 'token')} of {wallet.name} held for nobody")
        if wallet.tokens < self.spent:
            self.break_rule(
                "counted", f"{pluralize(self.spent, 'token')} spent, and {wallet.name} has {wallet.tokens} used"
            )
        if self.is_calm and wallet.tokens != self.spent:
            self.break_rule(
                "exact", f"{pluralize(self.spent, 'token')} spent, and {wallet.name} has {wallet.tokens} used"
            )
