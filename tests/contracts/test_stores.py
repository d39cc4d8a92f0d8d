"""Our stores keep the contract of a session store."""

import pytest
from tests.crash.postgres import fresh_schema

from glidepath.apps.fleet import FleetStore
from glidepath.conformance import (
    CatalogContract,
    ExcerptsContract,
    InboxContract,
    SessionStoreContract,
    TurbulentStoreContract,
    TurbulentWalletContract,
    WalletStoreContract,
)
from glidepath.sessions import MemoryStore, PostgresStore, RedactingStore, SqliteStore


class TestMemoryStore(SessionStoreContract, InboxContract):
    subject = MemoryStore

    def make_store(self, *, lease=10.0):
        return MemoryStore(lease=lease)


class TestSqliteStore(SessionStoreContract, InboxContract):
    subject = SqliteStore

    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.path = tmp_path / "sessions.db"

    def make_store(self, *, lease=10.0):
        self.lease = lease
        return SqliteStore(self.path, lease=lease)

    def again(self, store):
        return SqliteStore(self.path, lease=self.lease)


class TestPostgresStore(SessionStoreContract, InboxContract):
    subject = PostgresStore

    def make_store(self, *, lease=10.0):
        self.lease = lease
        self.dsn = fresh_schema()
        return PostgresStore(self.dsn, lease=lease)

    def again(self, store):
        return PostgresStore(self.dsn, lease=self.lease)


class TestFleetStore(TestPostgresStore):
    subject = FleetStore

    def make_store(self, *, lease=10.0):
        self.lease = lease
        self.dsn = fresh_schema()
        return FleetStore(self.dsn, lease=lease)

    def again(self, store):
        return FleetStore(self.dsn, lease=self.lease)


class TestMemoryWallets(WalletStoreContract):
    subject = MemoryStore
    make_store = TestMemoryStore.make_store


class TestMemoryInTurbulence(TurbulentStoreContract):
    subject = MemoryStore

    def make_world(self, clock):
        store = MemoryStore(lease=10.0, clock=clock)
        return lambda _: store


class TestMemoryWalletsInTurbulence(TurbulentWalletContract):
    subject = MemoryStore
    make_world = TestMemoryInTurbulence.make_world


class TestSqliteInTurbulence(TurbulentStoreContract):
    subject = SqliteStore
    seeds = range(5)

    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.files = (tmp_path / f"{number}.db" for number in range(100))

    def make_world(self, _):
        path = next(self.files)
        return lambda clock: SqliteStore(path, lease=10.0, clock=clock)


class TestSqliteWalletsInTurbulence(TurbulentWalletContract):
    subject = SqliteStore
    seeds = range(5)
    place, make_world = TestSqliteInTurbulence.place, TestSqliteInTurbulence.make_world


class TestMemoryCatalog(CatalogContract):
    subject = MemoryStore
    make_store = TestMemoryStore.make_store


class TestSqliteWallets(WalletStoreContract):
    subject = SqliteStore
    place, make_store, again = TestSqliteStore.place, TestSqliteStore.make_store, TestSqliteStore.again


class TestSqliteCatalog(CatalogContract):
    subject = SqliteStore
    place, make_store, again = TestSqliteStore.place, TestSqliteStore.make_store, TestSqliteStore.again


class TestPostgresWallets(WalletStoreContract):
    subject = PostgresStore
    make_store, again = TestPostgresStore.make_store, TestPostgresStore.again


class TestPostgresCatalog(CatalogContract):
    subject = PostgresStore
    make_store, again = TestPostgresStore.make_store, TestPostgresStore.again


class TestRedactingStore(SessionStoreContract):
    subject = RedactingStore

    def make_store(self, *, lease=10.0):
        return RedactingStore(MemoryStore(lease=lease), str)


class TestRedactingCatalog(CatalogContract):
    subject = RedactingStore
    make_store = TestRedactingStore.make_store


class TestMemoryExcerpts(ExcerptsContract):
    subject = MemoryStore
    make_store = TestMemoryStore.make_store


class TestSqliteExcerpts(ExcerptsContract):
    subject = SqliteStore
    place, make_store = TestSqliteStore.place, TestSqliteStore.make_store


class TestPostgresExcerpts(ExcerptsContract):
    subject = PostgresStore
    make_store = TestPostgresStore.make_store
