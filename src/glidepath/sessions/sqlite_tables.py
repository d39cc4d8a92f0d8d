"""The tables of an SQLite store.

Commits are appended to one table in the order in which they are written, whichever session they belong to: a group of
them touches a few pages at its end, where one row for each session would touch a page for each. `places` says where
the commits of a session are. It is behind: it is brought up to date in batches, and `indexed` says how far it is.
Whatever is behind that number is found by reading the few commits there.
"""

from __future__ import annotations

LAYOUT = 3  # of the tables; the journal inside has its own version
APPLICATION = 0x676C6964  # "glid": what the file says it is

_CATALOG = (
    (
        "CREATE TABLE IF NOT EXISTS catalog("
        "key INTEGER PRIMARY KEY, id TEXT NOT NULL, root INTEGER NOT NULL DEFAULT 1, state TEXT, outcome TEXT, "
        "agent TEXT, cost REAL, updated REAL NOT NULL, words TEXT NOT NULL DEFAULT '', title TEXT NOT NULL DEFAULT '', "
        "caption TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '')"
    ),
    "CREATE INDEX IF NOT EXISTS catalog_by_time ON catalog(updated DESC, id)",
    (
        "CREATE TABLE IF NOT EXISTS catalog_tags("
        "tag TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY(tag, key)) WITHOUT ROWID"
    ),
    "CREATE INDEX IF NOT EXISTS catalog_tags_of ON catalog_tags(key)",
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_new AFTER INSERT ON sessions BEGIN "
        "INSERT OR IGNORE INTO catalog(key, id, updated, words) "
        "VALUES(NEW.key, NEW.id, NEW.updated, lower(NEW.id)); END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_let_go AFTER UPDATE OF owner ON sessions WHEN NEW.owner IS NULL BEGIN "
        "UPDATE catalog SET updated = NEW.updated WHERE key = NEW.key; END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS catalog_gone AFTER DELETE ON sessions BEGIN "
        "DELETE FROM catalog_tags WHERE key = OLD.key; DELETE FROM catalog WHERE key = OLD.key; END"
    ),
)
_BILLS = (
    "CREATE TABLE IF NOT EXISTS wallet_bills("
    "id TEXT PRIMARY KEY, key TEXT NOT NULL, line TEXT NOT NULL, at REAL NOT NULL, tokens INTEGER NOT NULL, "
    "money INTEGER NOT NULL) WITHOUT ROWID"
)
_WALLETS = (
    (
        "CREATE TABLE IF NOT EXISTS wallets("
        "name TEXT PRIMARY KEY, per TEXT, parent TEXT, max_tokens INTEGER, max_money INTEGER, "
        "ruled_tokens INTEGER, ruled_money INTEGER, closed INTEGER NOT NULL) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS wallet_periods("
        "name TEXT NOT NULL, period TEXT NOT NULL, tokens INTEGER NOT NULL, money INTEGER NOT NULL, "
        "held_tokens INTEGER NOT NULL, held_money INTEGER NOT NULL, firm_tokens INTEGER NOT NULL, "
        "firm_money INTEGER NOT NULL, disputed_tokens INTEGER NOT NULL DEFAULT 0, "
        "disputed_money INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(name, period)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS wallet_holds("
        "key TEXT PRIMARY KEY, leg INTEGER NOT NULL, owner TEXT NOT NULL, session TEXT, expires REAL NOT NULL, "
        "line TEXT NOT NULL, base_tokens INTEGER NOT NULL, base_money INTEGER NOT NULL, "
        "tokens INTEGER NOT NULL, money INTEGER NOT NULL, grant_tokens INTEGER NOT NULL, "
        "grant_money INTEGER NOT NULL, firm_tokens INTEGER NOT NULL, firm_money INTEGER NOT NULL, "
        "ended REAL NOT NULL, disputed_base_tokens INTEGER NOT NULL DEFAULT 0, "
        "disputed_base_money INTEGER NOT NULL DEFAULT 0, disputed_tokens INTEGER NOT NULL DEFAULT 0, "
        "disputed_money INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID"
    ),
    _BILLS,
)
UPGRADES = {
    2: (
        *(
            f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0"
            for table, columns in (
                ("wallet_periods", ("disputed_tokens", "disputed_money")),
                (
                    "wallet_holds",
                    ("disputed_base_tokens", "disputed_base_money", "disputed_tokens", "disputed_money"),
                ),
            )
            for column in columns
        ),
        _BILLS,
    ),
}
"""What makes a file of an earlier layout one of this layout."""
TABLES = (
    "CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    (
        "CREATE TABLE IF NOT EXISTS sessions("
        "key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
        "head INTEGER NOT NULL, hash BLOB NOT NULL, token INTEGER NOT NULL, "
        "owner TEXT, expires REAL NOT NULL, lease REAL NOT NULL, updated REAL NOT NULL, flag TEXT, "
        "summary BLOB NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS commits("
        "seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, "
        "hash BLOB NOT NULL, body BLOB NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS places("
        "session INTEGER NOT NULL, number INTEGER NOT NULL, seq INTEGER NOT NULL, "
        "PRIMARY KEY(session, number)) WITHOUT ROWID"
    ),
    "CREATE TABLE IF NOT EXISTS indexed(one INTEGER PRIMARY KEY CHECK(one = 1), seq INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO indexed VALUES(1, 0)",
    (
        "CREATE TABLE IF NOT EXISTS notes("
        "session INTEGER NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, "
        "body BLOB NOT NULL, posted REAL NOT NULL, PRIMARY KEY(session, number), UNIQUE(session, id)) WITHOUT ROWID"
    ),
    *_CATALOG,
    *_WALLETS,
)
