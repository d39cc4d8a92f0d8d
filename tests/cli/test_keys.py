"""`glidepath keys`, and where the secrets of a server may come from."""

import argparse
import json
import stat
import time

import pytest

from glidepath.apps.cli import CliContext, make_parser
from glidepath.apps.cli.secrets_given import check_secrets
from glidepath.errors import ConfigurationError

from .shell_user import glidepath

STORE = ("--store", "runs.db")


def keys(folder, *words):
    return glidepath("keys", *words, *STORE, folder=folder)


def test_a_key_is_shown_once_listed_without_its_secret_and_revoked(tmp_path):
    made = keys(tmp_path, "add", "web", "--role", "run", "--max-cost", "5", "--per", "day", "--rate", "60/minute")
    secret = made.out.strip()
    assert made.code == 0
    assert secret.startswith("gpk_")
    assert "web: run, $5 a day, 60 starts in 60 s" in made.err
    assert secret not in made.err
    again = keys(tmp_path, "add", "web", "--role", "view")
    assert (again.code, again.out) == (2, "")
    assert "names are not used twice" in again.err
    keys(tmp_path, "add", "auditor", "--role", "view", "--tenant", "acme", "--expires", "30d")
    listed = keys(tmp_path, "list")
    assert listed.out.splitlines()[0].startswith("auditor: view, tenant acme, until 20")
    assert listed.out.splitlines()[1] == "web: run, $5 a day, 60 starts in 60 s, used $0, 0 tokens"
    rows = [json.loads(line) for line in keys(tmp_path, "list", "--json").out.splitlines()]
    assert [row["name"] for row in rows] == ["auditor", "web"]
    assert "digest" not in rows[0]
    assert "limits    $5 (an operator's)" in glidepath("wallets", "show", "key:web", *STORE, folder=tmp_path).out
    assert keys(tmp_path, "revoke", "web").code == 0
    assert keys(tmp_path, "list").out.splitlines()[1].startswith("web: run, $5 a day, 60 starts in 60 s, revoked")
    assert "closed" in glidepath("wallets", "show", "key:web", *STORE, folder=tmp_path).out
    assert keys(tmp_path, "revoke", "nobody").code == 2
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret.removeprefix("gpk_").encode() in path.read_bytes() for path in kept)
    (file,) = tmp_path.rglob("access-keys.journal")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "run", "--rate", "fast"), "is not a rate"),
        (("--role", "run", "--rate", "0/minute"), "is not a rate"),
        (("--role", "run", "--expires", "soon"), "is not a time"),
        (("--role", "run", "--expires", "2001-01-01"), "in the past"),
        (("--role", "run", "--per", "day"), "needs a budget"),
        (("--role", "view", "--max-cost", "1"), "starts no runs"),
        (("--role", "admin"), "invalid choice"),
        ((), "--role"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_with_the_reason(tmp_path, words, said):
    refused = keys(tmp_path, "add", "web", *words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert not list(tmp_path.rglob("access-keys.journal"))


def test_an_empty_ring_says_how_to_make_a_key(tmp_path):
    listed = keys(tmp_path, "list")
    assert (listed.code, listed.out) == (0, "")
    assert "glidepath keys add" in listed.err


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("revoke", "web")])
@pytest.mark.parametrize("store", [(), STORE])
def test_looking_for_keys_where_there_are_none_makes_nothing(tmp_path, words, store):
    before = set(tmp_path.rglob("*"))
    done = glidepath("keys", *words, *store, folder=tmp_path)
    assert done.code == (2 if words[0] == "revoke" else 0)
    assert not [path for path in tmp_path.rglob("*") if path not in before and "-events" in path.name]


def test_keys_are_of_the_servers_own_store_unless_another_is_named(tmp_path):
    assert glidepath("keys", "add", "web", "--role", "run", folder=tmp_path).code == 0
    (file,) = tmp_path.rglob("access-keys.journal")
    assert file.parent.name == "serve.db-events"
    none = glidepath("keys", "list", "--store", "none", folder=tmp_path)
    assert (none.code, "keeps no keys" in none.err) == (2, True)


# --- the secrets of a server ------------------------------------------------------------------------------------------


def given(folder, *words, **environ):
    options = make_parser(["serve"]).parse_args(["serve", "--agent", "m:a", *words])
    assert isinstance(options, argparse.Namespace)
    return check_secrets(options, CliContext(environ=environ, folder=folder))


@pytest.mark.parametrize(("flag", "variable"), [("--token", "SERVE_TOKEN"), ("--view-token", "SERVE_VIEW_TOKEN")])
@pytest.mark.parametrize("command", ["serve", "deck", "mcp"])
def test_a_secret_on_the_command_line_is_refused_with_the_way_to_pass_it(tmp_path, flag, variable, command):
    words = {"serve": ("--agent", "json:loads"), "deck": ()}.get(command, ("serve", "--agent", "json:loads", "--http"))
    refused = glidepath(command, *words, flag, "s3cret-s3cret-s3cret", folder=tmp_path)
    assert refused.code == 2
    assert "every user of this machine" in refused.err
    assert f"GLIDEPATH_{variable}" in refused.err
    assert f"{flag}-file" in refused.err
    assert "s3cret" not in refused.err + refused.out


def test_secrets_come_from_the_environment_or_from_a_file_of_ones_own(tmp_path):
    found = given(tmp_path, GLIDEPATH_SERVE_TOKEN="t" * 16, GLIDEPATH_SERVE_VIEW_TOKEN="v" * 16)
    assert found.tokens() == {"t" * 16: "control", "v" * 16: "view"}
    file = tmp_path / "token"
    file.write_text("from-a-file-0123456789\n")
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        given(tmp_path, "--token-file", "token")
    file.chmod(0o600)
    assert given(tmp_path, "--token-file", "token", GLIDEPATH_SERVE_TOKEN="t" * 16).token == "from-a-file-0123456789"
    assert given(tmp_path, "--view-token-file", "token").view == "from-a-file-0123456789"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        given(tmp_path, "--token-file", "none")
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        given(tmp_path, "--token-file", "token")


def test_an_address_beyond_loopback_is_refused_at_every_command_that_listens(tmp_path):
    for words in (("serve", "--agent", "m:a"), ("mcp", "serve", "--http", "--agent", "m:a"), ("deck",)):
        open_door = glidepath(*words, "--host", "0.0.0.0", folder=tmp_path)
        assert open_door.code == 2
        assert "a token is needed" in open_door.err
    with pytest.raises(ConfigurationError, match="in the clear"):
        given(tmp_path, "--host", "0.0.0.0", GLIDEPATH_SERVE_TOKEN="t" * 16)
    assert given(tmp_path, "--host", "0.0.0.0", "--behind-proxy", GLIDEPATH_SERVE_TOKEN="t" * 16).token
    with pytest.raises(ConfigurationError, match="--tls-cert needs --tls-key"):
        given(tmp_path, "--tls-cert", "c.pem")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        given(tmp_path, "--tls-cert", "c.pem", "--tls-key", "k.pem")


def test_a_deck_on_your_own_chats_takes_no_view_token(tmp_path):
    refused = glidepath("deck", folder=tmp_path, environ={"GLIDEPATH_SERVE_VIEW_TOKEN": "v" * 16})
    assert refused.code == 2
    assert "must not show" in refused.err


def test_expiry_is_in_the_future_by_days_hours_and_dates():
    from glidepath.apps.cli.commands.keys_command import _parse_expiry

    now = time.time()
    assert abs(_parse_expiry("2d") - now - 172_800) < 5
    assert abs(_parse_expiry("3h") - now - 10_800) < 5
    assert _parse_expiry("2999-01-31") == 32_474_736_000.0
