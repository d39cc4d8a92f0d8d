"""Where settings come from, who wins, and what is refused."""

import json
import time
from decimal import Decimal

import pytest

from glidepath.apps.cli.layers import load

from .shell_user import glidepath


def shown(folder, *argv, environ=None):
    ran = glidepath("config", "show", "--json", "--origin", *argv, folder=folder, environ=environ)
    assert ran.code == 0, ran
    return {key: (row["value"], row["origin"]) for key, row in json.loads(ran.out).items()}


def refused(folder, text, name="glidepath.toml", *argv, environ=None):
    (folder / name).write_text(text, encoding="utf-8")
    ran = glidepath("config", "show", *argv, folder=folder, environ=environ)
    assert ran.code == 2, ran
    assert ran.out == ""
    return ran.err


def test_without_a_word_there_are_fifty_turns_and_half_an_hour(tmp_path):
    known = shown(tmp_path)
    assert known["limits.max_iterations"] == (50, "default")
    assert known["limits.timeout"] == (1800.0, "default")


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path):
    (tmp_path / "glidepath.toml").write_text("[limits]\nmax_iterations = 10\nmax_tokens = 10\nmax_tool_calls = 10\n")
    environ = {"GLIDEPATH_LIMITS_MAX_ITERATIONS": "20", "GLIDEPATH_LIMITS_MAX_TOKENS": "20k"}
    known = shown(tmp_path, "--max-turns", "30", environ=environ)
    assert known["limits.max_iterations"] == (30, "flag --max-turns")
    assert known["limits.max_tokens"] == (20_000, "env GLIDEPATH_LIMITS_MAX_TOKENS")
    assert known["limits.max_tool_calls"] == (10, "glidepath.toml")
    assert known["limits.timeout"] == (1800.0, "default")


def test_older_keys_mean_the_same_and_zero_is_off_there(tmp_path):
    data = {
        "model": "python:flights:hello",
        "max_steps": 7,
        "timeout": 0,
        "token_budget": 0,
        "cost_limit": 0.25,
        "context_window": 0,
        "context_strategy": "sliding_window",
        "max_retries": 0,
        "streaming": False,
        "guardrails": {"max_tokens_recoveries": 0, "reserve_cost_fraction": 0.1},
    }
    (tmp_path / "agent.json").write_text(json.dumps(data))
    known = {key: value for key, (value, _) in load(tmp_path / "agent.json").items()}
    assert known["limits.max_iterations"] == 7
    assert known["limits.timeout"] is None
    assert known["limits.max_tokens"] is None
    assert known["limits.max_cost"] == Decimal("0.25")
    assert known["context_window"] is None
    assert known["max_retries"] == 0
    assert known["streaming"] is False
    assert known["guardrails.reserve_cost_fraction"] == "0.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_step = 3", "there is no setting 'max_step'; did you mean 'max_steps'?"),
        ("[limits]\nmax_turns = 3", "there is no setting 'limits.max_turns'"),
        ("max_iterations = 3", "did you mean 'max_iterations' in [limits]?"),
        ("max_steps = 3\n[limits]\nmax_iterations = 3", "limits.max_iterations and max_steps are the same setting"),
        ("[limits]\nmax_iterations = 0", "limits.max_iterations: expected a whole number of at least 1, got 0"),
        ("[limits]\nmax_iterations = true", "expected a whole number"),
        ("[limits]\nmax_cost = -1", "expected dollars greater than 0"),
        ("[limits]\nmax_cost = nan", "expected dollars greater than 0"),
        ("[limits]\ntimeout = 'soon'", "expected a time greater than 0"),
        ("[limits]\ntimeout = inf", "expected a time greater than 0"),
        ("limits = 3", "limits: expected a section"),
        ("landing = 'crash'", "expected one of withdraw, steer, force, off"),
        ("tools = 'read'", "expected a list of names"),
        ("tools = ['read', 'read']", "'read' is listed twice"),
        ("model = 3", "model: expected text"),
        ("prices = {gpt = [1]}", "prices.gpt: expected [input, output]"),
        ("prices = {gpt = [1, -1]}", "expected dollars per million tokens, at least 0"),
        ("approve = 'all'", "this cannot be set in a file; use --approve"),
        ("this is no toml", "not valid TOML"),
        ("max_output_tokens_recovery = {attempts = 3}", "there is no setting 'attempts'"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key_and_the_fix(tmp_path, text, said):
    err = refused(tmp_path, text)
    assert said in err
    assert err.startswith("glidepath: error: glidepath.toml") or "(glidepath.toml)" in err or "tmp" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_output_tokens_recovery = {max_attempts = 3}", "has no effect without max_output_tokens"),
        ("[limits]\ngrace_iterations = 2\nmax_iterations = 'off'", "glidepath.toml) has no effect without"),
        ("replace_defaults = true", "has no effect without constraints"),
        ("tools = []\ntool_choice = 'required'", "needs tools"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, text, said):
    assert said in refused(tmp_path, text, "glidepath.toml", "--config", "glidepath.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"max_steps": 1, "max_steps": 2}', "'max_steps' is given twice"),
        ('{"max_steps": NaN}', "NaN is not a number"),
        ("[1]", "expected an object"),
        ("{" * 5000, "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_wrong_json_file_is_refused(tmp_path, text, said):
    assert said in refused(tmp_path, text, "glidepath.json")


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path):
    (tmp_path / "glidepath.toml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in glidepath("config", "show", folder=tmp_path).err
    (tmp_path / "glidepath.toml").write_bytes(b"#" * 1_000_001)
    assert "larger than 1,000,000 bytes" in glidepath("config", "show", folder=tmp_path).err
    assert "cannot be read" in glidepath("config", "show", "--config", "missing.toml", folder=tmp_path).err


def test_two_files_in_one_folder_are_one_too_many(tmp_path):
    (tmp_path / "glidepath.json").write_text("{}")
    assert "both" in refused(tmp_path, "")


def test_no_config_reads_no_file_and_config_reads_that_one(tmp_path):
    (tmp_path / "glidepath.toml").write_text("max_steps = 3")
    (tmp_path / "other.toml").write_text("max_steps = 4")
    assert shown(tmp_path, "--no-config")["limits.max_iterations"][0] == 50
    assert shown(tmp_path, "--config", "other.toml")["limits.max_iterations"][0] == 4
    assert shown(tmp_path, environ={"GLIDEPATH_CONFIG": "other.toml"})["limits.max_iterations"][0] == 4


def test_any_setting_can_be_set_by_its_key(tmp_path):
    known = shown(
        tmp_path, "--set", "limits.landing_seconds=5s", "--set", 'prices={"m": [1, "2.5"]}', "--set", "tools=none"
    )
    assert known["limits.landing_seconds"] == (5.0, "flag --set")
    assert known["prices"][0] == {"m": ["1", "2.5"]}
    assert known["tools"][0] == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--set", "max_turns"], "expected KEY=VALUE"),
        (["--set", "limits.max_tokns=1"], "did you mean --set limits.max_tokens=1?"),
        (["--set", "nope=1"], "there is no setting 'nope'\n"),
        (["--set", "prices.foo=3"], """prices are one table, input and output: --set 'prices={"foo": ["3", "15"]}'"""),
        (["--set", "limits.max_tokens=1", "--max-tokens", "2"], "are the same setting"),
        (["--set", "prices={"], "expected JSON"),
        (["--max-tokens", "many"], "--max-tokens: expected a whole number"),
        (["--timeout", "0"], "--timeout: expected a time greater than 0"),
        (["--timeout", "1x"], "--timeout: expected a time"),
        (["--max-budget-usd", "free"], "--max-budget-usd: expected dollars"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(tmp_path, argv, said):
    ran = glidepath("config", "show", *argv, folder=tmp_path)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize("said", ["30m", "1h30m", "1m30s", "0.5s", "24h"])
def test_a_time_is_shown_as_people_write_it(tmp_path, said):
    rows = dict(
        line.split(maxsplit=1)
        for line in glidepath("config", "show", "--timeout", said, folder=tmp_path).out.splitlines()
    )
    assert rows["limits.timeout"] == said


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TIMEOUT", "LIMITS_TIMEOUT"),
        ("MAX_TURNS", "LIMITS_MAX_ITERATIONS"),
        ("MAX_STEPS", "LIMITS_MAX_ITERATIONS"),
        ("MAX_TOKENS", "LIMITS_MAX_TOKENS"),
        ("MAX_BUDGET_USD", "LIMITS_MAX_COST"),
        ("OTEL", "TELEMETRY_OTEL"),
    ],
)
def test_a_variable_with_a_settings_other_name_is_refused_with_the_right_one(tmp_path, name, meant):
    ran = glidepath("config", "show", folder=tmp_path, environ={f"GLIDEPATH_{name}": "3"})
    assert ran.code == 2
    assert f"there is no variable GLIDEPATH_{name}; did you mean GLIDEPATH_{meant}?" in ran.err


def test_a_variable_of_somebody_else_is_left_alone(tmp_path):
    assert glidepath("config", "show", folder=tmp_path, environ={"GLIDEPATH_HOME_OF_MINE": "3"}).code == 0


def test_a_misspelt_variable_of_a_limit_is_refused(tmp_path):
    ran = glidepath("config", "show", folder=tmp_path, environ={"GLIDEPATH_LIMITS_MAX_TOKEN": "3"})
    assert ran.code == 2
    assert "did you mean GLIDEPATH_LIMITS_MAX_TOKENS?" in ran.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("1h2m3s", 3723)]
)
def test_times_are_read_as_people_write_them(tmp_path, text, seconds):
    assert shown(tmp_path, "--timeout", text)["limits.timeout"][0] == seconds


def test_off_takes_a_limit_away_but_not_all_of_them(tmp_path):
    argv = ["hi", "--model", "python:flights:hello", "--max-turns", "off", "--timeout", "none"]
    ran = glidepath("run", *argv, folder=tmp_path)
    assert ran.code == 2
    assert "no limit at all" in ran.err
    assert glidepath("run", *argv, "--set", "unbounded=true", folder=tmp_path).code == 0


def test_money_without_a_price_is_refused_before_the_first_call(tmp_path):
    argv = ["run", "hi", "--model", "python:flights:hello", "--max-budget-usd", "1"]
    ran = glidepath(*argv, folder=tmp_path)
    assert ran.code == 2
    assert "needs a price" in ran.err
    priced = glidepath(*argv, "--set", 'prices={"scripted": [3, 15]}', folder=tmp_path)
    assert (priced.code, priced.out) == (0, "Hello from the script.\n")


def test_check_says_what_would_fly_and_runs_nothing(tmp_path):
    ran = glidepath("config", "check", "--model", "python:flights:MODEL", "--max-tokens", "2m", folder=tmp_path)
    assert ran.code == 0
    assert "at most 50 turns, 2000000 tokens, 30m" in ran.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python:flights", "expected python:package.module:attribute"),
        ("python:flights:NOPE", "no attribute 'NOPE'"),
        ("python:no_such_module:x", "No module named"),
        ("python:flights:NOT_A_MODEL", "expected a Model, or a function that makes one, got int"),
        ("python:flights:crashes", "making the model failed: OSError: no such thing"),
    ],
)
def test_a_model_by_a_wrong_python_name_is_refused(tmp_path, name, said):
    ran = glidepath("config", "check", "--model", name, folder=tmp_path)
    assert ran.code == 2
    assert said in ran.err


def test_an_unknown_tool_is_refused_with_a_suggestion(tmp_path):
    ran = glidepath("run", "hi", "--model", "python:flights:hello", "--tools", "raed", folder=tmp_path)
    assert ran.code == 2
    assert "there is no tool 'raed'; did you mean 'read'?" in ran.err


def test_a_workspace_that_is_no_folder_is_refused(tmp_path):
    ran = glidepath("run", "hi", "--model", "python:flights:hello", "--workspace", "nowhere", folder=tmp_path)
    assert ran.code == 2
    assert "is not a folder" in ran.err


def test_plugins_and_constraints_are_named_as_installed_packages_name_them(tmp_path):
    for key in ("plugins", "constraints"):
        (tmp_path / "named.toml").write_text(f'{key} = ["no_such_{key}"]\n')
        ran = glidepath("config", "check", "--model", "python:flights:hello", "--config", "named.toml", folder=tmp_path)
        assert ran.code == 2
        assert f"{key}: there is no 'no_such_{key}'" in ran.err


def test_a_key_is_not_sent_to_an_address_that_a_stranger_wrote(tmp_path, monkeypatch):
    from glidepath import models

    keys = []
    real = models.resolve

    def resolve(name, **given):
        keys.append(given.get("api_key"))
        return real(name, api_key="none")

    monkeypatch.setattr(models, "resolve", resolve)
    text = 'model = "openai-compatible:m@https://evil.example/v1"\ntools = []\n'
    (tmp_path / "glidepath.toml").write_text(text)
    environ = {"GLIDEPATH_API_KEY": "sk-mine"}
    assert glidepath("config", "check", folder=tmp_path, environ=environ).code == 2
    assert keys == []
    assert glidepath("config", "check", "--config", "glidepath.toml", folder=tmp_path, environ=environ).code == 0
    assert keys == ["sk-mine"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [("max_turns", "max_iterations"), ("max_budget_usd", "max_cost")],
)
def test_a_flag_s_name_in_a_file_is_answered_with_the_key(tmp_path, key, meant):
    assert f"there is no setting 'limits.{key}'; did you mean 'limits.{meant}'?" in refused(
        tmp_path, f"[limits]\n{key} = 3\n"
    )
    assert f"did you mean '{meant}' in [limits]?" in refused(tmp_path, f"{key} = 3\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("run", "--max-turn", "3", "go"), "there is no flag --max-turn; did you mean --max-turns?"),
        (("run", "--max-turn=3", "go"), "there is no flag --max-turn; did you mean --max-turns?"),
        (("run", "--max-steps", "3", "go"), "there is no flag --max-steps; did you mean --max-turns?"),
        (("run", "--max-calls", "3", "go"), "there is no flag --max-calls; did you mean --max-turns?"),
        (("gate", "run", "--max-turns", "3", "--", "true"), "there is no flag --max-turns; did you mean --max-calls?"),
        (("gate", "run", "--max-cost", "3", "--", "true"), "did you mean --max-budget-usd?"),
        (("wallets", "set", "x", "--budget", "3"), "did you mean --max-cost?"),
        (
            ("config", "check", "my.toml"),
            "unexpected argument 'my.toml' (to name a configuration file, use --config FILE)",
        ),
        (("serve", "app:agent"), "unexpected argument 'app:agent' (to name an agent, use --agent app:agent)"),
        (("runs", "list", "--stor", "x"), "there is no flag --stor; did you mean --store?"),
        (("demo", "one", "two"), "unexpected argument 'two'"),
        (("sim", "--zzzzzz"), "there is no flag --zzzzzz\n"),
        (("sessions", "delete", "x", "--yes"), "there is no flag --yes; leave it out: nothing is asked here"),
        (("sessions", "tag", "x", "work"), "unexpected argument 'work' (to add a tag, use --add TAG)"),
        (("sessions", "backup", "--to", "x.db"), "there is no flag --to; write FILE without a flag"),
        (("wallets", "set", "x", "--max-budget-usd", "5"), "did you mean --max-cost?"),
        (("wallets", "set", "x", "--budget", "5"), "did you mean --max-cost?"),
        (("runs", "list", "--limits", "5"), "did you mean --limit?"),
        (("runs", "prune", "--older-than", "1d"), "did you mean --days?"),
        (("run", "--approve", "yes", "go"), "(choose from ask, all, deny); did you mean all?"),
        (("deck", "demo"), "(choose from export); did you mean --demo?"),
    ],
)
def test_what_a_command_does_not_know_is_answered_with_what_it_does(tmp_path, argv, said):
    ran = glidepath(*argv, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert f"`glidepath {argv[0]}" in ran.err


def test_commands_that_fly_nothing_take_no_flags_of_a_flight(tmp_path):
    for action in ("list", "show", "stop", "export", "import", "prune", "repair"):
        told = glidepath("runs", action, "--help", folder=tmp_path).out
        assert "--temperature" not in told
        assert "--store" in told


def test_a_key_in_a_file_is_sent_to_the_environment_and_not_shown(tmp_path):
    err = refused(tmp_path, "api_key = 'sk-planted-0123456789'")
    assert "environment" in err
    assert "planted" not in err


@pytest.mark.parametrize("written", ["1.5", "5.0", "2020-01-01"])
def test_a_wrong_figure_is_shown_as_it_was_written(tmp_path, written):
    assert f"got {written}\n" in refused(tmp_path, f"[limits]\nmax_iterations = {written}")


def test_a_config_flag_without_a_name_is_refused(tmp_path):
    ran = glidepath("config", "show", "--config", "", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "--config" in ran.err


def test_the_ending_of_a_file_may_be_in_capitals(tmp_path):
    (tmp_path / "GLIDE.JSON").write_text('{"model": "a:b"}')
    assert shown(tmp_path, "--config", "GLIDE.JSON")["model"] == ("a:b", str(tmp_path / "GLIDE.JSON"))


@pytest.mark.parametrize("setting", ["workspace", "store"])
def test_a_path_that_is_none_is_refused(tmp_path, setting):
    (tmp_path / "glidepath.toml").write_text(f'model = "openai-compatible:m@http://h/v1"\n{setting} = "a\\u0000b"')
    ran = glidepath("run", "hi", "--config", "glidepath.toml", folder=tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran
    assert r"a\x00b" in ran.err


def test_a_json_file_may_have_comments(tmp_path):
    text = """{
      // how long it may work
      "max_steps": 7, /* turns,
      not seconds */ "system_prompt": "see // and /* this */ \\" //"
    }"""
    (tmp_path / "agent.json").write_text(text)
    known = {key: value for key, (value, _) in load(tmp_path / "agent.json").items()}
    assert (known["limits.max_iterations"], known["system_prompt"]) == (7, 'see // and /* this */ " //')


def test_an_error_behind_a_comment_names_its_own_line(tmp_path):
    assert "line 3 column 2" in refused(tmp_path, "{ /* a\n b */ // c\n nonsense }", "glidepath.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glidepath.json", "/* " * 300_000),
        ("glidepath.json", '"' + '\\"' * 450_000 + "\\"),
        ("glidepath.toml", "tools = [" + ", ".join(f"'{number:x}'" for number in range(100_000)) + ", '0']"),
        ("glidepath.toml", "k" * 900_000 + " = 1"),
    ],
    ids=["comments", "string", "names", "key"],
)
def test_a_file_made_to_be_slow_is_refused_at_once_and_in_few_words(tmp_path, name, text):
    before = time.process_time()
    err = refused(tmp_path, text, name)
    assert time.process_time() - before < 10  # it took hours
    assert len(err) < 500
