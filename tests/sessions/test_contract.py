"""Our three stores keep the contract of a session store."""

import asyncio
import os

import pytest

pytest.register_assert_rewrite("glidepath.conformance.stores")

from glidepath.conformance.stores import SessionStoreContract  # noqa: E402
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore  # noqa: E402

from .postgres import dsn  # noqa: E402


class TestMemoryStore(SessionStoreContract):
    def make_store(self, *, lease=10.0):
        return MemoryStore(lease=lease)


class TestSqliteStore(SessionStoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.path = tmp_path / "sessions.db"

    def make_store(self, *, lease=10.0):
        self.lease = lease
        return SqliteStore(self.path, lease=lease)

    def again(self, store):
        return SqliteStore(self.path, lease=self.lease)


class TestPostgresStore(SessionStoreContract):
    def make_store(self, *, lease=10.0):
        self.lease = lease
        self.dsn = schema()
        return PostgresStore(self.dsn, lease=lease)

    def again(self, store):
        return PostgresStore(self.dsn, lease=self.lease)


def schema() -> str:
    """An empty schema: quicker to make than a database."""
    import threading

    import asyncpg

    name = f"t{os.urandom(6).hex()}"

    async def create():
        connection = await asyncpg.connect(dsn())
        await connection.execute(f"CREATE SCHEMA {name}")
        await connection.close()

    thread = threading.Thread(target=asyncio.run, args=(create(),))
    thread.start()
    thread.join()
    return f"{dsn()}&options=-csearch_path%3D{name}"
