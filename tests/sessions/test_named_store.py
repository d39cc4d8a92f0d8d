"""`store=` takes the path of a SQLite file."""

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, say


def agent_with(store):
    model = ScriptedModel().forever(lambda request: say(f"{len(request.messages)} messages"))
    return Agent(model=model, store=store, agent_name="one", limits=Limits(max_iterations=3))


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["text", "path"])
def test_a_path_is_a_sqlite_store_that_the_next_agent_reads(tmp_path, kind):
    place = kind(tmp_path / "chats.db")
    assert isinstance(agent_with(place).config.store, SqliteStore)
    assert agent_with(place).run_sync("hello", session="eve").text == "1 messages"
    assert agent_with(place).run_sync("again", session="eve").text == "3 messages"


def test_a_store_stays_the_one_it_is(tmp_path):
    store = MemoryStore()
    assert agent_with(store).config.store is store
    made = agent_with(tmp_path / "chats.db")
    assert made.replace(agent_name="two").config.store is made.config.store


def test_a_team_takes_a_path_too(tmp_path):
    member = agent_with(None)
    assert isinstance(Team([member], store=tmp_path / "team.sqlite").store, SqliteStore)
    with pytest.raises(ConfigurationError, match=r"Team\.store must be .* not 'default'"):
        Team([member], store="default")


def test_a_word_that_is_no_path_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for word, advice in (
        ("default", "end it with .db or .sqlite"),
        ("none", "end it with .db or .sqlite"),
        ("", "end it with .db or .sqlite"),
        ("postgresql://localhost/db", r"use PostgresStore\(dsn\)"),
        (7, "must be a session store such as"),
        (SqliteStore, "must be a session store such as"),
    ):
        with pytest.raises(ConfigurationError, match=advice):
            agent_with(word)
    assert list(tmp_path.iterdir()) == []
