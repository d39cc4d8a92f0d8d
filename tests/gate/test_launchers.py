"""How known programs are pointed at a gate, and whose credentials a run uses."""

import json
from pathlib import Path

import pytest

from glidepath.apps.gate.launchers import LAUNCHERS, VENDORS, Aim, find_launcher, prepare
from glidepath.apps.gate.run_plan import list_own_vendors, make_aims, plan_upstreams
from glidepath.errors import ConfigurationError

URL, SECRET_URL, KEY = "http://127.0.0.1:7/run-1", "http://127.0.0.1:7/gate-secret/run-1", "gate-key"
SWAP = {name: Aim(URL, KEY) for name in VENDORS}
OWN_AIM = Aim(SECRET_URL, None, URL, KEY)
OWN = dict.fromkeys(VENDORS, OWN_AIM)


@pytest.mark.parametrize(
    ("command", "name", "at"),
    [
        (["claude", "-p", "x"], "Claude Code", 0),
        (["/usr/local/bin/claude"], "Claude Code", 0),
        (["npx", "-y", "@anthropic-ai/claude-code@2.1.197", "-p", "x"], "Claude Code", 2),
        (["npx", "--yes", "-p", "@openai/codex", "codex", "exec"], "Codex", 4),
        (["node", "/opt/node_modules/@anthropic-ai/claude-code/cli.js"], "Claude Code", 1),
        (["node", "--require", "./x.js", "/n/node_modules/@google/gemini-cli/bundle/gemini.js"], "Gemini CLI", 3),
        (["bunx", "opencode-ai", "run"], "OpenCode", 1),
        (["pnpm", "dlx", "@qwen-code/qwen-code"], "Qwen Code", 2),
        (["uvx", "--from", "aider-chat", "aider"], "Aider", 3),
        (["uvx", "aider-chat"], "Aider", 1),
        (["uv", "tool", "run", "mini-swe-agent"], "mini-swe-agent", 3),
        (["uv", "run", "--with", "x", "mini", "-t", "task"], "mini-swe-agent", 4),
        (["python3.12", "-m", "aider"], "Aider", 2),
        (["env", "A=b", "-u", "C", "codex"], "Codex", 4),
        (["timeout", "60", "goose", "run"], "goose", 2),
        (["nice", "-n", "5", "nohup", "codex"], "Codex", 4),
    ],
)
def test_a_program_is_found_behind_its_wrappers(command, name, at):
    found = find_launcher(command)
    assert found is not None
    assert (found[0].name, found[1]) == (name, at)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "agent.py"],
        ["node", "server.js"],
        ["sh", "-c", "claude -p x"],
        ["cat", "claude"],
        ["npx"],
        ["env"],
        ["run", "claude"],
        ["./claude-like"],
        ["grep", "-r", "codex", "."],
    ],
)
def test_other_commands_are_no_known_program(command):
    assert find_launcher(command) is None


def test_every_program_is_in_the_table_once():
    names = [name for one in LAUNCHERS for name in (*one.programs, *one.packages)]
    programs = [name for one in LAUNCHERS for name in one.programs]
    assert len(programs) == len(set(programs))
    assert {"claude", "codex", "opencode", "gemini", "qwen", "aider", "mini", "goose"} <= set(names)


def test_in_swap_the_command_gets_the_gates_key_and_no_other(tmp_path):
    environ = {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "sk-ant-real",
        "ANTHROPIC_AUTH_TOKEN": "tok-real",
        "CLAUDE_CODE_OAUTH_TOKEN": "oat-real",
        "OPENAI_API_KEY": "sk-real",
        "GOOGLE_API_KEY": "AIza-real",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "OPENROUTER_API_KEY": "sk-or",
    }
    made = prepare(["agent"], environ, SWAP, tmp_path)
    assert "real" not in str(made.environ)
    assert made.environ["ANTHROPIC_BASE_URL"] == URL
    assert made.environ["OPENAI_BASE_URL"] == made.environ["OPENAI_API_BASE"] == f"{URL}/v1"
    assert made.environ["GOOGLE_GEMINI_BASE_URL"] == URL
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GLIDEPATH_GATE_KEY"):
        assert made.environ[name] == KEY
    assert made.environ["GLIDEPATH_GATE_URL"] == URL
    assert set(made.removed) == {"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"}
    assert made.stays == ["OPENROUTER_API_KEY"]
    assert environ["ANTHROPIC_API_KEY"] == "sk-ant-real"
    assert made.command == ["agent"]


def test_passed_through_the_command_keeps_its_login_and_gets_no_key(tmp_path):
    made = prepare(
        ["claude"], {"CLAUDE_CODE_OAUTH_TOKEN": "oat", "GLIDEPATH_GATE_KEY": "of another gate"}, OWN, tmp_path
    )
    assert made.environ["CLAUDE_CODE_OAUTH_TOKEN"] == "oat"
    assert made.environ["ANTHROPIC_BASE_URL"] == SECRET_URL
    assert not [name for name in made.environ if name.endswith("API_KEY") or name == "GLIDEPATH_GATE_KEY"]


def test_claude_code_gets_a_token_because_it_would_ask_about_a_new_key(tmp_path):
    made = prepare(["claude"], {"ANTHROPIC_API_KEY": "sk-real"}, SWAP, tmp_path)
    assert made.environ["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert "ANTHROPIC_API_KEY" not in made.environ
    assert "ANTHROPIC_AUTH_TOKEN" not in prepare(["claude"], {}, OWN, tmp_path).environ


def test_a_proxy_is_not_between_the_command_and_the_gate(tmp_path):
    made = prepare(["agent"], {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "intra"}, SWAP, tmp_path)
    assert made.environ["NO_PROXY"] == "intra,127.0.0.1,localhost"
    assert made.environ["no_proxy"] == "127.0.0.1,localhost"
    assert "NO_PROXY" not in prepare(["agent"], {}, SWAP, tmp_path).environ


def test_codex_gets_its_provider_as_flags_after_its_name(tmp_path):
    import tomllib

    made = prepare(["npx", "-y", "@openai/codex", "exec", "task"], {}, SWAP, tmp_path)
    assert made.command[:3] == ["npx", "-y", "@openai/codex"]
    assert made.command[-2:] == ["exec", "task"]
    flags = made.command[3:-2]
    assert flags[::2] == ["-c", "-c"]
    config = tomllib.loads("\n".join(flags[1::2]))
    assert config["model_provider"] == "glidepath"
    provider = config["model_providers"]["glidepath"]
    assert (provider["base_url"], provider["env_key"], provider["wire_api"]) == (
        f"{URL}/v1",
        "GLIDEPATH_GATE_KEY",
        "responses",
    )
    assert KEY not in " ".join(made.command)
    own = prepare(["codex"], {}, OWN, tmp_path)
    provider = tomllib.loads("\n".join(own.command[2::2]))["model_providers"]["glidepath"]
    assert provider["requires_openai_auth"] is True
    assert (provider["base_url"], provider["env_http_headers"]) == (
        f"{URL}/v1",
        {"x-glidepath-key": "GLIDEPATH_GATE_KEY"},
    )
    assert own.environ["GLIDEPATH_GATE_KEY"] == KEY


MODES = [
    {name: SWAP[name] if name in swapped else OWN_AIM for name in VENDORS}
    for swapped in (VENDORS, (), ("anthropic",), ("openai",), ("gemini",))
]


@pytest.mark.parametrize("aims", MODES, ids=lambda aims: "+".join(name for name in aims if aims[name].key) or "own")
@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda one: one.name)
def test_no_key_is_on_a_command_line_which_everybody_can_read(tmp_path, launcher, aims):
    made = prepare([launcher.programs[0], "task"], {"HOME": str(tmp_path)}, aims, tmp_path)
    assert not [word for word in made.command if KEY in word or "gate-secret" in word]


def test_a_key_of_one_vendor_takes_no_login_of_another_away(tmp_path):
    """Their own login goes on to its vendor: the gate's key in its place would be refused there, and known."""
    openai_only = dict(OWN, openai=SWAP["openai"])
    claude = prepare(["claude"], {"CLAUDE_CODE_OAUTH_TOKEN": "oat"}, openai_only, tmp_path)
    assert claude.environ["CLAUDE_CODE_OAUTH_TOKEN"] == "oat"
    assert not [name for name, value in claude.environ.items() if name.startswith("ANTHROPIC") and value == KEY]
    codex = prepare(["codex"], {}, dict(OWN, anthropic=SWAP["anthropic"]), tmp_path)
    assert "requires_openai_auth=true" in codex.command[-1]
    assert "env_key" not in codex.command[-1]
    opencode = json.loads(prepare(["opencode"], {}, openai_only, tmp_path).environ["OPENCODE_CONFIG_CONTENT"])
    options = {name: one["options"] for name, one in opencode["provider"].items()}
    assert options["openai"] == {"baseURL": f"{URL}/v1", "apiKey": KEY}
    assert options["anthropic"] == {"baseURL": f"{SECRET_URL}/v1"}
    home = tmp_path / "gemini"
    home.mkdir()
    assert "GEMINI_CLI_HOME" not in prepare(["gemini"], {"HOME": str(tmp_path)}, openai_only, home).environ


def test_opencodes_own_configuration_is_completed(tmp_path):
    mine = {"theme": "x", "provider": {"anthropic": {"options": {"timeout": 5}}}}
    made = prepare(["opencode"], {"OPENCODE_CONFIG_CONTENT": json.dumps(mine)}, SWAP, tmp_path)
    found = json.loads(made.environ["OPENCODE_CONFIG_CONTENT"])
    assert found["theme"] == "x"
    assert found["provider"]["anthropic"]["options"] == {"timeout": 5, "baseURL": f"{URL}/v1", "apiKey": KEY}
    assert found["provider"]["google"]["options"]["baseURL"] == f"{URL}/v1beta"


def test_geminis_settings_are_completed_in_a_home_of_the_run_and_nothing_of_the_users_changes(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "run"
    (home / ".gemini" / "tmp").mkdir(parents=True)
    folder.mkdir()
    text = '{ // mine\n "ui": {"theme": "a // b"}, "security": {"auth": {"selectedType": "oauth-personal"}} /* x */ }'
    (home / ".gemini" / "settings.json").write_text(text)
    (home / ".gemini" / "GEMINI.md").write_text("be brief")
    made = prepare(["gemini"], {"HOME": str(home)}, SWAP, folder)
    ours = Path(made.environ["GEMINI_CLI_HOME"]) / ".gemini"
    settings = json.loads((ours / "settings.json").read_text())
    assert settings == {"ui": {"theme": "a // b"}, "security": {"auth": {"selectedType": "gemini-api-key"}}}
    assert (ours / "GEMINI.md").read_text() == "be brief"
    assert made.environ["HOME"] == str(home)
    assert (home / ".gemini" / "settings.json").read_text() == text
    assert ours.is_relative_to(folder)


def test_qwen_gets_settings_of_the_run(tmp_path):
    made = prepare(["qwen"], {}, SWAP, tmp_path)
    path = Path(made.environ["QWEN_CODE_SYSTEM_SETTINGS_PATH"])
    assert json.loads(path.read_text())["security"]["auth"]["selectedType"] == "openai"
    assert path.stat().st_mode & 0o077 == 0


def test_given_upstreams_swap_with_the_vendors_key_where_there_is_one():
    found = plan_upstreams(["anthropic=http://127.0.0.1:1", "openai=https://o.example/v1"], {"OPENAI_API_KEY": "k"})
    assert [(one.dialect, one.url, one.mode, one.key) for one in found] == [
        ("anthropic", "http://127.0.0.1:1", "swap", None),
        ("openai", "https://o.example", "swap", "env:OPENAI_API_KEY"),
    ]
    everywhere = plan_upstreams(["http://127.0.0.1:1/x=y"], {})
    assert [one.dialect for one in everywhere] == list(VENDORS)


def test_without_upstreams_the_vendors_are_called_with_the_keys_that_are_there():
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "OPENAI_BASE_URL": "https://proxy.example/v1"}
    found = {one.dialect: one for one in plan_upstreams([], environ)}
    assert (found["anthropic"].url, found["anthropic"].mode, found["anthropic"].auth) == (
        "https://api.anthropic.com",
        "swap",
        "bearer",
    )
    assert (found["openai"].url, found["openai"].key) == ("https://proxy.example", "env:OPENAI_API_KEY")
    assert (found["gemini"].mode, found["gemini"].key) == ("passthrough", None)


def test_a_login_of_the_program_is_passed_through():
    environ = {"ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_OAUTH_TOKEN": "oat"}
    assert plan_upstreams([], environ)[0].mode == "passthrough"
    assert plan_upstreams([], {"ANTHROPIC_API_KEY": "k"}, passthrough=True)[0].mode == "passthrough"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("antropic=http://127.0.0.1:1", "did you mean anthropic?"),
        ("openai=ftp://x", "not an http or https address"),
        ("nonsense", "not an http or https address"),
        ("openai=", "not an http or https address"),
        ("https://user:pw@h.example", "no user name"),
        ("http://10.0.0.1:8000", "in the clear"),
    ],
)
def test_a_wrong_upstream_is_named_with_its_fix(said, words):
    with pytest.raises(ConfigurationError) as caught:
        plan_upstreams([said], {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([], "anthropic,openai,gemini"),
        (["openai=https://api.openai.com/v1"], "openai"),
        (["openai=http://127.0.0.1:1"], ""),
        (["openai=https://api.openai.com.example"], ""),
    ],
)
def test_the_command_is_told_which_vendors_answer_themselves(tmp_path, said, named):
    upstreams = plan_upstreams(said, {})
    environ = {"GLIDEPATH_GATE_VENDORS": "openai"}  # of a gate around this one, which is not asked
    made = prepare(
        ["agent"], environ, make_aims(upstreams, URL, SECRET_URL, KEY), tmp_path, list_own_vendors(upstreams)
    )
    assert made.environ["GLIDEPATH_GATE_VENDORS"] == named


def test_every_vendor_points_at_the_gate_even_those_without_an_upstream():
    aims = make_aims(plan_upstreams(["anthropic=http://127.0.0.1:1"], {}), URL, SECRET_URL, KEY)
    assert set(aims) == set(VENDORS)
    assert all(aim == Aim(URL, KEY) for aim in aims.values())
    mixed = make_aims(plan_upstreams([], {"OPENAI_API_KEY": "k"}), URL, SECRET_URL, KEY)
    assert mixed["openai"] == Aim(URL, KEY)
    assert mixed["anthropic"] == OWN_AIM
