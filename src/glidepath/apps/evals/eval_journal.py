"""Where an evaluation is kept: the journal `eval:` and its name, one commit for each case that ended.

The runs of the cases are sessions of their own, so that each can be continued, shown and asked what-if.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

from glidepath import _wire
from glidepath._version import VERSION
from glidepath._wire import Value
from glidepath.apps.evals.cases import Unusable
from glidepath.apps.evals.eval_report import CaseResult, Curve, EvalReport
from glidepath.sessions import (
    EVALUATION,
    SCHEMA,
    Items,
    JournalWriter,
    Redactor,
    await_store,
    check_schema,
    claim_session,
    digest_of,
    read,
    refuse_unfinished,
    verify_commits,
)
from glidepath.spi import Commit, Entry, Lease, SessionStore, Sign
from glidepath.values import EXACT, ConfigurationError, StoreError

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_JUDGE = re.compile(r"(.*)/judge-(\d+)-\d+")
_LONGEST = 60  # characters of a case's id in the id of its session


class EvalBegan(Value, frozen=True, kw_only=True):
    """What is evaluated: written when it begins, and again when it continues with more repeats."""

    name: str
    dataset: str
    digest: str
    agent: str
    fingerprint: str
    cases: int
    repeat: int
    began: str
    unusable: tuple[Unusable, ...] = ()
    limits: Mapping[str, str] = {}
    source: Mapping[str, str] = {}
    """Where the dataset and the agent were found, for a command that needs them again."""


class EvalPart(Value, frozen=True, kw_only=True):
    """One stretch of an evaluation in one process has ended."""

    seconds: float


class EvalHistory:
    """What the journal of an evaluation says so far."""

    def __init__(self) -> None:
        self.began: EvalBegan | None = None
        self.results: dict[tuple[str, int], CaseResult] = {}
        self.tries: dict[tuple[str, int], int] = {}
        """How often each attempt has been written: more than once when it was continued."""
        self.seconds = 0.0
        self.curve: Curve | None = None

    def take(self, kind: str, payload: bytes) -> None:
        """One record; unknown kinds are left to newer versions."""
        if kind == "evaluation":
            self.began = _read(payload, EvalBegan)
        elif kind == "attempt":
            one = _read(payload, CaseResult)
            key = one.case_id, one.repeat
            self.results[key] = one
            self.tries[key] = self.tries.get(key, 0) + 1
        elif kind == "part":
            self.seconds += _read(payload, EvalPart).seconds
        elif kind == "curve":
            self.curve = _read(payload, Curve)

    def make_report(self) -> EvalReport:
        """The results so far."""
        began = self.began
        if began is None:
            raise StoreError("this evaluation has not begun", kind="missing")
        return EvalReport(
            name=began.name,
            dataset=began.dataset,
            agent=began.agent,
            cases=began.cases,
            repeat=began.repeat,
            results=tuple(sorted(self.results.values(), key=lambda one: (one.repeat, one.place))),
            unusable=began.unusable,
            began=began.began,
            seconds=self.seconds,
            limits=began.limits,
            curve=self.curve,
        )


class EvalJournal(JournalWriter):
    """Writes one evaluation, in one process at a time."""

    __slots__ = ("_failed", "_writes", "on_stop")

    def __init__(self, store: SessionStore, lease: Lease) -> None:
        super().__init__(store, lease)
        self._writes: dict[asyncio.Future[None], None] = {}
        self._failed: StoreError | None = None
        self.on_stop: Callable[[str], None] = lambda _: None
        """Called when a stop was requested through the store, or another process has taken over."""

    @classmethod
    async def open(cls, store: SessionStore, name: str) -> tuple[EvalJournal, EvalHistory]:
        """Become the writer; raises `ConfigurationError` while another process is."""
        session_id = name_journal(name)
        try:
            lease = await claim_session(store, session_id)
        except StoreError as error:
            if error.kind != "busy":
                raise
            raise ConfigurationError(f"evaluation {name!r:.80} is running in another process") from None
        journal = cls(store, lease)
        try:
            history = await read_history(store, name) if lease.head else EvalHistory()
        except BaseException:
            await journal.release()
            raise
        journal.keep_alive()
        return journal, history

    async def write(self, kind: str, payload: Value, report: Mapping[str, Any] | None = None) -> None:
        """Add one record; `report` is the summary that lists of sessions show from now on."""
        summary = None if report is None else {"kind": "eval", "schema": SCHEMA, "version": VERSION, **report}
        if self._failed is not None:
            raise self._failed
        before, mine = tuple(self._writes), asyncio.get_running_loop().create_future()
        self._writes[mine] = None
        try:
            written = self.add([(kind, payload)], now_in_utc().timestamp(), summary)
            if written is not None:
                await await_store(written)
        except StoreError as error:
            # What follows a write that fails is refused for the gap: why that one failed is what people must know.
            if error.kind == "conflict" and before:
                await asyncio.wait(before)
            self._failed = self._failed or error
            raise self._failed from None
        finally:
            del self._writes[mine]
            mine.set_result(None)

    def _redact(self, redactor: Redactor, items: Items) -> Items:
        return redactor.items(items)[:1]  # no call is replayed from here, so the note about calls is left out

    async def take_sign(self, sign: Sign) -> None:
        """React to what the store reports about the session."""
        if sign.lost:
            self.on_stop("another process has taken the evaluation over")
        elif sign.stop is not None:
            self.on_stop(sign.stop)


def now_in_utc() -> datetime:
    """The wall clock: an evaluation says when it began."""
    return datetime.now(UTC)


def check_eval_name(name: object) -> str:
    """This name; raises `ConfigurationError`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise ConfigurationError(
        f"the name of an evaluation has up to 80 letters, digits, dots, dashes and underscores, not {name!r:.100}"
    )


def name_journal(name: str) -> str:
    """The session of an evaluation's journal."""
    return f"{EVALUATION}{check_eval_name(name)}"


def name_case_session(name: str, case_id: str, repeat: int, *more: object) -> str:
    """The session of one case: the same in every part, so that it can continue."""
    plain = len(case_id) <= _LONGEST and re.fullmatch(r"[A-Za-z0-9][\w.-]*", case_id, re.ASCII)
    return "/".join([name, case_id if plain else f"case_{digest_of(case_id)}", str(repeat), *map(str, more)])


def name_judge_session(case_session: str, attempt: int, asked: int) -> str:
    """The session in which a model judges an answer: of which try of the case, and which question it is."""
    return f"{case_session}/judge-{attempt}-{asked}"


def split_judge_session(session_id: str) -> tuple[str, int] | None:
    """The session of the case and the number of the try; None when no judge has made this session."""
    found = _JUDGE.fullmatch(session_id)
    return None if found is None else (found[1], int(found[2]))


async def read_history(store: SessionStore, name: str) -> EvalHistory:
    """What was written so far; raises `StoreError`."""
    entry, commits = await await_store(_load(store, name))
    return fold_history(entry, commits)


async def _load(store: SessionStore, name: str) -> tuple[Entry, Any]:
    return await store.load(name_journal(name))


def fold_history(entry: Entry, commits: Any) -> EvalHistory:
    """The evaluation in a journal; raises `StoreError`."""
    refuse_unfinished(entry)
    check_schema(entry.summary.get("schema", SCHEMA))
    history = EvalHistory()
    whole: tuple[Commit, ...] = tuple(verify_commits(commits, head=entry.head, hash_=entry.hash))
    for record in [one for commit in whole for one in read(commit)]:
        history.take(record.kind, bytes(record.payload))
    return history


async def read_report(store: SessionStore, name: str) -> EvalReport:
    """The results so far; raises `StoreError`."""
    return (await read_history(store, name)).make_report()


async def list_evaluations(store: SessionStore) -> list[Entry]:
    """The evaluations in a store, the last written first."""
    return [entry for entry in await store.entries(EVALUATION) if entry.summary.get("kind") == "eval"]


async def add_curve(store: SessionStore, name: str, curve: Curve) -> EvalReport:
    """Write a curve into the journal of its evaluation."""
    journal, history = await EvalJournal.open(store, name)
    try:
        history.curve = curve
        report = history.make_report()
        await journal.write("curve", curve, sum_report(report, ended=True))
    finally:
        await run_release(journal)
    return report


async def run_release(journal: EvalJournal) -> None:
    """Give the journal back, also while the caller is being cancelled."""
    await asyncio.shield(journal.release())


def sum_report(report: EvalReport, *, ended: bool) -> dict[str, Any]:
    """What lists of sessions show of an evaluation."""
    rate = report.pass_rate
    return {
        "status": "running" if not ended else "completed" if report.complete else "incomplete",
        "outcome": None if not ended else "done" if report.complete else "unfinished",
        "agent": report.agent,
        "task": f"evaluation of {report.agent} on {report.dataset}",
        "cost": None if report.cost is None else str(report.cost),
        "tokens": report.tokens,
        "iterations": sum(one.turns for one in report.results),
        "dataset": report.dataset,
        "passed": report.passed,
        "covered": len(report.covered),
        "planned": report.planned,
        "pass_rate": rate,
        "began": report.began,
    }


def add_to_summary(summary: Mapping[str, Any], made: CaseResult, before: CaseResult | None) -> dict[str, Any]:
    """What lists show when one attempt more is finished: a sum, because counting all again would grow with them.

    `before` is the open attempt that this one replaces.
    """

    def count(field: str, measure: Callable[[CaseResult], int]) -> int:
        return int(summary[field] + measure(made) - (0 if before is None else measure(before)))

    passed = count("passed", lambda one: one.passed is True)
    covered = count("covered", lambda one: one.passed is not None)
    costs = [one for one in (summary["cost"], made.all_cost) if one is not None]
    cost = sum((EXACT.create_decimal(one) for one in costs), Decimal(0))
    if before is not None and before.all_cost is not None:
        cost -= before.all_cost
    return {
        **summary,
        "cost": str(cost) if costs else None,
        "tokens": count("tokens", lambda one: one.all_tokens),
        "iterations": count("iterations", lambda one: one.turns),
        "passed": passed,
        "covered": covered,
        "pass_rate": passed / covered if covered else None,
    }


def _read(payload: bytes, kind: type[T]) -> T:
    try:
        return _wire.decode(payload, kind)  # type: ignore[no-any-return]
    except (_wire.WireError, ConfigurationError, ValueError) as error:
        raise StoreError(f"a record of the evaluation cannot be read: {error}", kind="damaged") from None
