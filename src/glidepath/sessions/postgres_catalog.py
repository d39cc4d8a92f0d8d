"""The catalog of a PostgreSQL store: a side table that triggers keep in step, no matter who writes sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.sessions.owner import GONE, is_alive
from glidepath.sessions.session_ids import check_storable_id, is_keepable
from glidepath.sessions.summaries import LAST, UNFINISHED, check_query, check_title, make_page, normalize_tags, page_of
from glidepath.spi import Commit, Entry, Lease, SessionPage, SessionQuery
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions.postgres_pool import PostgresConnection, PostgresRow

_ENDED = (
    "UPDATE glidepath_sessions SET head = $2, hash = $3, token = token + 1, owner = NULL, expires = $5, summary = $6, "
    "updated = extract(epoch FROM clock_timestamp()) WHERE key = $1 AND token = $4"
)
_TABLES = """
CREATE TABLE IF NOT EXISTS glidepath_catalog(
  key bigint PRIMARY KEY REFERENCES glidepath_sessions(key) ON DELETE CASCADE, id text NOT NULL,
  root boolean NOT NULL DEFAULT true, state text, outcome text, agent text, cost float8, updated float8 NOT NULL,
  words text NOT NULL DEFAULT '', title text NOT NULL DEFAULT '', tags text[] NOT NULL DEFAULT '{}');
CREATE INDEX IF NOT EXISTS glidepath_catalog_by_time ON glidepath_catalog(updated DESC, id COLLATE "C");
CREATE INDEX IF NOT EXISTS glidepath_catalog_by_id ON glidepath_catalog(id COLLATE "C");
CREATE INDEX IF NOT EXISTS glidepath_catalog_by_tag ON glidepath_catalog USING gin(tags);
CREATE OR REPLACE FUNCTION glidepath_card(one glidepath_sessions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  told jsonb := '{}'; price float8;
BEGIN
  BEGIN
    told := replace(convert_from(one.summary, 'UTF8'), '\\u0000', '')::jsonb;
    IF jsonb_typeof(told) <> 'object' THEN told := '{}'; END IF;
  EXCEPTION WHEN others THEN told := '{}';
  END;
  BEGIN
    price := (told ->> 'cost')::float8;
    IF NOT abs(price) < 1e15 THEN price := NULL; END IF;
  EXCEPTION WHEN others THEN price := NULL;
  END;
  INSERT INTO glidepath_catalog(key, id, root, state, outcome, agent, cost, updated, words) VALUES(
    one.key, one.id, coalesce(told -> 'parent', 'null') IN ('null', '{}', '""'),
    left(coalesce(nullif(told ->> 'state', ''), told ->> 'status'), 200), left(told ->> 'outcome', 200),
    left(coalesce(nullif(told ->> 'agent', ''), told ->> 'team'), 200), price, one.updated,
    lower(left(coalesce(told ->> 'task', ''), 200) || chr(10) || one.id))
  ON CONFLICT (key) DO UPDATE SET root = EXCLUDED.root, state = EXCLUDED.state, outcome = EXCLUDED.outcome,
    agent = EXCLUDED.agent, cost = EXCLUDED.cost, updated = EXCLUDED.updated, words = EXCLUDED.words;
END $$;
CREATE OR REPLACE FUNCTION glidepath_catalog_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM glidepath_card(NEW);
  RETURN NULL;
END $$;
CREATE TRIGGER glidepath_catalog_new AFTER INSERT ON glidepath_sessions
  FOR EACH ROW EXECUTE FUNCTION glidepath_catalog_told();
CREATE TRIGGER glidepath_catalog_told AFTER UPDATE ON glidepath_sessions
  FOR EACH ROW WHEN (OLD.summary IS DISTINCT FROM NEW.summary) EXECUTE FUNCTION glidepath_catalog_told();
SELECT count(glidepath_card(one)) FROM glidepath_sessions one;
"""
_PAGE = (
    "SELECT s.id, s.head, s.hash, s.token, s.owner, s.expires, s.updated, s.flag, s.summary, s.key, c.title, c.tags, "
    "c.updated AS noted FROM glidepath_catalog c JOIN glidepath_sessions s ON s.key = c.key"
)
OF_PREFIX = 'SELECT key FROM glidepath_catalog WHERE id COLLATE "C" >= $1 AND id COLLATE "C" < $2'
"""Along an index, which the sessions themselves have only in the order of the database's language."""
_FAMILY = """
SELECT DISTINCT ON (r.root, s.key) r.root, s.key, s.id, s.owner, s.expires
FROM unnest($1::text[]) AS r(root)
JOIN glidepath_catalog c ON c.id COLLATE "C" = r.root
  OR (c.id COLLATE "C" > r.root || '/' AND c.id COLLATE "C" < r.root || '0')
JOIN glidepath_sessions s ON s.key = c.key
WHERE s.id = r.root OR s.head = 0 OR NOT c.root
"""
_ENGINE = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")
_BATCH = 500


async def prepare(connection: PostgresConnection) -> bool:
    """Make the table where it is missing; False when this user may not, and there is none."""
    import asyncpg

    known = (  # the tables of the system, read as any others: a name that was missing a moment ago is remembered so
        "SELECT EXISTS(SELECT 1 FROM pg_trigger WHERE tgname = 'glidepath_catalog_told' "
        "AND tgrelid = 'glidepath_sessions'::regclass)"
    )
    if await connection.fetchval(known):
        return True
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('glidepath_catalog'))")
            if not await connection.fetchval(known):  # nobody else has made it meanwhile
                await connection.execute(_TABLES)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError):
        return False
    return True


class PostgresCatalog:
    """What `PostgresStore` is as a `Catalog`."""

    _catalogued = True

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match."""
        query, start = check_query(query)
        where, values = _conditions(query, start)
        statement = f'{_PAGE} WHERE {where} ORDER BY c.updated DESC, c.id COLLATE "C" LIMIT {query.limit + 1}'
        async with self._connection() as connection:
            rows = await connection.fetch(statement, *values) if self._catalogued else ()
        if not self._catalogued:
            return page_of(await self.entries(), query)
        found = [replace(self._read(row), title=row["title"], tags=tuple(row["tags"])) for row in rows]
        return make_page(found, query.limit, [row["noted"] for row in rows])

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children, in batches; what a fleet and its engine keep of them, too."""
        gone: list[str] = []
        names = [name for name in dict.fromkeys(session_ids) if is_keepable(name)]
        for first in range(0, len(names), _BATCH):
            async with self._transaction() as connection:
                if not self._catalogued:
                    raise StoreError(
                        "the table glidepath_catalog is missing, and this user is not allowed to create it",
                        kind="read_only",
                    )
                gone += await _remove(connection, names[first : first + _BATCH])
        return gone

    async def replace_end(self, lease: Lease, end: Commit, summary: Mapping[str, Any]) -> None:
        """Put this commit in place of all from its number on, as a repair does. The lease is void after this."""
        values = (lease.key, end.number, end.hash)
        async with self._transaction() as connection:
            ended = await connection.execute(_ENDED, *values, lease.token, GONE, _wire.encode(summary))
            if ended != "UPDATE 1":
                raise await self._explain_refusal(connection, lease, end.number)
            await connection.execute("DELETE FROM glidepath_commits WHERE session = $1 AND number >= $2", *values[:2])
            await connection.execute("INSERT INTO glidepath_commits VALUES($1, $2, $3, $4)", *values, end.body)
        await self._lease_over(lease)

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """These commits of a journal, as far as they are there."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                "SELECT number, body, hash FROM glidepath_commits WHERE number = ANY($2) AND session = "
                "(SELECT key FROM glidepath_sessions WHERE id = $1) ORDER BY number",
                check_storable_id(session_id),
                list(numbers),
            )
        return tuple(Commit(row["number"], row["body"], row["hash"]) for row in rows)

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both."""
        name = None if title is None else check_title(title)
        labels = None if tags is None else list(normalize_tags(tags))
        async with self._connection() as connection:
            status = await connection.execute(
                "UPDATE glidepath_catalog SET title = coalesce($2, title), tags = coalesce($3, tags) WHERE id = $1",
                check_storable_id(session_id),
                name,
                labels,
            )
        if status == "UPDATE 0":
            raise StoreError(f"there is no session {session_id!r} in this store", kind="missing")

    # --- what the store has -----------------------------------------------------------------------------------

    def _connection(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def _transaction(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions."""
        raise NotImplementedError

    def _read(self, row: PostgresRow) -> Entry:
        raise NotImplementedError

    async def _explain_refusal(self, connection: PostgresConnection, lease: Lease, number: int) -> StoreError:
        raise NotImplementedError

    async def _lease_over(self, lease: Lease) -> None:
        raise NotImplementedError


async def _remove(connection: PostgresConnection, names: Sequence[str]) -> list[str]:
    fleet = await connection.fetchval("SELECT to_regclass('glidepath_fleet_runs') IS NOT NULL")
    rows = await connection.fetch(_FAMILY, list(names))
    locked = await connection.fetch(
        "SELECT key, id, owner, expires, extract(epoch FROM clock_timestamp())::float8 AS now FROM glidepath_sessions "
        "WHERE key = ANY($1) ORDER BY key FOR UPDATE",
        [row["key"] for row in rows],
    )
    held = {one["key"] for one in locked if one["owner"] and one["now"] < one["expires"] and is_alive(one["owner"])}
    ids = [one["id"] for one in locked]
    if fleet:
        waiting = await connection.fetch(
            "SELECT session FROM glidepath_fleet_runs WHERE session = ANY($1) AND outcome IS NULL FOR UPDATE", ids
        )
        queued = {one["session"] for one in waiting}
        held |= {one["key"] for one in locked if one["id"] in queued}
    stay = {row["root"] for row in rows if row["key"] in held}
    gone = {row["key"]: row["id"] for row in rows if row["root"] not in stay}
    await connection.execute("DELETE FROM glidepath_sessions WHERE key = ANY($1)", list(gone))
    if fleet:
        await _remove_from_fleet(connection, list(gone.values()))
    if await connection.fetchval("SELECT to_regclass('glidepath_event_runs') IS NOT NULL"):  # a server's
        await connection.execute("DELETE FROM glidepath_event_runs WHERE session = ANY($1)", list(gone.values()))
    return list(gone.values())


async def _remove_from_fleet(connection: PostgresConnection, ids: Sequence[str]) -> None:
    rows = await connection.fetch("DELETE FROM glidepath_fleet_runs WHERE session = ANY($1) RETURNING session", ids)
    flown = [row["session"] for row in rows]
    for table in _ENGINE if flown else ():
        if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"dbos.{table}"):
            await connection.execute(f"DELETE FROM dbos.{table} WHERE workflow_uuid = ANY($1)", flown)  # noqa: S608


_SUMMARY = r"replace(convert_from(s.summary, 'UTF8'), '\u0000', '')::jsonb"


def _conditions(query: SessionQuery, start: tuple[float, str] | None) -> tuple[str, list[Any]]:
    """The WHERE of a query, and its values."""
    parts: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: object) -> None:
        for value in given:
            values.append(value)
            condition = condition.replace("?", f"${len(values)}", 1)
        parts.append(condition)

    if query.prefix:
        add('c.id COLLATE "C" >= ? AND c.id COLLATE "C" < ?', query.prefix, query.prefix + LAST)
    if query.roots:
        add("c.root")
    if query.state is not None:
        add("c.state = ?", query.state)
    if query.outcome == UNFINISHED:
        add("c.outcome IS NULL")
    elif query.outcome is not None:
        add("c.outcome = ?", query.outcome)
    if query.agent is not None:
        add("c.agent = ?", query.agent)
    if query.user is not None:
        add(f"{_SUMMARY} ->> 'user' = ?", query.user)
    if query.tag is not None:
        add("c.tags @> ARRAY[?::text]", query.tag)
    if query.text:
        add("(strpos(c.words, lower(?)) > 0 OR strpos(lower(c.title), lower(?)) > 0)", query.text, query.text)
    if query.min_cost is not None:
        add("c.cost >= ?", float(query.min_cost))
    if query.max_cost is not None:
        add("c.cost <= ?", float(query.max_cost))
    if query.before is not None:
        add("c.updated < ? AND s.updated < ?", float(query.before), float(query.before))
    if query.after is not None:
        add("c.updated >= ?", float(query.after))
    if start is not None:
        add('c.updated <= ? AND (c.updated < ? OR c.id COLLATE "C" > ?)', start[0], start[0], start[1])
    return " AND ".join(parts) or "true", values
