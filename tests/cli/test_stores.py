"""Which store a name on the command line stands for."""

import asyncio

import pytest

from glidepath.apps.cli.stores import make_store, store_path
from glidepath.errors import ConfigurationError
from glidepath.sessions import SqliteStore

from .shell_user import glidepath
from .test_resume import last_line

HELLO = ["--model", "python:flights:hello"]


class Here:
    def __init__(self, folder):
        self.folder = folder


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("runs.db", "runs.db"),
        ("runs.sqlite3", "runs.sqlite3"),
        ("runs", "runs"),
        ("deep/runs", "deep/runs"),
        ("sqlite:runs", "runs"),
        ("sqlite:/abs/runs", "/abs/runs"),
    ],
)
def test_a_name_says_which_file_is_meant(tmp_path, name, path):
    made = make_store(name, Here(tmp_path))
    assert (type(made), made.path) == (SqliteStore, str(tmp_path / path))
    assert store_path(name, Here(tmp_path)) == tmp_path / path


@pytest.mark.parametrize("name", ["segments:runs", "segments:/abs/runs"])
def test_segments_are_told_what_to_write_now(tmp_path, name):
    with pytest.raises(ConfigurationError, match=r"one file, such as .*runs\.db"):
        make_store(name, Here(tmp_path))


@pytest.mark.parametrize("name", ["sqlite:", "segments:", "segments:  ", "mysql://x", "redis://x"])
def test_a_name_that_stands_for_no_store_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="store"):
        make_store(name, Here(tmp_path))


@pytest.mark.parametrize("store", ["sqlite:kept", "kept"])
def test_a_run_can_be_listed_and_resumed_whatever_its_store(tmp_path, store):
    argv = ["--model", "python:flights:endless", "--tools", "list", "--landing", "force", "--store", store]
    ran = glidepath("run", "go", *argv, "--max-turns", "2", folder=tmp_path)
    assert ran.code == 3
    assert last_line(ran)[2:4] == ["--store", store]
    assert (tmp_path / "kept").is_file()
    again = glidepath(*last_line(ran), "--landing", "force", "--max-turns", "6", folder=tmp_path)
    assert (again.code, again.out) == (3, "Landed.\n")
    listed = glidepath("runs", "list", "--store", "kept", folder=tmp_path)  # it follows what is there
    assert (listed.code, last_line(ran)[1] in listed.out) == (0, True)


def test_the_default_is_a_file_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for _ in range(2):
        assert glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path).code == 0
    kept = tmp_path / "data" / "glidepath"
    assert sorted(file.name for file in kept.iterdir()) == ["chats", "last", "sessions.db"]
    assert len(asyncio.run(SqliteStore(kept / "sessions.db").entries())) == 2
    listed = glidepath("runs", "list", folder=tmp_path)
    assert listed.out.count("session_") == 2


def test_an_old_folder_of_segments_is_named_and_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    old = tmp_path / "data" / "glidepath" / "sessions"
    (old / "segments").mkdir(parents=True)
    (old / "STORE").write_text("{}")
    nothing = glidepath("runs", "list", folder=tmp_path)
    assert nothing.code == 2
    assert f"{old} is in a format that this version does not read" in nothing.err
    ran = glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path)
    assert ran.code == 0
    assert f"{old} has sessions in a format that this version does not read" in ran.err
    assert (
        f"{old} has" not in glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path).err
    )  # once is enough
    assert sorted(file.name for file in old.iterdir()) == ["STORE", "segments"]
    named = glidepath("run", "go", *HELLO, "--store", str(old), folder=tmp_path)
    assert named.code != 0
    assert "folder of segments, which this version does not read" in named.err


def test_an_empty_default_file_is_not_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kept = tmp_path / "data" / "glidepath"
    kept.mkdir(parents=True)
    (kept / "sessions.db").touch()
    nothing = glidepath("runs", "list", folder=tmp_path)
    assert nothing.code == 2
    assert "pass --store PATH" in nothing.err
    assert glidepath("run", "go", *HELLO, "--store", "default", folder=tmp_path).code == 0
    assert len(asyncio.run(SqliteStore(kept / "sessions.db").entries())) == 1


def test_an_agent_cannot_write_into_the_store_it_runs_with(tmp_path):
    from glidepath.apps.cli.agent_maker import _list_own_files
    from glidepath.workspace import Workspace

    class Settings(dict):
        file = None

    own = _list_own_files(Settings(store="kept"), Here(tmp_path))
    place = Workspace(tmp_path, protect=own)
    for name in ("kept", "kept-wal", "kept-shm"):
        assert place.protection.explain_refusal([name])
    assert not place.protection.explain_refusal(["other"])


@pytest.mark.parametrize("line", ["run hi --resume x", "run hi --last", "resume x", "send x y"])
def test_a_store_that_is_none_is_told_in_one_line(line, tmp_path):
    words = line.split()
    (tmp_path / "s.db").write_bytes(b"hello, I am a text")
    model = () if words[0] == "send" else ("--model", "python:flights:hello")
    ran = glidepath(*words, *model, "--store", "sqlite:s.db", folder=tmp_path)
    assert ran.code == 2, ran
    assert "SQLite database" in ran.err
    assert (tmp_path / "s.db").read_bytes() == b"hello, I am a text"
