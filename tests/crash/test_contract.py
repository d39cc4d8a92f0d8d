"""Our three stores keep the contract of a session store."""

import pytest

pytest.register_assert_rewrite("glidepath.conformance.stores")

from glidepath.conformance.stores import SessionStoreContract  # noqa: E402
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore  # noqa: E402

from .postgres import fresh_schema  # noqa: E402


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
        self.dsn = fresh_schema()
        return PostgresStore(self.dsn, lease=lease)

    def again(self, store):
        return PostgresStore(self.dsn, lease=self.lease)
