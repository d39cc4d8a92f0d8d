"""Group commit: everything that is to be written in one pass of the event loop is one transaction of an SQLite file.

Writing is done on the event loop, since it takes microseconds, as long as that needs no waiting. A thread does the
waiting: for another process that holds the file's lock, for the disk (durability "full"), for a checkpoint.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from glidepath.sessions.owner import FORKS
from glidepath.sessions.sqlite_file import (
    READ_ONLY,
    Connection,
    SqliteFile,
    code_of,
    identify_file,
    roll_back,
    size_of,
    sync_with,
)
from glidepath.sessions.store_calls import SILENCE, StoreAnswer, make_silence_error, timer_of
from glidepath.tools import workers_of
from glidepath.values import StoreError

T = TypeVar("T")
Work = Callable[[Connection], Any]
MOST = 2000  # pieces of work in one transaction
IDLE = 2.0  # seconds that the thread waits for more work before it ends
LARGE_LOG = 32 << 20  # bytes of the log that are moved into the file while runs are in flight
SMALL_LOG = 1 << 18  # and when the last one has ended
_LOOK = 32  # groups between two looks at the size of the log
_IMPATIENT = 200  # milliseconds that a checkpoint waits for readers: it holds the lock meanwhile
_IO_ERROR = 10


class StoreJob(StoreAnswer):
    """A piece of work for a transaction, and its answer."""

    __slots__ = ("alone", "failed", "found", "full", "group", "is_finished", "landed", "work")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        work: Work,
        landed: Callable[[Any], object] | None = None,
        *,
        full: bool = False,
        alone: bool = False,
    ) -> None:
        super().__init__(loop)  # type: ignore[arg-type] # where nobody waits, there is no loop
        self.work = work
        self.landed = landed  # called once it is committed
        self.full = full
        self.alone = alone  # it cannot be inside a transaction
        self.found: Any = None
        self.failed: BaseException | None = None
        self.group: GroupCommit | None = None  # in whose queue it waits for the end of the pass
        self.is_finished = False  # by the thread, which leaves the answer to the loop

    def make_done_future(self) -> asyncio.Future[None]:
        """As for any answer; who waits a second time, after a cancellation, does not wait for a callback that is lost.

        What a signal handler raises just when the loop calls us takes that callback away.
        """
        if self._bells is not None:
            if self.is_finished:
                self.settle(self.found, self.failed)
            elif self.group is not None:
                self.group.flush_again(self.loop)
        return super().make_done_future()


class GroupCommit:
    """Writes to one file for any number of threads and event loops."""

    def __init__(self, file: SqliteFile, busy: float) -> None:
        self.file = file
        self._busy = busy
        self._reset_process_state()

    def _reset_process_state(self) -> None:
        self._lock = threading.RLock()  # of the connection; its holder never waits for the file's lock
        self._inline: Connection | None = None
        self.opened: tuple[int, int] | None = None
        """Which file is open."""
        # By loop: a pass of one loop ends when that loop says so, and its futures are set on it and nowhere else.
        self._queues: dict[asyncio.AbstractEventLoop, list[StoreJob]] = {}
        self._thread: WriterThread | None = None
        self._ending: WriterThread | None = None  # one that was told to end
        self._groups = 0
        self._forks = FORKS.count

    def check_fork(self) -> None:
        """Neither a connection nor a thread survives a fork; the parent's are left alone, never closed here."""
        if self._forks != FORKS.count:
            self._abandoned = (self._inline, self._thread)
            self._reset_process_state()

    def connection(self) -> Connection:
        """The connection that is used on event loops; it waits for nobody. Hold the lock."""
        self.check_fork()
        if self._inline is None:
            # Its busy timeout is nothing: SQLite would wait inside a C call, and the whole loop with it.
            self._inline = self.file.connect(0)
            self.opened = identify_file(self.file.path)
        return self._inline

    @property
    def is_open(self) -> bool:
        """True when the file is open."""
        return self._inline is not None and self._forks == FORKS.count

    def is_idle(self) -> bool:
        """True when nothing waits to be written: what is written at once overtakes nobody."""
        return not self._queues and (self._thread is None or not self._thread.pending)

    # --- writing ----------------------------------------------------------------------------------------------

    def run_now(self, work: Callable[[Connection], T]) -> T:
        """Do it at once, in its own transaction; raises `StoreError` (`locked`) if it would have to wait."""
        try:
            with self._lock:
                found = transact(self.connection(), work)
        except Exception as error:
            raise self.file.translate_error(error) from error
        self._count()
        return found

    def submit(self, work: Work, landed: Callable[[Any], object] | None = None, *, full: bool = False) -> StoreAnswer:
        """Do it together with everything else of this pass of the event loop; `full`: and wait for the disk."""
        self.check_fork()
        loop = asyncio.get_running_loop()
        job = StoreJob(loop, work, landed, full=full)
        queue = self._queues.get(loop)
        if queue is None:
            if self._queues:
                self._drop_closed_loops()
            # In this order: a signal handler may raise in between, and a queue that nobody flushes blocks every run.
            loop.call_soon(self._flush, loop)
            queue = self._queues[loop] = []
        job.group = self
        queue.append(job)
        return job

    def flush_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what this loop has queued, with its next callbacks; once more if that is on its way already."""
        if loop in self._queues:
            loop.call_soon(self._flush, loop)

    def _drop_closed_loops(self) -> None:
        """Forget what was queued on loops that ended before they could write it: nobody waits there any more."""
        for loop in [loop for loop in self._queues if loop.is_closed()]:
            self._queues.pop(loop, None)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs: list[StoreJob] = []
        try:
            jobs = self._queues.get(loop, jobs)
            self._queues.pop(loop, None)
            # In order: a commit that is written here would overtake an earlier one of its session that waits on the
            # thread.
            busy = self._thread is not None and self._thread.pending
            # One that must reach the disk takes the whole group along: one sync serves all of them.
            if busy or any(job.full for job in jobs) or not self._write_on_loop(jobs):
                self.run_on_thread(jobs)
                return
            for job in jobs:
                job.settle(job.found, job.failed)
        except BaseException as error:  # of a signal handler, perhaps: no run may wait forever
            for job in jobs or self._queues.pop(loop, []):
                job.settle(None, error)
            if not isinstance(error, Exception):
                raise
        self._count()

    def _write_on_loop(self, jobs: Sequence[StoreJob]) -> bool:
        """Write them on the event loop; False if that would have to wait."""
        try:
            with self._lock:
                run_group(self.connection(), jobs, self.file)
        except StoreError as error:
            # Nothing was written, so all of it can be done again by the thread, which may wait.
            if error.kind != "locked":
                raise
            return False
        return True

    def run_on_thread(self, jobs: Sequence[StoreJob]) -> None:
        """Have the thread do it."""
        with self._lock:
            for job in jobs:
                if job.loop is not None:
                    _keep_time(job)
            thread = self._thread
            if thread is None or not thread.put(jobs):
                # It ends when it is idle; between a look and a `put` it may just have done so.
                thread = self._thread = WriterThread(self.file, int(self._busy * 1000))
                thread.put(jobs)

    # --- reading ----------------------------------------------------------------------------------------------

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """Read something; raises `StoreError` (`locked`) in the rare moments in which readers wait, too."""
        try:
            with self._lock:
                connection = self.connection()
                try:
                    # A signal handler may have left a snapshot open, and this read would be of the past.
                    roll_back(connection)
                    return work(connection)
                finally:
                    roll_back(connection)
        except Exception as error:
            raise self.file.translate_error(error) from error

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Read something. Where the disk has no room for what readers share, it is read without that."""
        try:
            return self.read_now(work)
        except StoreError as error:
            if error.kind == "locked":
                return await self.run_apart(work)  # type: ignore[no-any-return]
            if error.kind not in ("full", "unavailable") or self._inline is not None or not self.file.exists():
                raise
            return self._read_alone(work, error)

    def _read_alone(self, work: Callable[[Connection], T], error: StoreError) -> T:
        try:
            connection = self.file.connect(0, alone=True)
        except StoreError:
            raise error from None
        try:
            with self.file.translate_errors():
                return work(connection)
        finally:
            connection.close()

    def run_apart(self, work: Work) -> StoreAnswer:
        """Do it on the thread, outside a transaction."""
        job = StoreJob(asyncio.get_running_loop(), work, alone=True)
        self.run_on_thread([job])
        return job

    # --- the log ----------------------------------------------------------------------------------------------

    def _count(self) -> None:
        self._groups += 1
        # Not by SQLite's own checkpoint: that one runs in the commit which happens to fill the log, on the loop.
        if self._groups % _LOOK == 0 and size_of(self.file.log) >= LARGE_LOG and self.is_idle():
            self.run_on_thread([StoreJob(None, partial(move_log, self.file), alone=True)])

    async def settle(self) -> None:
        """Nobody writes any more: move the log into the file, where damage is noticed, and end the thread."""
        if self.is_open and size_of(self.file.log) >= SMALL_LOG:
            with suppress(StoreError):
                await self.run_apart(partial(move_log, self.file))
        if self.is_idle():
            self.stop(join=True)

    def needs_settling(self) -> bool:
        """True when `settle` has something to do."""
        return self._thread is not None or size_of(self.file.log) >= SMALL_LOG

    def stop(self, *, join: bool) -> None:
        """End the thread, once it has done what it has to do."""
        with self._lock:
            thread, self._thread = self._thread or self._ending, None
            self._ending = None if join else thread
        if thread is not None:
            thread.stop(join=join)

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        self.check_fork()
        self.stop(join=True)
        with self._lock:
            inline, self._inline, self.opened = self._inline, None, None
            if inline is not None:
                inline.close()


class WriterThread:
    """Does what has to wait: one group after the other, each with everything that has come meanwhile.

    It ends when it has had nothing to do for a while, so that a forgotten thread does no harm.
    """

    def __init__(self, file: SqliteFile, wait: int) -> None:
        self._file = file
        self._wait = wait
        self._jobs: list[StoreJob] = []
        self._bell = threading.Condition()
        self._over = self._ended = False
        self.pending = 0
        """Pieces of work that are queued or being done."""
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="glidepath-store", daemon=True)
        self._thread.start()

    def put(self, jobs: Sequence[StoreJob]) -> bool:
        """Do these soon, in order; False when it has ended."""
        with self._bell:
            # Said and not queued: what is put into a thread that has ended would wait forever.
            if self._ended or self._over:
                return False
            self._jobs += jobs
            self.pending += len(jobs)
            self._bell.notify()
        return True

    def stop(self, *, join: bool) -> None:
        """Finish what is queued and end."""
        with self._bell:
            self._over = True
            self._bell.notify()
        if join and threading.current_thread() is not self._thread:
            # Not longer: a disk that hangs must not keep the process from ending.
            self._thread.join(1.0)

    def _serve(self) -> None:
        try:
            while jobs := self._take_jobs():
                for group in _group_jobs(jobs):
                    self._run_jobs(group)
                    # Before the answers: who hears of them may write at once, and must not be sent to the thread again.
                    with self._bell:
                        self.pending -= len(group)
                    for job in group:
                        job.is_finished = True
                    _deliver_answers(group)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _take_jobs(self) -> list[StoreJob]:
        with self._bell:
            if not self._jobs and not self._over:
                self._bell.wait(IDLE)
            jobs, self._jobs = self._jobs, []
            # Decided under the lock, together with the look: `put` sees either the queue or the end.
            self._ended = not jobs
            return jobs

    def _run_jobs(self, jobs: Sequence[StoreJob]) -> None:
        try:
            if self._connection is None:
                self._connection = self._file.connect(self._wait)
            connection = self._connection
            if jobs[0].alone:
                jobs[0].found = jobs[0].work(connection)
                return
            # By group: the same connection writes for runs of both durabilities.
            sync_with(connection, "FULL" if any(job.full for job in jobs) else "NORMAL")
            run_group(connection, jobs, self._file)
        except BaseException as error:
            said = self._file.translate_error(error) if isinstance(error, Exception) else error
            for job in jobs:
                job.failed = said


def _group_jobs(jobs: Sequence[StoreJob]) -> list[list[StoreJob]]:
    """What is one transaction each."""
    groups: list[list[StoreJob]] = []
    for job in jobs:
        # Bounded: a group that takes long holds the lock of the file against every other process.
        if not groups or job.alone or groups[-1][0].alone or len(groups[-1]) >= MOST:
            groups.append([])
        groups[-1].append(job)
    return groups


def _deliver_answers(jobs: Sequence[StoreJob]) -> None:
    """Give every loop its answers, all of them with one call: they are set on the loop that waits for them."""
    loops: dict[asyncio.AbstractEventLoop, list[StoreJob]] = {}
    for job in jobs:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
    for loop, told in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, told)


def _settle(jobs: Sequence[StoreJob]) -> None:
    try:
        for job in jobs:
            job.settle(job.found, job.failed)
    except BaseException:  # of a signal handler: as in `_flush`
        for job in jobs:
            job.settle(job.found, job.failed)
        raise


def _keep_time(answer: StoreAnswer) -> None:
    """A thread whose disk never answers must not hold a run forever; virtual time stands still while it works."""
    loop = answer.loop
    timer_of(loop).watch(answer, SILENCE, lambda: answer.settle(None, make_silence_error(SILENCE)))
    workers = workers_of(loop)
    if workers is not None:
        workers.add(answer)
        answer.call_when_done(workers.discard)


# --- transactions ---------------------------------------------------------------------------------------------------


def begin(connection: Connection) -> None:
    """Begin a transaction that writes. One that was left open, by an exception in the wrong place, is rolled back."""
    roll_back(connection)
    # Other processes may have written since: what was remembered of the last transaction is only true inside it.
    connection.heads.clear()
    try:
        # Take the lock at once: a transaction that reads first and writes later can be refused midway.
        connection.execute("BEGIN IMMEDIATE")
        connection.version = connection.execute("PRAGMA data_version").fetchone()[0]
    except Exception as error:
        if code_of(error) != READ_ONLY:
            raise
        connection.execute("BEGIN")  # reading works, and writing says what is wrong


def transact(connection: Connection, work: Callable[[Connection], T]) -> T:
    """One piece of work, in its own transaction."""
    # All of it inside: an exception of a signal handler comes between any two of these.
    try:
        begin(connection)
        found = work(connection)
        connection.commit_all()
    except BaseException:
        roll_back(connection)
        raise
    return found


def run_group(connection: Connection, jobs: Sequence[StoreJob], file: SqliteFile) -> None:
    """Do these in one transaction; each gets its own value, or the error that is its own.

    Raises `StoreError` (`locked`) when the lock is taken, and errors that concern all of them.
    """
    if len(jobs) > 1 and _is_run_together(connection, jobs, file):
        for job in jobs:
            if job.failed is None and job.landed is not None:
                job.landed(job.found)
        return
    for job in jobs:
        job.failed = None
        try:
            job.found = transact(connection, job.work)
        except Exception as error:
            job.failed = said = file.translate_error(error)
            if len(jobs) == 1 and said.kind == "locked":
                raise said from error
        else:
            if job.landed is not None:
                job.landed(job.found)


def _is_run_together(connection: Connection, jobs: Sequence[StoreJob], file: SqliteFile) -> bool:
    """Do all of them or nothing; False when each has to be done alone."""
    try:
        begin(connection)
        for job in jobs:
            # A refusal, such as a lost lease, writes nothing: the others of the group need not suffer for it.
            before = connection.total_changes
            try:
                job.found, job.failed = job.work(connection), None
            except StoreError as error:
                if connection.total_changes != before:  # half of it is written: each for itself, then
                    raise
                job.failed = error
        connection.commit_all()
    except Exception as error:
        unfinished = connection.in_transaction
        roll_back(connection)
        said = file.translate_error(error)
        # After an I/O error nobody knows what is on the disk: trying again would hide that. And what a signal handler
        # raised behind the commit must not have everything done twice.
        committed = not unfinished and not isinstance(error, (sqlite3.Error, StoreError))
        if said.kind == "locked" or code_of(error) == _IO_ERROR or committed:
            raise said from error
        return False
    except BaseException:
        roll_back(connection)
        raise
    return True


def move_log(file: SqliteFile, connection: Connection) -> None:
    """Move the log into the file, and empty it. Most of it without the lock, the rest while nobody writes."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    if size_of(file.log):
        patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        try:
            connection.execute(f"PRAGMA busy_timeout = {min(patience, _IMPATIENT)}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {patience}")


def give_space_back(file: SqliteFile, connection: Connection, slice_: int = 1000) -> None:
    """Make the file smaller by its free pages, a slice at a time, and empty the log: what was deleted is gone."""
    # In slices: each is a transaction, and other processes get the lock in between.
    while connection.execute("PRAGMA freelist_count").fetchone()[0]:
        connection.execute(f"PRAGMA incremental_vacuum({slice_})").fetchall()
    move_log(file, connection)
