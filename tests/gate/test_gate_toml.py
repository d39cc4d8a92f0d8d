"""`gate.toml`: what it may say, and what is said about a wrong one."""

import hashlib
from pathlib import Path

import pytest

from glidepath.apps.gate import load_config, read_config
from glidepath.errors import ConfigurationError

WHOLE = """
[gate]
max_body = "8m"
models = ["claude-*"]
drain = "5s"

[upstreams.claude]
dialect = "anthropic"
url = "https://api.anthropic.com/v1"
mode = "swap"
key = "env:CLAUDE_KEY"
idle_timeout = "2m"

[upstreams.local]
dialect = "openai-chat"
url = "http://127.0.0.1:11434"

[limits]
max_cost = "2.00"
max_calls = 200
timeout = "30m"

[keys.ann]
key = "env:ANN_KEY"
tenant = "acme"
max_cost = "20"
per = "day"
models = ["claude-haiku-*"]

[tenants.acme]
max_tokens = "10m"
per = "month"

[users.bob]
max_cost = 1.5

[prices]
my-model = [1.0, 4.0]
"""
ENVIRON = {"CLAUDE_KEY": "sk-x", "ANN_KEY": "0123456789abcdefgh"}

MAX = {"max": {"per": "5h", "max_tokens": 2_000}}


def written(folder, text, mode=0o600):
    path = folder / "gate.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_whole_file_is_read(tmp_path):
    config = load_config(written(tmp_path, WHOLE), ENVIRON)
    claude, local = config.upstreams
    assert (claude.name, claude.url, claude.idle_timeout) == ("claude", "https://api.anthropic.com", 120.0)
    assert (local.mode, local.serves("openai-chat"), local.serves("openai-responses")) == ("swap", True, False)
    assert (config.limits.max_iterations, config.limits.timeout, str(config.limits.max_cost)) == (200, 1800.0, "2.00")
    assert config.max_body == 8_000_000
    assert config.models == ("claude-*",)
    [ann] = config.keys
    assert ann.digest == hashlib.sha256(b"0123456789abcdefgh").hexdigest()
    assert (ann.tenant, ann.max_cost, ann.per, ann.wallet) == ("acme", "20", "day", "key:ann")
    assert (config.tenants["acme"].limits.max_tokens, config.tenants["acme"].per) == (10_000_000, "month")
    assert config.users["bob"].name == "user:bob"
    assert config.prices == {"my-model": (1.0, 4.0)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no upstream"),
        ("[upstream.x]\nurl='a'", "did you mean upstreams?"),
        ("[upstreams.x]\nurl = 'https://a'", "upstreams.x.dialect is missing"),
        ("[upstreams.x]\ndialect = 'anthropc'\nurl = 'https://a'", "did you mean 'anthropic'?"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'https://a'\ntimeout = 3", "there is no key upstreams.x.timeout"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'https://a'\nmod = 'swap'", "did you mean upstreams.x.mode?"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'https://a'\nverify = false", "there is no key upstreams.x.verify"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'https://a'\nkey = 'sk-real'", "must be a reference"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'http://a.example'\nmode = 'passthrough'", "in the clear"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 'https://a'\nidle_timeout = -1", "upstreams.x.idle_timeout"),
        ("[upstreams.x]\ndialect = 'openai'\nurl = 7", "upstreams.x.url must be a text"),
        ("upstreams = 3", "must be a table"),
        ("[upstreams]\nx = 3", "[upstreams.x]"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_wrong_upstream_is_named(text, words, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load_config(written(tmp_path, text), {})
    assert words in str(caught.value)
    assert str(tmp_path / "gate.toml") in str(caught.value)
    assert "sk-real" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"limits": {"max_budget_usd": 3}}, "did you mean limits.max_cost?"),
        ({"limits": {"max_tokens": 0}}, "limits.max_tokens"),
        ({"limits": {"max_calls": "many"}}, "limits.max_calls"),
        ({"limits": {"max_cost": "-1"}}, "limits.max_cost"),
        ({"limits": []}, "limits must be a table"),
        ({"keys": {"ann": {}}}, "give either key"),
        ({"keys": {"ann": {"key": "plain-secret-itself"}}}, "must be a reference"),
        ({"keys": {"ann": {"key": "env:NOT_THERE"}}}, "there is no such variable"),
        ({"keys": {"ann": {"key": "env:SHORT"}}}, "too short"),
        ({"keys": {"ann": {"digest": "abc"}}}, "64 hexadecimal"),
        ({"keys": {"an n": {"digest": "a" * 64}}}, "must be up to 40 letters"),
        ({"keys": {"ann": {"digest": "a" * 64, "per": "day"}}}, "per needs a budget"),
        ({"tenants": {"acme": {"per": "year", "max_cost": 1}}}, "tenants.acme.per must be one of 5h, day, week, month"),
        ({"windows": {"w": {"per": "5h"}}}, "windows.w.max_tokens is missing"),
        ({"windows": {"w": {"max_tokens": 5}}}, "windows.w.per is missing"),
        ({"windows": {"w": {"max_tokens": 5, "per": 5}}}, "windows.w.per must be one of 5h, day, week, month, not 5"),
        ({"windows": {"w": {"max_tokens": 0, "per": "5h"}}}, "windows.w.max_tokens"),
        ({"windows": {"w": {"tokens": 5, "per": "5h"}}}, "did you mean windows.w.max_tokens?"),
        ({"windows": {"w": 3}}, "[windows.w]"),
        ({"users": {"bob": {"share": 0.5}}}, "users.bob.window is missing"),
        ({"users": {"bob": {"window": "max"}}}, "users.bob.share is missing"),
        ({"users": {"bob": {"window": "max", "share": 0.5}}}, "add [windows.max] with per and max_tokens"),
        ({"windows": MAX, "users": {"bob": {"window": "mx", "share": 0.5}}}, "did you mean 'max'?"),
        ({"windows": MAX, "users": {"bob": {"window": ["max"], "share": 0.5}}}, "users.bob.window must be a text"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": 25}}}, "above 0 and at most 1, not 25"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": float("nan")}}}, "users.bob.share"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": "half"}}}, "users.bob.share"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": 1e-6}}}, "less than one token"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": 1, "per": "day"}}}, "users.bob.per comes from"),
        ({"windows": MAX, "users": {"bob": {"window": "max", "share": 1, "max_tokens": 5}}}, "max_tokens comes from"),
        ({"tenants": {"acme": {"max_calls": 5}}}, "there is no key tenants.acme.max_calls"),
        ({"users": {"bob": 3}}, "[users.bob]"),
        ({"prices": {"m": "cheap"}}, "prices"),
        ({"gate": {"models": "claude"}}, "gate.models must be a list"),
        ({"gate": {"observe": "yes"}}, "gate.observe must be true or false"),
        ({"gate": {"max_body": 0}}, "gate.max_body"),
        ({"gate": {"insecure": True}}, "there is no key gate.insecure"),
    ],
)
def test_any_other_wrong_key_is_named(more, words):
    base = {"upstreams": {"x": {"dialect": "openai", "url": "https://a.example"}}}
    with pytest.raises(ConfigurationError) as caught:
        read_config({**base, **more}, {"SHORT": "abc"}, Path("/"))
    assert words in str(caught.value)
    assert "plain-secret-itself" not in str(caught.value)


def test_a_share_of_a_window_is_a_part_of_its_tokens_in_its_periods():
    found = {
        "upstreams": {"x": {"dialect": "anthropic", "url": "https://a.example", "mode": "passthrough"}},
        "windows": {"max": {"per": "5h", "max_tokens": "2m"}, "weekly": {"per": "week", "max_tokens": 7}},
        "keys": {"ann": {"digest": "a" * 64, "window": "max", "share": 0.1}},
        "tenants": {"acme": {"window": "weekly", "share": 1}},
        "users": {"bob": {"window": "max", "share": 0.25, "max_cost": 3}},
    }
    config = read_config(found, {}, Path("/"))
    [ann] = config.keys
    assert (ann.max_tokens, ann.per, ann.wallet) == (200_000, "5h", "key:ann")
    windows = {name: one.name for name, one in config.windows.items()}
    assert windows == {"key:ann": "window:max", "tenant:acme": "window:weekly", "user:bob": "window:max"}
    acme, bob = config.tenants["acme"], config.users["bob"]
    assert (acme.limits.max_tokens, acme.per) == (7, "week")
    assert (bob.name, bob.limits.max_tokens, bob.per, str(bob.limits.max_cost)) == ("user:bob", 500_000, "5h", "3")


def test_a_file_that_others_can_write_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        load_config(written(tmp_path, WHOLE, 0o660), ENVIRON)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_config(tmp_path / "none.toml", {})
    with pytest.raises(ConfigurationError, match="is not a file"):
        load_config(tmp_path, {})


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path):
    path = tmp_path / "gate.toml"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="UTF-8"):
        load_config(path, {})
    path.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigurationError, match="at most"):
        load_config(path, {})


def test_paths_are_below_the_folder_of_the_file(tmp_path):
    (tmp_path / "p.key").write_text("sk-file\n")
    (tmp_path / "p.key").chmod(0o600)
    text = "[upstreams.x]\ndialect='openai'\nurl='https://a.example'\nkey='file:p.key'\nca_file='ca.pem'\n"
    [upstream] = load_config(written(tmp_path, text), {}).upstreams
    assert upstream.key == f"file:{tmp_path / 'p.key'}"
    assert upstream.ca_file == str(tmp_path / "ca.pem")


def test_the_sample_in_the_repository_is_valid(tmp_path):
    sample = Path(__file__).resolve().parents[2] / "config" / "samples" / "gate.toml"
    environ = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-b", "ANN_GATE_KEY": "0123456789abcdefgh"}
    config = load_config(written(tmp_path, sample.read_text(encoding="utf-8")), environ)
    assert [one.name for one in config.upstreams] == ["claude", "gpt"]
    assert config.users["bob"].limits.max_tokens == 2_000_000


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, None),
        ({"record": False}, None),
        ({"record": True}, (256 << 20, 30 * 86_400)),
        ({"record": True, "record_max": "64m", "record_for": "168h"}, (64_000_000, 7 * 86_400)),
    ],
)
def test_calls_are_recorded_only_when_the_file_says_so(said, found, tmp_path):
    upstreams = {"claude": {"dialect": "anthropic", "url": "https://api.anthropic.com"}}
    terms = read_config({"gate": said, "upstreams": upstreams}, {}, tmp_path).record
    assert (None if terms is None else (terms.largest, terms.oldest)) == found


@pytest.mark.parametrize("name", ["record_max", "record_for"])
def test_a_size_or_an_age_of_recordings_without_recording_is_an_error(name, tmp_path):
    with pytest.raises(ConfigurationError, match=f"gate.{name} needs record = true"):
        read_config(
            {"gate": {name: 5}, "upstreams": {"a": {"dialect": "openai", "url": "https://a.test"}}}, {}, tmp_path
        )
