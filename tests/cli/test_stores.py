"""Which store a name on the command line stands for."""

import asyncio

import pytest

from glidepath.cli.agent_maker import make_store
from glidepath.cli.stores import store_path
from glidepath.errors import ConfigurationError
from glidepath.sessions import SegmentStore, SqliteStore

from .shell_user import glidepath
from .test_resume import last_line

HELLO = ["--model", "python:flights:hello"]


class Here:
    def __init__(self, folder):
        self.folder = folder


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("runs.db", SqliteStore, "runs.db"),
        ("runs.sqlite3", SqliteStore, "runs.sqlite3"),
        ("runs", SegmentStore, "runs"),
        ("deep/runs", SegmentStore, "deep/runs"),
        ("sqlite:runs", SqliteStore, "runs"),
        ("segments:runs.db", SegmentStore, "runs.db"),
        ("segments:/abs/runs", SegmentStore, "/abs/runs"),
    ],
)
def test_a_name_says_which_store_is_made(tmp_path, name, kind, path):
    made = make_store(name, Here(tmp_path))
    assert (type(made), made.path) == (kind, str(tmp_path / path))
    assert store_path(name, Here(tmp_path)) == tmp_path / path


def test_a_path_follows_what_is_there(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.db").mkdir()
    assert type(make_store("file", Here(tmp_path))) is SqliteStore
    assert type(make_store("folder.db", Here(tmp_path))) is SegmentStore


@pytest.mark.parametrize("name", ["sqlite:", "segments:", "segments:  ", "mysql://x", "redis://x"])
def test_a_name_that_stands_for_no_store_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="store"):
        make_store(name, Here(tmp_path))


@pytest.mark.parametrize("store", ["segments:kept", "sqlite:kept", "kept"])
def test_a_run_can_be_listed_and_resumed_whatever_its_store(tmp_path, store):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--landing", "force", "--store", store]
    ran = glidepath("run", "go", *argv, "--max-turns", "2", folder=tmp_path)
    assert ran.code == 3
    assert last_line(ran)[2:4] == ["--store", store]
    assert (tmp_path / "kept").is_file() == store.startswith("sqlite")
    again = glidepath(*last_line(ran), "--landing", "force", "--max-turns", "6", folder=tmp_path)
    assert (again.code, again.out) == (3, "Landed.\n")
    listed = glidepath("runs", "list", "--store", "kept", folder=tmp_path)  # it follows what is there
    assert (listed.code, last_line(ran)[1] in listed.out) == (0, True)


def test_the_default_is_a_folder_of_segments_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    ran = glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path)
    assert ran.code == 0
    kept = tmp_path / "data" / "glidepath"
    assert sorted(file.name for file in kept.iterdir()) == ["chats", "last", "sessions"]
    assert (kept / "sessions" / "STORE").is_file()


def test_a_default_file_that_has_sessions_stays_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kept = tmp_path / "data" / "glidepath"
    kept.mkdir(parents=True)
    first = glidepath("run", "go", *HELLO, "--store", str(kept / "sessions.db"), folder=tmp_path)
    assert first.code == 0
    second = glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path)
    assert second.code == 0
    assert not (kept / "sessions").exists()
    assert len(asyncio.run(SqliteStore(kept / "sessions.db").entries())) == 2
    listed = glidepath("runs", "list", folder=tmp_path)
    assert listed.out.count("session_") == 2


def test_an_empty_default_file_is_not_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kept = tmp_path / "data" / "glidepath"
    kept.mkdir(parents=True)
    (kept / "sessions.db").touch()
    nothing = glidepath("runs", "list", folder=tmp_path)
    assert nothing.code == 2
    assert "pass --store PATH" in nothing.err
    assert glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path).code == 0
    assert (kept / "sessions" / "STORE").is_file()


def test_an_agent_cannot_write_into_the_store_it_runs_with(tmp_path):
    from glidepath.cli.agent_maker import _own_files
    from glidepath.workspace import Workspace

    class Settings(dict):
        file = None

    own = _own_files(Settings(store="segments:kept"), Here(tmp_path))
    place = Workspace(tmp_path, protect=own)
    assert place.protection.refusal(["kept", "segments", "00000001.seg"])
    assert place.protection.refusal(["kept", "STORE"])


# --- migrating ----------------------------------------------------------------------------------------------------


def with_old_sessions(tmp_path, monkeypatch, count=2):
    """A default SQLite file with sessions in it, as an older version left it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kept = tmp_path / "data" / "glidepath"
    kept.mkdir(parents=True)
    for _ in range(count):
        assert glidepath("run", "go", *HELLO, "--store", str(kept / "sessions.db"), folder=tmp_path).code == 0
    return kept


def test_the_default_file_is_migrated_and_put_aside(tmp_path, monkeypatch):
    kept = with_old_sessions(tmp_path, monkeypatch)
    before = glidepath("sessions", "list", "--json", folder=tmp_path).out
    ran = glidepath("sessions", "migrate", folder=tmp_path)
    assert ran.code == 0, ran
    assert "2 sessions copied to" in ran.err
    assert sorted(file.name for file in kept.iterdir()) == ["chats", "last", "sessions", "sessions.db.migrated"]
    assert glidepath("sessions", "list", "--json", folder=tmp_path).out == before
    assert glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path).code == 0
    assert len(asyncio.run(SegmentStore(kept / "sessions").entries())) == 3
    again = glidepath("sessions", "migrate", folder=tmp_path)
    assert again.code == 2
    assert "name another store" in again.err


def test_what_cannot_be_migrated_keeps_the_file_in_use(tmp_path, monkeypatch):
    kept = with_old_sessions(tmp_path, monkeypatch)
    store = SqliteStore(kept / "sessions.db")
    lease = asyncio.run(store.claim("busy", "elsewhere|1|2|3"))
    ran = glidepath("sessions", "migrate", folder=tmp_path)
    assert ran.code == 1
    assert "busy stays: session 'busy' has a run in flight" in ran.err
    assert (kept / "sessions.db").is_file()
    asyncio.run(store.release(lease))
    asyncio.run(store.close())
    assert glidepath("sessions", "migrate", folder=tmp_path).code == 0
    assert not (kept / "sessions.db").exists()


def test_any_store_is_migrated_into_any_other(tmp_path):
    for _ in range(2):
        assert glidepath("run", "go", *HELLO, "--store", "segments:one", folder=tmp_path).code == 0
    ran = glidepath("sessions", "migrate", "sqlite:two", "--store", "one", folder=tmp_path)
    assert ran.code == 0
    assert (tmp_path / "one" / "STORE").is_file()
    assert len(asyncio.run(SqliteStore(tmp_path / "two").entries())) == 2


@pytest.mark.parametrize("line", ["run hi --resume x", "run hi --last", "resume x", "send x y"])
def test_a_store_that_is_none_is_told_in_one_line(line, tmp_path):
    words = line.split()
    (tmp_path / "s.db").write_bytes(b"hello, I am a text")
    model = () if words[0] == "send" else ("--model", "python:flights:hello")
    ran = glidepath(*words, *model, "--store", "sqlite:s.db", folder=tmp_path)
    assert ran.code == 2, ran
    assert "SQLite database" in ran.err
    assert (tmp_path / "s.db").read_bytes() == b"hello, I am a text"
