"""Mistakes that somebody could make, one at a time, in the code that ships. Those in `BUGS` have to be found."""

from dataclasses import replace

from .planting import Bug

LEDGER, WAITING, RULES, CLIENT = "run/ledger.py", "run/waiting.py", "sessions/wallet_rules.py", "agent/wallet_client.py"
GOVERNOR, CALLS, PASSAGE = "apps/gate/governor.py", "apps/gate/gate_calls.py", "apps/gate/passage.py"
LINES, TREE, KERNEL_CALL = "apps/gate/lines.py", "apps/gate/tree.py", "kernel/model_call"
MEMORY, SQLITE, GROUP, FILE = (
    "sessions/memory.py",
    "sessions/sqlite.py",
    "sessions/group_commit.py",
    "sessions/sqlite_file.py",
)

_LEDGER = [
    ("what a call used is not charged to the budgets above it", LEDGER, "Reservation.settle",
     "node.tokens = spent = node.tokens + tokens",
     "node.tokens = spent = node.tokens + (tokens if node is meter else 0)"),
    ("nobody is woken when a call gives back what it did not use", LEDGER, "Reservation.settle",
     "meter.tree.wake_head()", "pass"),
    ("the pledge of a first call that is not made stays", LEDGER, "Reservation.settle",
     "if self.pledged:", "if self.pledged and tokens:"),
    ("a call is not reserved at the root", LEDGER, "Meter.reserve",
     "lineage = self.lineage", "lineage = self.lineage[:-1]"),
    ("what is traded is reserved a second time", LEDGER, "Meter.reserve",
     "more_tokens -= trading.tokens", "more_tokens -= 0"),
    ("a small call goes ahead of those that wait", LEDGER, "Meter.reserve",
     "tree.has_calls()", "False"),
    ("a first call is not pledged, so others count on it", LEDGER, "Meter.reserve_start",
     "node.pledged_tokens += first.tokens", "node.pledged_tokens += 0"),
    ("a run that has ended gives its landing back to the nearest budget alone", LEDGER, "Meter.give_back",
     "for node in self.above:", "for node in self.above[:1]:"),
    ("a run that has ended is still counted on", LEDGER, "Meter.give_back",
     "self.tree.forget(self)", "pass"),
    ("a landing takes what was kept for it, and it stays kept as well", LEDGER, "Meter.open_landing",
     "node.aside_tokens -= reserve.tokens", "node.aside_tokens -= 0"),
    ("a reply that grows is not bounded", LEDGER, "Reservation.extend",
     "if meter.find_lack(tokens, money) is not None:", "if meter.find_lack(0, 0) is not None:"),
    ("who leaves the queue does not call the next one", LEDGER, "Meter.leave",
     "self.tree.wake_head()", "pass"),
    ("money is not looked at in a shared budget", LEDGER, "Meter.reserve",
     "or node.money + node.aside_money + node.reserved_money + more_money > node.money_wire\n                ):",
     "):"),
    ("a turn is counted for the run alone", LEDGER, "Meter.reserve",
     "                node.turns += turns\n", "                node.turns += turns if node is self else 0\n"),
    ("a call may be settled twice", LEDGER, "Reservation.settle",
     "self.open = False", "pass"),
]  # fmt: skip

_READY = "            if waiting is not None:\n                waiting.prepare_next_wake()\n"
_LOOK = """            if waiting is None or meter.is_head(waiting):
                got = await attempt(waiting)
                if got is not None:
                    return got
"""
_WAITING = [
    ("who has been served stays in the queue", WAITING, "in_turn",
     "meter.leave(waiting)", "pass"),
    ("runs that wait are counted on to give back", WAITING, "Tree.find_stuck",
     "for waiting in self.queue:", "for waiting in self.queue[:0]:"),
    ("the head does not look again when somebody else begins to wait", WAITING, "Tree.enter",
     "self.wake_head()", "pass"),
    ("the last call that waits is served first", WAITING, "Tree.enter",
     "place = next((at for at, other in enumerate(queue) if other.claim is not None), place)", "place = 0"),
    ("a waiter gets ready for the next wake-up after it has looked", WAITING, "in_turn",
     f"{_READY}{_LOOK}", f"{_LOOK}{_READY}"),
    ("what is in flight is not subtracted for a start", WAITING, "start_rooms",
     "now = node.spare_tokens() - node.reserved_tokens", "now = node.spare_tokens()"),
]  # fmt: skip

_KERNEL = [
    ("the pledge of a run that lands before its first call is forgotten", "run/account.py", "Spending.drop_first_call",
     "self.first_call.cancel()", "pass"),
    ("what a call used is charged by what it had reserved", "kernel/model_call/settlement.py", "settle",
     "held.settle(usage.input + usage.output, money)", "held.settle(held.tokens, money)"),
]  # fmt: skip

_JOURNAL = [
    ("calls begin before it is written that they do", "sessions/journal_recorder.py",
     "JournalRecorder.record_starts",
     'items.append(("intent", self._intent(job)))', "self._intent(job)"),
    ("the number of a commit grows although it was refused", "sessions/journal_writer.py", "JournalWriter.add",
     "sequence = self.sequence\n", "sequence = self.sequence\n        self.number += 1\n"),
]  # fmt: skip

_RECOVERY = [
    ("a call that had begun when the process died is made again", "sessions/recover.py", "decide_open_calls",
     "decisions[call.id] = make_unknown_decision(Unknown.IMPORTED if folded.foreign else Unknown.DIED)", "pass"),
    ("the call of the model that was in flight when the process died is free", "sessions/recover.py",
     "charge_reservation", "if reserved is None:", "if True:"),
    ("a lease is not renewed while a call takes long", "sessions/journal_writer.py", "JournalWriter.is_time_to_renew",
     "return self._beats % RENEW == RENEW - 1", "return False"),
    ("a result that is in the journal is not given to the run that continues", "agent/durable.py",
     "_prepare_continuation", "known = place_known_results(folded)", "known = []"),
    ("a commit is written while another is on its way", "sessions/journal_recorder.py", "JournalRecorder._write",
     "if self._flying is not None and self._run is not None:", "if False:"),
    ("a call begins although its run was stopped while it was noted", "sessions/journal_recorder.py",
     "JournalRecorder._conclude", "if begins and run.watch.interrupt is not None:", "if False:"),
    ("a hold is renewed too late", CLIENT, "WalletClient._renew_hold", "LEASE) / 3", "LEASE) * 3"),
]  # fmt: skip

_STORES = [
    ("a write with an old token is taken", MEMORY, "MemoryStore._require_lease",
     "if shelf.entry.token != lease.token:", "if shelf.entry.token < lease.token:"),
    ("two owners get the same token", MEMORY, "MemoryStore.claim",
     "token=entry.token + 1", "token=max(1, entry.token)"),
    ("a commit may come twice", MEMORY, "MemoryStore.append",
     "if commit.number != entry.head + 1:", "if commit.number > entry.head + 1:"),
    ("anybody may give a lease back", MEMORY, "MemoryStore.let_go",
     "and shelf.entry.token == lease.token", ""),
    ("a heartbeat renews the lease of its new owner", MEMORY, "MemoryStore.beat",
     "if shelf is None or shelf.entry.token != lease.token:", "if shelf is None:"),
    ("a claim does not look at the owner", SQLITE, "SqliteStore._claim",
     "if not is_claimable(entry.owner, entry.expires, now, length):", "if entry.expires > now + length:"),
    ("a write does not look at the token", SQLITE, "SqliteStore._append",
     "if row is None or row[0] != lease.token:", "if row is None:"),
    ("a write believes that the lease is held after others have written", SQLITE, "SqliteStore._append",
     "held.version != connection.version or held.connection", "held.connection"),
    ("the token does not grow", SQLITE, "SqliteStore._claim",
     "token, expires = entry.token + 1,", "token, expires = max(1, entry.token),"),
    ("a release writes an old head back", SQLITE, "SqliteStore._give_back",
     "head, hash_ = self._last(connection, lease.key)", "head, hash_ = lease.head, lease.hash"),
    ("a lease in force is taken", "sessions/owner.py", "is_claimable",
     "now >= expires", "now >= expires - 6"),
    ("a lease that a fast clock has written lasts", "sessions/owner.py", "is_claimable",
     "expires > now + length", "expires < now - length"),
]  # fmt: skip

_NOTES = "for held, number, digest in self.heads.values():\n            held.head, held.hash = number, digest"
_GROUPS = [
    ("what must be on the disk is written without asking it", GROUP, "GroupCommit._flush",
     "if busy or any(job.full for job in jobs) or not", "if busy or not"),
    ("a group asks the disk only if all in it want that", GROUP, "WriterThread._run_jobs",
     "any(job.full for job in jobs)", "all(job.full for job in jobs)"),
    ("a run that is alone writes at once, whatever it was promised", SQLITE, "SqliteStore.append",
     "if not full and len(self._held) == 1", "if len(self._held) == 1"),
    ("what the disk is asked is decided once for a connection", FILE, "sync_with",
     "if connection.synchronous != how:", "if not connection.synchronous:"),
    ("another connection is told to ask the disk", GROUP, "WriterThread._run_jobs",
     "sync_with(connection, ", "sync_with(self._file.connect(0), "),
    ("the log is moved into the file without a sync", GROUP, "move_log",
     'connection.execute("PRAGMA wal_checkpoint(PASSIVE)")',
     'sync_with(connection, "OFF")\n    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")'),
    ("a connection that is closed leaves the file without a sync", FILE, "SqliteFile.connect",
     'sync_with(connection, "NORMAL")', 'sync_with(connection, "OFF")'),
    ("a note is posted without asking the disk", "sessions/sqlite_notes.py", "SqliteInbox.post",
     "self._write_without_lease(work, full=True)", "self._write_without_lease(work)"),
    ("a group that found the file locked is acknowledged", GROUP, "GroupCommit._write_on_loop",
     "return False", "return True"),
    ("the loop overtakes the queue of the thread", GROUP, "GroupCommit._flush",
     "if busy or any", "if any"),
    ("a run that is alone overtakes what it has queued", SQLITE, "SqliteStore.append",
     " and group.is_idle()", ""),
    ("new work for a busy thread replaces its queue", GROUP, "WriterThread.put",
     "self._jobs += jobs", "self._jobs = [*jobs]"),
    ("of a group that failed only the first is told", GROUP, "WriterThread._run_jobs",
     "for job in jobs:\n                job.failed = said", "jobs[0].failed = said"),
    ("of a group only the first gets its answer", GROUP, "WriterThread._serve",
     "_deliver_answers(group)", "_deliver_answers(group[:1])"),
    ("who is answered from the thread hears of no failure", GROUP, "_settle",
     "try:\n        for job in jobs:\n            job.settle(job.found, job.failed)",
     "try:\n        for job in jobs:\n            job.settle(job.found, None)"),
    ("a group that is done one by one ends before its last", GROUP, "run_group",
     "return\n    for job in jobs:", "return\n    for job in jobs[:-1] or jobs:"),
    ("what one in a group has half written is written with the others", GROUP, "_is_run_together",
     "if connection.total_changes != before:", "if False:"),
    ("the refusal of one in a group is forgotten", GROUP, "_is_run_together",
     "job.failed = error", "job.failed = None"),
    ("after a failure of the disk everything is written again", GROUP, "_is_run_together",
     " or code_of(error) == _IO_ERROR", ""),
    ("the last commit is noted before it has landed", FILE, "Connection.commit_all",
     f'self.execute("COMMIT")\n        {_NOTES}', f'{_NOTES}\n        self.execute("COMMIT")'),
    ("what was noted of a transaction that failed counts in the next", GROUP, "begin",
     "connection.heads.clear()", "pass"),
    ("a write that failed is not looked up", SQLITE, "SqliteStore._append",
     "head, held.head = held.head if written is None else written[1], None",
     "head = held.head if written is None else written[1]"),
]  # fmt: skip

_WALLETS = [
    ("what others hold is not looked at", RULES, "_room_for",
     "(used + account.held[resource] - mine[0])", "(used - mine[0])"),
    ("only the last wallet of a line is drawn from", RULES, "_book_hold",
     "for place in row.line:", "for place in row.line[-1:]:"),
    ("a later leg is refused, and an earlier one is not", RULES, "draw",
     "row.leg > hold.leg", "row.leg < hold.leg"),
    ("what a run keeps itself counts as coming back to its own child", CLIENT, "WalletClient._sum_parent_reserves",
     "if meter.tree is self.meter.tree", "if False"),
    ("what the dead held is free", RULES, "write_off",
     "_book_hold(book, row, row.grant, row.grant, NOTHING)", "_book_hold(book, row, row.spent, row.spent, NOTHING)"),
    ("a hold that a fast clock has written lasts", RULES, "_is_overdue",
     "_MOST_LEASES * lease", "None"),
    ("an earlier leg settles what a later one holds", RULES, "settle",
     "row.leg != hold.leg", "row.leg < hold.leg"),
    ("what a run had spent before its hold is charged again", RULES, "_close",
     "max(0, total[0] - row.base[0])", "max(0, total[0])"),
    ("a hold that is settled is kept", RULES, "_close",
     "_book_hold(book, row, spent, spent, NOTHING)", "_book_hold(book, row, spent, row.grant, NOTHING)"),
    ("what is not needed is given back and still used", CLIENT, "WalletClient._draw_once",
     "reach(root, now.tokens, now.money)", "pass"),
    ("a grant is added to what could be reached before", CLIENT, "WalletClient._draw_once",
     "reach(root, grant.tokens, grant.money)",
     "reach(root, grant.tokens + (root.caps.tokens or 0) // 2, grant.money)"),
    ("a hold is not settled when its run ends", CLIENT, "WalletClient.close",
     'await run_uninterrupted(self._settle(), name="glidepath-settle")', "return"),
    ("calls that were abandoned are not paid for", CLIENT, "WalletClient._settle",
     "root.tokens + root.reserved_tokens", "root.tokens"),
]  # fmt: skip

_GATE = [
    ("two gates have one hold together", LINES, "Line._hang_below",
     ":{secrets.token_hex(8)}", ""),
    ("replies wait for each other as long as they like", LINES, "Line.draw_for_reply",
     "REPLY_PATIENCE / 40)", "REPLY_PATIENCE)\n            until += REPLY_PATIENCE"),
    ("a line that is closed settles nothing", LINES, "Line.close",
     "if self._purse is not None:", "if self._purse is None:"),
    ("a landing that cannot be paid keeps what it had", CALLS, "book_landing",
     "held.cancel()", "pass"),
    ("an agent that lands counts on its landing twice", CALLS, "book_landing",
     "held = meter.open_landing(meter.landing_kept(), admitted=True)",
     "held = meter.open_landing(meter.landing_kept(), admitted=False)"),
    ("a longer way down is reserved and not kept", CALLS, "_continue",
     "got.keep_for_landing(more)", "pass"),
    ("a call goes out although its run was stopped while it waited", GOVERNOR, "GateGovernor._try",
     "stopped = self._find_stop(call)", "stopped = None"),
    ("an agent that has answered keeps its landing", PASSAGE, "GovernedPassage.close",
     "give_back_landing(agent)", "pass"),
    ("a call that the provider refused stays reserved", PASSAGE, "GovernedPassage.close",
     "held.cancel()", "pass"),
    ("a turn that the provider refused counts", PASSAGE, "GovernedPassage.close",
     "agent.meter.return_turn()", "pass"),
    ("a reply is charged before its usage is known", PASSAGE, "GovernedPassage._work_out_charge",
     "reported = reader.usage if reader.is_complete else self._usage_of_part()", "reported = None"),
    ("an agent is given back that never started", TREE, "give_back_landing",
     "if agent.started:", "if True:"),
    ("a landing that becomes smaller wakes nobody", TREE, "set_landing",
     "meter.tree.wake_head()", "pass"),
    ("a reply does not use its own landing", PASSAGE, "GovernedPassage._use_landing",
     "set_landing(agent, Amount())", "pass"),
]  # fmt: skip


def make(area, mistakes):
    return [Bug(area, *mistake) for mistake in mistakes]


_NOT_FOUND = {
    "a result that is in the journal is not given to the run that continues":
        "the call is then reported as unknown, as it is where the process dies a moment earlier",
    "a commit is written while another is on its way":
        "the agents here have one tool call at a time, so they write one commit at a time",
    "a call begins although its run was stopped while it was noted":
        "what starts the calls looks once more whether the run was stopped",
    "a hold is renewed too late":
        "no call here takes so long that anybody sweeps the wallet meanwhile",
    "a call may be settled twice":
        "nothing here settles one twice: what looks whether it is open is a second lock on the door",
    "a waiter gets ready for the next wake-up after it has looked":
        "between a look and the wait nothing else runs, but for a draw; and who draws looks again by itself",
    "what is not needed is given back and still used":
        "a call of the same family must begin while the draw is on its way, and another process draw at that moment",
    "calls that were abandoned are not paid for":
        "a run stops its children's calls before it closes: nothing here leaves one open",
    "an agent that lands counts on its landing twice":
        "it keeps too much for the length of one call, which nobody else notices here",
    "a longer way down is reserved and not kept":
        "the prompts are short: the way down hardly grows",
    "an agent is given back that never started":
        "it keeps nothing, so nothing is given back: the mistake does no harm",
    "a landing that becomes smaller wakes nobody":
        "who waits at a gate looks again every five seconds by itself",
    "a reply does not use its own landing":
        "no reply here is so long that the rest of the budget is too small for it",
}  # fmt: skip
"""Mistakes that nothing here finds, and why."""
_ALL = (
    *make("ledger", _LEDGER),
    *make("waiting starts", _WAITING),
    *make("kernel", _KERNEL),
    *make("journal", _JOURNAL),
    *make("recovery", _RECOVERY),
    *make("stores and leases", _STORES),
    *make("group commit", _GROUPS),
    *make("wallets", _WALLETS),
    *make("gate", _GATE),
)
BUGS = tuple([bug for bug in _ALL if bug.what not in _NOT_FOUND])
MISSED = tuple([replace(bug, why_missed=_NOT_FOUND[bug.what]) for bug in _ALL if bug.what in _NOT_FOUND])
"""Kept so that the page tells of them, and for the next examination to find."""
