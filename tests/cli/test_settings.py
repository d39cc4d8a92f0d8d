"""One table of settings: nothing missing, nothing twice, and everything made from it agrees."""

import json
import re
from pathlib import Path

import pytest

from glidepath import GuardrailsConfig, Limits, LoopConfig
from glidepath.apps.cli import make_parser
from glidepath.apps.cli.commands import COMMANDS
from glidepath.apps.cli.layers import load
from glidepath.apps.cli.setting_rows import PYTHON_ONLY
from glidepath.apps.cli.setting_values import read_text
from glidepath.apps.cli.settings import BY_KEY, BY_SEED, SECTIONS, SETTINGS, variable_name_of
from glidepath.apps.cli.settings_schema import defaults, json_schema, markdown_table

from .shell_user import glidepath

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = (
    "max_steps",
    "timeout",
    "token_budget",
    "cost_limit",
    "context_window",
    "context_strategy",
    "max_retries",
    "streaming",
    "guardrails.max_tokens_recoveries",
    "guardrails.max_repeated_tool_steps",
    "guardrails.reserve_tokens",
    "guardrails.reserve_cost_fraction",
)


def test_every_field_of_the_configuration_stands_in_the_table_exactly_once():
    fields = [
        f"{kind.__name__}.{name}" for kind in (LoopConfig, Limits, GuardrailsConfig) for name in kind.__struct_fields__
    ]
    listed = [setting.python for setting in SETTINGS if setting.python] + list(PYTHON_ONLY)
    assert sorted(listed) == sorted(fields)


def test_keys_flags_and_variables_are_unique():
    for names in (
        [setting.key for setting in SETTINGS],
        [setting.flag for setting in SETTINGS if setting.flag],
        [variable_name_of(setting) for setting in SETTINGS],
    ):
        assert len(set(names)) == len(names)


def test_the_older_keys_are_all_there():
    assert [setting.seed for setting in SETTINGS if setting.seed and setting.seed not in SEEDS] == []
    assert {setting.seed for setting in SETTINGS if setting.seed} == set(SEEDS)


def test_the_flags_of_the_specification_exist():
    flags = {setting.flag for setting in SETTINGS}
    for flag in [
        "--model",
        "--max-turns",
        "--max-budget-usd",
        "--max-tokens",
        "--timeout",
        "--tools",
        "--output-format",
        "--store",
    ]:
        assert flag in flags


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_the_python_default_of_a_setting_can_be_written_down(setting, tmp_path):
    """What `config show --all` prints as a default is accepted when it is given."""
    value = defaults().get(setting.key)
    if value is None or setting.kind in ("recovery", "names", "table", "prices"):
        return
    text = str(getattr(value, "value", value)) if not isinstance(value, bool) else str(value).lower()
    assert read_text(setting, text, "here") == getattr(value, "value", value)


def test_the_schema_knows_every_key_and_nothing_else():
    schema = json_schema()
    keys = set(schema["properties"]) - {*SECTIONS, "$schema"}
    keys |= {f"{section}.{key}" for section in SECTIONS for key in schema["properties"][section]["properties"]}
    assert keys == {setting.key for setting in SETTINGS if setting.in_file} | set(BY_SEED)
    assert schema["additionalProperties"] is False


def test_the_schema_is_printed(tmp_path):
    ran = glidepath("config", "schema", folder=tmp_path)
    assert ran.code == 0
    assert json.loads(ran.out) == json_schema()


def test_the_reference_in_the_documentation_is_the_table():
    page = (ROOT / "docs" / "configuration-file.md").read_text(encoding="utf-8")
    assert markdown_table() in page, "run: glidepath config table"


def test_every_flag_in_the_documentation_exists():
    parser = make_parser(list(COMMANDS))
    known = set(re.findall(r"--[a-z][a-z-]+", " ".join(_helps(parser))))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "config").rglob("*"))]:
        if page.is_dir():
            continue
        for line in page.read_text(encoding="utf-8").splitlines():
            if command := re.search(r"(?<!--frameworks )glidepath .*", line):  # what a benchmark is told is not ours
                ours = command[0].partition(" -- ")[0]  # what follows belongs to the command behind the gate
                unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) - known - {"--config"}
                assert not unknown, f"{page.name}: {line}"


def _helps(parser):
    yield parser.format_help()
    for action in parser._actions:
        for sub in (
            (getattr(action, "choices", None) or {}).values()
            if isinstance(getattr(action, "choices", None), dict)
            else ()
        ):
            yield from _helps(sub)


SAMPLES = sorted(path for path in (ROOT / "config" / "samples").iterdir() if path.name != "gate.toml")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_model_of_every_sample_can_be_named(path):
    from glidepath.models import resolve

    name = load(path)["model"][0]
    if not name.startswith("local:"):
        assert resolve(name, api_key="none").name


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_sample_loads(path, tmp_path):
    assert load(path)["model"][0]
    ran = glidepath("config", "show", "--origin", "--config", str(path), folder=tmp_path)
    assert ran.code == 0, ran
    assert path.name in ran.out


def test_there_is_a_sample_for_every_kind_of_provider():
    from glidepath.models import HOSTS

    texts = [path.read_text(encoding="utf-8") for path in SAMPLES]
    shown = {host.adapter for host in HOSTS.values() if any(f'"{host.name}:' in text for text in texts)}
    assert shown >= {"anthropic", "responses", "chat", "google", "local"}


def test_every_key_has_help():
    assert [key for key, setting in BY_KEY.items() if not setting.help] == []


SECRETS = {
    "api_key": "abc123",
    "extra_headers": {"Authorization": "Bearer abc123", "X-Api-Key": "abc123", "X-Trace": "on"},
    "auth": ["abc123"],
    "note": "sk-abc123abc123",
    "user": "bob",
    "max_completion_tokens": 100,
    "nested": [{"client_secret": {"value": "abc123"}}],
}


@pytest.mark.parametrize("words", [[], ["--json"], ["--origin"], ["--json", "--origin"]])
def test_config_show_masks_whatever_may_be_a_secret(tmp_path, words):
    import json

    (tmp_path / "mine.json").write_text(json.dumps({"model": "python:flights:hello", "extras": SECRETS}))
    ran = glidepath("config", "show", "--config", "mine.json", *words, folder=tmp_path)
    assert ran.code == 0, ran
    assert "abc123" not in ran.out
    for kept in ("bob", "100", "X-Trace", "api_key"):
        assert kept in ran.out


def test_config_show_masks_the_passwords_of_fallbacks(tmp_path):
    from glidepath.apps.cli.commands.config_command import to_safe_json

    assert "pw" not in str(to_safe_json(("openai-compatible:m@http://me:pw@host/v1",)))
