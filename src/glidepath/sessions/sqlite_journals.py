"""Reading journals from an SQLite file: where the commits of a session are, and which is its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.sessions.session_ids import is_keepable
from glidepath.sessions.summaries import LAST, summary_in
from glidepath.spi import Commit, Entry
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions.group_commit import GroupCommit
    from glidepath.sessions.sqlite_file import Connection, SqliteFile

ENTRY = "SELECT id, head, hash, token, owner, expires, updated, flag, summary, key, lease FROM sessions"
_FEW = 8  # sessions in flight that are looked up one by one
_BATCH = 2048  # commits that `places` may be behind
_INDEXED = "SELECT seq FROM indexed"
_LAST_NEW = "SELECT number, hash FROM commits WHERE seq > ? AND session = ? ORDER BY seq DESC LIMIT 1"
_LAST_PLACE = (
    "SELECT p.number, c.hash FROM places p LEFT JOIN commits c ON c.seq = p.seq "
    "WHERE p.session = ? ORDER BY p.number DESC LIMIT 1"
)
_PLACED = (
    "SELECT p.number, c.body, c.hash FROM places p JOIN commits c ON c.seq = p.seq "
    "WHERE p.session = ? AND p.number >= ? ORDER BY p.number"
)
_NEW = "SELECT number, body, hash FROM commits WHERE seq > ? AND session = ? AND number >= ? ORDER BY seq"


def read_blob(value: object) -> bytes:
    """The bytes in a row; anything else was not written by us, and will not fit the chain."""
    return value if type(value) is bytes else str(value).encode()


def entry_in(row: Sequence[Any]) -> Entry:
    """The entry of a row of `sessions`; raises `TypeError` for one that was not written by us."""
    if type(row[1]) is not int or type(row[3]) is not int:
        raise TypeError(f"session {row[0]!r:.80} has no head or no token")
    return Entry(
        session_id=row[0],
        head=row[1],
        hash=read_blob(row[2]),
        token=row[3],
        owner=row[4],
        expires=row[5],
        updated=row[6],
        flag=row[7],
        summary=summary_in(row[8]),
    )


class SqliteJournals:
    """The part of `SqliteStore` that reads journals."""

    path: str
    _file: SqliteFile
    _group: GroupCommit
    _clock: Callable[[], float]
    _known_place = 0  # what `indexed` had when we last looked

    async def _write_without_lease(self, work: Callable[[Connection], Any], *, full: bool = False) -> Any:
        """Write something that needs no lease."""
        try:
            return await self._group.submit(work, full=full)
        finally:
            self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        """No thread is kept for a store that nobody holds anything of."""
        raise NotImplementedError

    # --- rows -------------------------------------------------------------------------------------------------

    def _row(self, connection: Connection, session_id: str) -> tuple[Entry, int, float]:
        """The entry of a session, its key, and how long its lease is; raises `StoreError` (`missing`)."""
        row = connection.execute(f"{ENTRY} WHERE id = ?", (session_id,)).fetchone()
        if row is None:
            raise StoreError(f"there is no session {session_id!r} in {self.path}", kind="missing")
        return self._current(connection, row), row[9], row[10]

    def _current(
        self, connection: Connection, row: Sequence[Any], heads: Mapping[int, tuple[int, bytes]] | None = None
    ) -> Entry:
        """The entry with its current head. An owner that gives the session back notes it; a run in flight is ahead.

        A last commit behind the head that was noted means that commits were lost: the entry keeps that head.
        """
        entry = entry_in(row)
        # The head of a run in flight is not written with each commit: that would change a page of `sessions` every
        # time.
        if entry.owner is None:
            return entry
        if heads is None:
            number, digest = self._last(connection, row[9])
        else:
            number, digest = heads.get(row[9]) or self._find_last_place(connection, row[9])
        return entry if number <= entry.head else replace(entry, head=number, hash=digest)

    def _last(self, connection: Connection, key: int) -> tuple[int, bytes]:
        """The number and hash of the last commit."""
        row = connection.execute(_LAST_NEW, (self._count_indexed(connection), key)).fetchone()
        return self._find_last_place(connection, key) if row is None else (row[0], read_blob(row[1]))

    def _find_last_place(self, connection: Connection, key: int) -> tuple[int, bytes]:
        row = connection.execute(_LAST_PLACE, (key,)).fetchone()
        return (0, b"") if row is None else (row[0], read_blob(row[1]))

    def _new_heads(
        self, connection: Connection, rows: Sequence[Sequence[Any]]
    ) -> Mapping[int, tuple[int, bytes]] | None:
        """The last commits of all sessions that `places` does not know yet: looked up once for a list of them."""
        # A few are cheaper looked up one by one than by reading all that is not indexed yet.
        if sum(row[4] is not None for row in rows) < _FEW:
            return None
        found = connection.execute(
            "SELECT session, number, hash FROM commits WHERE seq > ? ORDER BY seq", (self._count_indexed(connection),)
        )
        return {key: (number, read_blob(digest)) for key, number, digest in found}

    def _count_indexed(self, connection: Connection) -> int:
        row = connection.execute(_INDEXED).fetchone()
        return 0 if row is None else row[0]

    # --- places -----------------------------------------------------------------------------------------------

    def _index_if_due(self, connection: Connection, seq: int) -> None:
        """Bring `places` up to date once it is far behind the commit `seq`: in the order of sessions, page by page."""
        # Commits of a thousand sessions lie mixed in the order they came; indexing them one by one would touch a page
        # each.
        if seq - self._known_place < _BATCH:
            return
        execute, known = connection.execute, self._count_indexed(connection)
        if seq - known >= _BATCH:
            execute(
                "INSERT INTO places(session, number, seq) SELECT session, number, seq FROM commits "
                "WHERE seq > ? AND seq <= ? ORDER BY session, number",
                (known, seq),
            )
            execute("UPDATE indexed SET seq = ?", (seq,))
        # Not what was just written: that may yet be rolled back.
        self._known_place = known

    def _delete_commits(self, connection: Connection, key: int, *, after: int = 0) -> None:
        """Delete the commits of a session with a higher number. The numbers of the last rows may be used again."""
        execute = connection.execute
        execute(
            "DELETE FROM commits WHERE seq IN (SELECT seq FROM places WHERE session = ? AND number > ?)", (key, after)
        )
        execute("DELETE FROM places WHERE session = ? AND number > ?", (key, after))
        known = self._count_indexed(connection)
        execute("DELETE FROM commits WHERE seq > ? AND session = ? AND number > ?", (known, key, after))
        # SQLite gives the highest numbers out again when their rows are gone; behind the mark they would never be
        # found.
        execute("UPDATE indexed SET seq = min(seq, (SELECT coalesce(max(seq), 0) FROM commits))")
        self._known_place = 0

    def _forget(self, connection: Connection, key: int) -> None:
        self._delete_commits(connection, key)
        connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        connection.execute("DELETE FROM notes WHERE session = ?", (key,))

    # --- reading ----------------------------------------------------------------------------------------------

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal, from commit `since` on."""

        def work(connection: Connection) -> tuple[Entry, Sequence[Commit]]:
            connection.execute("BEGIN")  # one snapshot for all of it; the caller ends it
            entry, key, _ = self._row(connection, session_id)
            rows = connection.execute(_PLACED, (key, since)).fetchall()
            # From both: what `places` has and what has come since, which it does not know yet.
            rows += connection.execute(_NEW, (self._count_indexed(connection), key, since)).fetchall()
            return entry, tuple([Commit(number, read_blob(body), read_blob(digest)) for number, body, digest in rows])

        self._file.must_exist(session_id)
        return await self._group.read(work)

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """These commits of a journal, as far as they exist."""

        def work(connection: Connection) -> list[Commit]:
            connection.execute("BEGIN")
            _, key, _ = self._row(connection, session_id)
            known, execute = self._count_indexed(connection), connection.execute
            found: list[Commit] = []
            for number in numbers:
                row = (
                    execute(
                        "SELECT c.hash, c.body FROM places p JOIN commits c ON c.seq = p.seq "
                        "WHERE p.session = ? AND p.number = ?",
                        (key, number),
                    ).fetchone()
                    or execute(
                        "SELECT hash, body FROM commits WHERE seq > ? AND session = ? AND number = ?",
                        (known, key, number),
                    ).fetchone()
                )
                if row is not None:
                    found.append(Commit(number, read_blob(row[1]), read_blob(row[0])))
            return found

        self._file.must_exist(session_id)
        return await self._group.read(work)

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose ids begin in this way, the last written first."""

        def work(connection: Connection) -> list[Entry]:
            connection.execute("BEGIN")
            where, values = ("WHERE id >= ? AND id < ?", (prefix, prefix + LAST)) if prefix else ("", ())
            rows = connection.execute(f"{ENTRY} {where} ORDER BY updated DESC, id", values).fetchall()
            heads = self._new_heads(connection, rows)
            return [self._current(connection, row, heads) for row in rows]

        self._file.must_exist()
        return await self._group.read(work) if is_keepable(prefix) else []
