"""Every setting of the command line: the agent's declared ones, and its own.

Data only, and light: the parser makes its flags from it, the loader its checks, `glidepath config schema` its schema,
and the documentation its tables. `cli/setting_rows.py` is written from the declarations by `scripts/make_keywords.py`.

`found` says how a configuration file found in an untrusted folder may narrow a setting. A setting without it needs
trust, so a new one is safe by default.
"""

from __future__ import annotations

from typing import Any

from glidepath.apps.cli.setting_rows import ROWS
from glidepath.values import FREE, INSIDE, MORE, Setting


def _declare(key: str, kind: str, help: str, flag: str = "", seed: str = "", **more: Any) -> Setting:  # noqa: A002
    return Setting(kind, help, flag, seed, key=key, **more)


_TOOLS = (
    _declare("mcp", "table", "MCP servers whose tools the model may call: [mcp.servers.NAME]; also pins and lock"),
    _declare(
        "mcp_config",
        "text?",
        "a JSON file with mcpServers, read in addition to the configuration",
        "--mcp-config",
        metavar="FILE",
        in_file=False,
    ),
    _declare(
        "workspace",
        "text",
        "the folder the tools work in (default: the current one)",
        "--workspace",
        metavar="DIR",
        found=INSIDE,
    ),
    _declare(
        "sandbox",
        "choice",
        "the shell tool's sandbox: auto uses it if installed, require insists on it",
        "--sandbox",
        choices=("auto", "require", "off"),
        default="auto",
        found=("auto", "require"),
    ),
    _declare(
        "shell_home",
        "text?",
        "HOME for shell commands, read-only in the sandbox (default: an empty folder)",
        "--shell-home",
        metavar="DIR",
    ),
    _declare(
        "secret_files",
        "names",
        "files that a person is asked about before they are read, instead of .env, keys and the like",
        "--secret-files",
        metavar="NAMES",
    ),
    _declare(
        "allow_protected",
        "names",
        "protected files that the tools may write, such as .vscode/tasks.json",
        "--allow-protected",
        metavar="PATHS",
    ),
    _declare(
        "redact",
        "text?",
        "a function that rewrites messages before they are stored: python:module:function",
        "--redact",
        metavar="NAME",
    ),
    _declare(
        "approve",
        "choice",
        "calls that need a person's approval: ask, approve all of them, or deny them",
        "--approve",
        choices=("ask", "all", "deny"),
        default="ask",
        in_file=False,
    ),
    _declare(
        "edits",
        "choice",
        "what write and edit do: ask a person first (the default in chat), or apply the change",
        "--edits",
        choices=("ask", "apply"),
        found=("ask",),
    ),
    _declare(
        "agents_md",
        "bool",
        "give the model the AGENTS.md of a folder that you trust",
        "--agents-md",
        default=True,
        found=FREE,
    ),
    _declare(
        "approvals.allow",
        "names",
        "calls that run without asking, such as shell(npm test *) or write(src/**)",
    ),
    _declare(
        "approvals.deny",
        "names",
        "calls that never run, such as shell(rm *) or write(.github/**)",
        found=MORE,
    ),
    _declare(
        "approvals.ask",
        "names",
        "calls that a person is asked about even where their tool does not ask",
        found=MORE,
    ),
    _declare(
        "approvals.reviewer",
        "text?",
        "a model that may allow calls that need approval, that no rule covers and that are not consequential",
    ),
    _declare(
        "skills.folders",
        "names",
        "skills the model may read: folders with a SKILL.md, and folders of such folders (default: .agents/skills, "
        ".claude/skills and .glidepath/skills of a folder that you trust)",
        "--skills",
        metavar="FOLDERS",
    ),
    _declare(
        "agents",
        "table",
        "agents for parts of the work, each a tool: [agents.NAME] with description, prompt, tools, max_turns; or files",
    ),
    _declare(
        "agent_files",
        "names",
        "files of agents for parts of the work (default: those in .claude/agents, if you trust the folder)",
        "--agents",
        metavar="FILES",
        in_file=False,
    ),
    _declare(
        "agent_file",
        "text?",
        "be the agent in this file, such as .claude/agents/reviewer.md",
        "--agent-file",
        metavar="FILE",
        in_file=False,
    ),
    _declare("overload", "bool", "give the embedded model more tools than it can handle", "--overload", in_file=False),
)
_STORE = (
    _declare(
        "wallet",
        "text?",
        "draw from this wallet in the store; `glidepath wallets` makes and lists them",
        "--wallet",
        metavar="NAME",
    ),
)
_DISPLAY = (
    _declare(
        "telemetry.otel",
        "bool",
        "send spans and metrics to OpenTelemetry, set up by the usual OTEL_* variables",
        "--otel",
    ),
    _declare("telemetry.content", "bool", "also record messages, arguments and results on spans"),
    _declare(
        "output_format",
        "choice",
        "what is printed: text, one json object, or stream-json (one event per line)",
        "--output-format",
        choices=("text", "json", "stream-json"),
        default="text",
        found=FREE,
    ),
    _declare(
        "streaming",
        "bool",
        "show the answer while it is written; display only",
        "--streaming",
        "streaming",
        default=True,
        found=FREE,
    ),
)
_BEHIND = {"tools": _TOOLS, "store": _STORE}
"""The command line's own settings, by the agent's setting they follow."""
SETTINGS: tuple[Setting, ...] = (
    *[one for row in ROWS for one in (row, *_BEHIND.get(row.key, ()))],
    *_DISPLAY,
)

SECTIONS = ("limits", "guardrails", "approvals", "telemetry", "skills")
BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}
BY_SEED: dict[str, Setting] = {
    setting.seed: setting for setting in SETTINGS if setting.seed and setting.seed != setting.key
}
"""The older key of a setting, where it differs from ours. Under it, 0 means off."""
_PARTS = ("mcp", "mcp_config", "skills.folders", "agents", "agent_files", "agent_file")


def makes_agent(key: str) -> bool:
    """True for a setting that says what an agent is: one that was written in Python has its own."""
    return bool(BY_KEY[key].python) or key in _PARTS


def variable_name_of(setting: Setting) -> str:
    """The environment variable of a setting."""
    return "GLIDEPATH_" + setting.key.replace(".", "_").upper()
