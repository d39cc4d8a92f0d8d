"""The agents that run behind the gate: releases, how each is started, and what each cannot do.

`PINS` is the one place with versions. A row of `AGENTS` is a configuration: a program and the dialect it speaks.
In commands, files and variables `@TASK@` is the task, `@BIN@` the program's folder of commands, `@AGENT@` its folder,
`@PROGRAMS@` our own programs for the frameworks, `@URL@` and `@KEY@` where the models are, `@HOME@` the run's own HOME.
"""

import json
from dataclasses import dataclass, field

PINS = {
    "claude-code": ("npm", ("@anthropic-ai/claude-code@2.1.327",)),
    "codex": ("npm", ("@openai/codex@0.169.0",)),
    "langgraph": (
        "pypi",
        ("langgraph==1.2.22", "langchain==1.4.7", "langchain-openai==1.7.3", "langchain-anthropic==1.7.7"),
    ),
    "openai-agents": ("pypi", ("openai-agents==0.24.0",)),
    "opencode": ("npm", ("opencode-ai@1.18.33",)),
    "pydantic-ai": ("pypi", ("pydantic-ai-slim[openai,anthropic,google]==2.66.0",)),
    "gemini-cli": ("npm", ("@google/gemini-cli@0.61.0",)),
    "qwen-code": ("npm", ("@qwen-code/qwen-code@0.24.4",)),
    "smolagents": ("pypi", ("smolagents[openai]==1.26.0",)),
    "mini-swe-agent": ("pypi", ("mini-swe-agent==2.4.6", "mcp==2.3.0")),
    "vercel-ai": (
        "npm",
        (
            "ai@7.0.173",
            "@ai-sdk/openai@4.0.118",
            "@ai-sdk/anthropic@4.0.104",
            "@ai-sdk/openai-compatible@3.0.92",
            "zod@4.1.12",
        ),
    ),
    "aider": ("pypi", ("aider-chat==0.86.2",)),
    "strands": ("pypi", ("strands-agents[openai,anthropic]==1.62.0",)),
    "crewai": ("pypi", ("crewai==1.15.30",)),
}
NO_CHILDREN = "has no sub-agents"
NO_TOOLS = "offers no tools to the model"


@dataclass(frozen=True)
class Agent:
    """A program in one configuration.

    `bare_*` is what a person without a gate writes to point it at a server; behind a gate, its launcher does that.
    `cannot` names behaviors of the model that the program cannot express, with the reason.
    """

    name: str
    program: str
    dialect: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    bare_args: tuple[str, ...] = ()
    bare_env: dict[str, str] = field(default_factory=dict)
    bare_files: dict[str, str] = field(default_factory=dict)
    finishing: str | None = None
    cannot: dict[str, str] = field(default_factory=dict)


def framework(name: str, program: str, dialect: str, *args: str, script: str, finishing: str | None = None) -> Agent:
    """A program of ours that uses a framework; the SDKs in it read the vendors' variables."""
    command = ("@BIN@/python", f"@PROGRAMS@/{script}", *args, "@TASK@")
    return Agent(name, program, dialect, command, finishing=finishing, cannot={"spawn": NO_CHILDREN})


def vercel(kind: str, dialect: str) -> Agent:
    """The Vercel AI SDK with one of its providers."""
    command = ("node", "@PROGRAMS@/use_vercel_ai.mjs", kind, "@TASK@")
    return Agent(
        f"vercel-ai/{kind}",
        "vercel-ai",
        dialect,
        command,
        env={"AI_SDK_HOME": "@AGENT@"},
        cannot={"spawn": NO_CHILDREN},
    )


CODEX_CONFIG = """
model_provider = "own"
check_for_update_on_startup = false
[model_providers.own]
name = "own"
base_url = "@URL@/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
[analytics]
enabled = false
"""
OPENCODE_CONFIG = {
    "$schema": "https://opencode.ai/config.json",
    "autoupdate": False,
    "share": "disabled",
    "model": "own/gpt-5",
    "small_model": "own/gpt-5",
    "permission": {"*": "allow"},
    "provider": {
        "own": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "own",
            "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"gpt-5": {"name": "gpt-5", "limit": {"context": 200000, "output": 8000}}},
        }
    },
}


def codex(name: str, *flags: str) -> Agent:
    """Codex: its default model brings its tools in an input item, an older one in the request's own field."""
    command = ("@BIN@/codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", *flags, "@TASK@")
    return Agent(name, "codex", "openai-responses", command, bare_files={".codex/config.toml": CODEX_CONFIG})


_AGENTS = [
    Agent(
        "claude-code",
        "claude-code",
        "anthropic",
        ("@BIN@/claude", "-p", "@TASK@", "--allowedTools", "Bash", "Agent"),
        env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    codex("codex"),
    codex("codex/classic", "-m", "gpt-5-codex"),
    framework("langgraph/chat", "langgraph", "openai-chat", "chat", script="use_langgraph.py"),
    framework("langgraph/anthropic", "langgraph", "anthropic", "anthropic", script="use_langgraph.py"),
    framework(
        "openai-agents/responses", "openai-agents", "openai-responses", "responses", script="use_openai_agents.py"
    ),
    framework("openai-agents/chat", "openai-agents", "openai-chat", "chat", script="use_openai_agents.py"),
    Agent(
        "opencode",
        "opencode",
        "openai-chat",
        ("@BIN@/opencode", "run", "@TASK@"),
        env={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files={".config/opencode/opencode.json": json.dumps(OPENCODE_CONFIG)},
    ),
    framework("pydantic-ai/chat", "pydantic-ai", "openai-chat", "chat", script="use_pydantic_ai.py"),
    framework("pydantic-ai/responses", "pydantic-ai", "openai-responses", "responses", script="use_pydantic_ai.py"),
    framework("pydantic-ai/anthropic", "pydantic-ai", "anthropic", "anthropic", script="use_pydantic_ai.py"),
    framework(
        "pydantic-ai/typed",
        "pydantic-ai",
        "openai-chat",
        "typed",
        script="use_pydantic_ai.py",
        finishing="final_result",
    ),
    framework("pydantic-ai/gemini", "pydantic-ai", "gemini", "gemini", script="use_pydantic_ai.py"),
    Agent(
        "gemini-cli",
        "gemini-cli",
        "gemini",
        ("@BIN@/gemini", "-p", "@TASK@", "--yolo", "-m", "gemini-2.5-pro"),
        env={"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false"},
        files={
            ".gemini/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
                    "privacy": {"usageStatisticsEnabled": False},
                }
            )
        },
    ),
    Agent(
        "qwen-code",
        "qwen-code",
        "openai-chat",
        ("@BIN@/qwen", "-p", "@TASK@", "--yolo"),
        env={"OPENAI_MODEL": "gpt-4o-mini"},
        files={
            ".qwen/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "openai"}},
                    "general": {"enableAutoUpdate": False, "disableUpdateNag": True},
                    "privacy": {"usageStatisticsEnabled": False},
                    "telemetry": {"enabled": False},
                }
            )
        },
    ),
    Agent(
        "smolagents",
        "smolagents",
        "openai-chat",
        ("@BIN@/python", "@PROGRAMS@/use_smolagents.py", "@TASK@"),
        finishing="final_answer",
        cannot={"spawn": NO_CHILDREN},
    ),
    Agent(
        "mini-swe-agent",
        "mini-swe-agent",
        "openai-chat",
        ("@BIN@/mini", "-t", "@TASK@", "-y", "-m", "openai/gpt-4o-mini", "--exit-immediately"),
        env={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": "@HOME@/mini",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        finishing="bash: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        cannot={"spawn": NO_CHILDREN},
    ),
    vercel("chat", "openai-chat"),
    vercel("responses", "openai-responses"),
    vercel("anthropic", "anthropic"),
    vercel("compatible", "openai-chat"),
    Agent(
        "aider",
        "aider",
        "openai-chat",
        (
            "@BIN@/aider",
            "--model",
            "openai/gpt-4o-mini",
            "--message",
            "@TASK@",
            "--yes-always",
            "--no-git",
            "--no-check-update",
            "--no-show-model-warnings",
            "--no-show-release-notes",
            "--analytics-disable",
            "--no-pretty",
        ),
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        cannot={"loop": NO_TOOLS, "same": NO_TOOLS, "stubborn": NO_TOOLS, "spawn": NO_CHILDREN},
    ),
    framework("strands/chat", "strands", "openai-chat", "chat", script="use_strands.py"),
    framework("strands/anthropic", "strands", "anthropic", "anthropic", script="use_strands.py"),
    Agent(
        "crewai",
        "crewai",
        "openai-chat",
        ("@BIN@/python", "@PROGRAMS@/use_crewai.py", "@TASK@"),
        env={"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"},
        cannot={"spawn": NO_CHILDREN},
    ),
]
AGENTS = {agent.name: agent for agent in _AGENTS}
