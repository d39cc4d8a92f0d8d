"""Every setting, once: its Python name, its key in a file, its key in older files, its flag, its kind, its meaning.

Data only, and light: the parser makes its flags from it, the loader its checks, `glidepath config schema` its schema,
and the documentation its tables. A test compares it with `LoopConfig`, `Limits` and `GuardrailsConfig`.

`found` says what a configuration file may do with a setting when nobody named that file and nobody trusted its folder:
it may narrow, and nothing else. A setting that does not say so needs trust, so a new one is safe by default.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BY_KEY",
    "BY_SEED",
    "FREE",
    "HIGHER",
    "INSIDE",
    "LOWER",
    "LOWER_NOT_ZERO",
    "PYTHON_ONLY",
    "SECTIONS",
    "SETTINGS",
    "TRUST",
    "Setting",
    "variable",
]

TRUST = "trust"
"""Takes effect only in a trusted folder."""
FREE = "free"
"""A found file may set it to anything: it changes what is shown, or when the model is told to finish."""
LOWER = "lower"
"""A found file may set it to the default or less, and never switch it off."""
LOWER_NOT_ZERO = "lower, not zero"
"""As `LOWER`, where 0 would switch the guard off."""
HIGHER = "higher"
"""A found file may set it to the default or more."""
INSIDE = "inside"
"""A path: a found file may name one inside its own folder."""


class Setting(NamedTuple):
    """One setting. `kind` ends in `?` when "off" (or null) switches it off; `choices` are the words it may be."""

    key: str
    python: str
    kind: str
    help: str
    flag: str = ""
    seed: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    default: object = None
    """The command line's own default; None: the Python default holds."""
    zero_is_off: bool = False
    in_file: bool = True
    found: str | tuple[str, ...] = TRUST
    """What an untrusted file may do with it; a tuple holds the words it may choose from."""


_C, _L, _G = "LoopConfig.", "Limits.", "GuardrailsConfig."

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("model", _C + "model", "text", "which model, such as anthropic:claude-sonnet-4-5", "--model", metavar="NAME"),
    Setting("fallback_models", _C + "fallback_models", "names", "models to fall back to, in order", "--fallback-models", metavar="NAMES"),
    Setting("system_prompt", _C + "system_prompt", "text", "what the model is told first", "--system-prompt", metavar="TEXT"),
    Setting("tools", _C + "tools", "names", "tools the model may call: read, list, grep, write, edit, shell, or installed ones", "--tools", metavar="NAMES", default=("read", "list", "grep"), found=("read", "list", "grep")),
    Setting("mcp", "", "table", "MCP servers whose tools the model may call: [mcp.servers.NAME]; also pins and lock"),
    Setting("mcp_config", "", "text?", "a JSON file with mcpServers, read beside the configuration", "--mcp-config", metavar="FILE", in_file=False),
    Setting("workspace", "", "text", "the folder that the tools work in; the current one by default", "--workspace", metavar="DIR", found=INSIDE),
    Setting("sandbox", "", "choice", "the shell tool's sandbox: auto uses it where it is installed, require insists on it", "--sandbox", choices=("auto", "require", "off"), default="auto", found=("auto", "require")),
    Setting("shell_home", "", "text?", "the folder that is HOME for shell commands, read-only in the sandbox; an empty one by default", "--shell-home", metavar="DIR"),
    Setting("allow_protected", "", "names", "protected files that the tools may write, such as .vscode/tasks.json", "--allow-protected", metavar="PATHS"),
    Setting("redact", "", "text?", "a function that rewrites what is said before it is stored: python:module:function", "--redact", metavar="NAME"),
    Setting("approve", "", "choice", "calls that need a person's approval: ask, approve all of them, or deny them", "--approve", choices=("ask", "all", "deny"), default="ask", in_file=False),
    Setting("edits", "", "choice", "write and edit: ask a person first (as chat does by default), or apply them", "--edits", choices=("ask", "apply"), found=("ask",)),
    Setting("agents_md", "", "bool", "give the model the AGENTS.md of a folder that you trust", "--agents-md", default=True, found=FREE),
    Setting("yes", "", "bool", "give the embedded model more tools than it can handle", "--yes", in_file=False),
    Setting("limits.max_iterations", _L + "max_iterations", "int?", "model turns", "--max-turns", "max_steps", metavar="N", default=50, found=LOWER),
    Setting("limits.max_tokens", _L + "max_tokens", "int?", "tokens in total, input and output", "--max-tokens", "token_budget", metavar="N", found=LOWER),
    Setting("limits.max_cost", _L + "max_cost", "money?", "dollars in total", "--max-budget-usd", "cost_limit", metavar="USD", found=LOWER),
    Setting("limits.timeout", _L + "timeout", "seconds?", "time for the whole run: seconds, or 90s, 30m, 1h30m", "--timeout", "timeout", metavar="TIME", default=1800.0, found=LOWER),
    Setting("limits.max_tool_calls", _L + "max_tool_calls", "int?", "tool calls in total", "--max-tool-calls", metavar="N", found=LOWER),
    Setting("limits.max_depth", _L + "max_depth", "int", "how deep agents may be spawned", found=LOWER),
    Setting("limits.max_descendants", _L + "max_descendants", "int", "how many agents may be spawned", found=LOWER),
    Setting("limits.grace_iterations", _L + "grace_iterations", "count", "turns between the wind-down notice and the turn limit; 0 sends no notice", found=FREE),
    Setting("limits.landing_tokens", _L + "landing_tokens", "int", "tokens kept back for the landing answer", found=HIGHER),
    Setting("limits.landing_seconds", _L + "landing_seconds", "seconds", "time kept back for the landing answer", found=HIGHER),
    Setting("limits.scope", _L + "scope", "choice", "whether the limits bound each run, or all runs of a session together", choices=("run", "session"), found=("run", "session")),
    Setting("landing", _C + "landing", "choice", "what happens at a limit: withdraw the tools, steer, force the answer, or off", "--landing", choices=("withdraw", "steer", "force", "off")),
    Setting("guardrails.max_tokens_recoveries", _G + "max_tokens_recoveries", "count", "continuations of a truncated answer; 0 is off", seed="guardrails.max_tokens_recoveries", found=LOWER),
    Setting("guardrails.max_repeated_tool_steps", _G + "max_repeated_tool_steps", "count", "repeats of the same calls until the tools are withdrawn; 0 is off", seed="guardrails.max_repeated_tool_steps", found=LOWER_NOT_ZERO),
    Setting("guardrails.max_error_streak", _G + "max_error_streak", "count", "equal errors in a row until the tool is withdrawn; 0 is off", found=LOWER_NOT_ZERO),
    Setting("guardrails.read_only_loop_threshold", _G + "read_only_loop_threshold", "count?", "steps of read-only tools until a nudge; 8 is a good start", found=LOWER),
    Setting("guardrails.max_premature_end_recoveries", _G + "max_premature_end_recoveries", "count", "re-prompts after an empty end behind a tool error; 0 is off", found=LOWER),
    Setting("guardrails.max_empty_recoveries", _G + "max_empty_recoveries", "count", "re-prompts after an empty answer; 0 is off", found=LOWER),
    Setting("guardrails.reserve_tokens", _G + "reserve_tokens", "count", "tokens left above the reserve at which the model is told to wrap up", seed="guardrails.reserve_tokens", found=HIGHER),
    Setting("guardrails.reserve_cost_fraction", _G + "reserve_cost_fraction", "fraction", "share of the money at which the model is told to wrap up", seed="guardrails.reserve_cost_fraction", found=HIGHER),
    Setting("texts", _C + "texts", "table", "what the runtime tells the model, such as wind_down, landing, repetition: {name: text}"),
    Setting("context_window", _C + "context_window", "int?", "tokens the model can read; 0 is off", "--context-window", "context_window", metavar="N", zero_is_off=True),
    Setting("context_strategy", _C + "context_strategy", "text", "how a long transcript is made to fit: compact, sliding_window, summarize or none", "--context-strategy", "context_strategy", metavar="NAME"),
    Setting("max_retries", _C + "max_retries", "count", "attempts after the first when a model call fails", "--max-retries", "max_retries", metavar="N", found=LOWER),
    Setting("temperature", _C + "temperature", "number?", "passed to the model", "--temperature", metavar="X"),
    Setting("max_output_tokens", _C + "max_output_tokens", "int?", "output cap of one model call", "--max-output-tokens", metavar="N"),
    Setting("max_output_tokens_recovery", _C + "max_output_tokens_recovery", "recovery", "ask again for truncated replies with a larger cap: max_attempts, scaling, ceiling"),
    Setting("min_output_tokens", _C + "min_output_tokens", "int", "an output cap is never lowered below this to make a call fit"),
    Setting("reasoning", _C + "reasoning", "text?", "how hard the model should think; passed to the model", "--reasoning", metavar="LEVEL"),
    Setting("thinking_tags", _C + "thinking_tags", "bool", "hide <think> and its synonyms from the visible text"),
    Setting("extras", _C + "extras", "table", "passed to the model's provider as it is"),
    Setting("strict_tools", _C + "strict_tools", "bool", "hold the model to the tools' schemas, where the provider can"),
    Setting("stop_sequences", _C + "stop_sequences", "names", "texts at which a reply stops; passed to the model"),
    Setting("seed", _C + "seed", "count?", "passed to the model"),
    Setting("logprobs", _C + "logprobs", "count?", "alternatives to name beside each token of a reply, with their probabilities"),
    Setting("tool_choice", _C + "tool_choice", "text", "auto, required, none, or the name of a tool"),
    Setting("tool_timeout", _C + "tool_timeout", "seconds?", "time for one tool call", "--tool-timeout", metavar="TIME", found=LOWER),
    Setting("max_tool_calls_per_turn", _C + "max_tool_calls_per_turn", "int?", "tool calls of one reply that are run", found=LOWER),
    Setting("max_image_bytes", _C + "max_image_bytes", "int", "bytes of one picture at most", found=LOWER),
    Setting("max_image_bytes_per_request", _C + "max_image_bytes_per_request", "int", "bytes of all pictures of a request at most", found=LOWER),
    Setting("max_file_bytes", _C + "max_file_bytes", "int", "bytes of one document, recording or video at most", found=LOWER),
    Setting("max_parallel_tools", _C + "max_parallel_tools", "int", "tool calls that run at the same time", found=LOWER),
    Setting("default_execution_mode", _C + "default_execution_mode", "choice", "whether the calls of one reply run side by side", choices=("auto", "parallel", "sequential"), found=("auto", "sequential")),
    Setting("prices", _C + "prices", "prices", "dollars per million tokens: {model name: [input, output]}"),
    Setting("unpriced", _C + "unpriced", "text?", "estimate:MODEL, whose price to count with when none is known"),
    Setting("unbounded", _C + "unbounded", "bool", "allow a run without any limit"),
    Setting("constraints", _C + "constraints", "names", "constraints by their entry-point name, asked after the built-in ones"),
    Setting("replace_defaults", _C + "replace_defaults", "bool", "drop the built-in constraints; needs constraints"),
    Setting("plugins", _C + "plugins", "names", "plugins by their entry-point name, in calling order"),
    Setting("store", _C + "store", "text?", "where sessions are kept: segments:FOLDER, sqlite:FILE, a path, a postgresql:// address, default (in your data folder), or none", "--store", metavar="PATH"),
    Setting("wallet", "", "text?", "draw from this wallet in the store; `glidepath wallets` makes and lists them", "--wallet", metavar="NAME"),
    Setting("durability", _C + "durability", "choice", "when the store writes to disk", choices=("sync", "full", "async", "exit")),
    Setting("empty_outcome_retry_budget", _C + "empty_outcome_retry_budget", "count?", "stops without a tool call that may be answered in a row"),
    Setting("plain_text_terminal_fallback_tool", _C + "plain_text_terminal_fallback_tool", "text?", "the tool a plain-text stop is taken for"),
    Setting("plain_text_terminal_fallback_eager", _C + "plain_text_terminal_fallback_eager", "bool", "take it for that tool at once"),
    Setting("plain_text_terminal_fallback_eager_nudge", _C + "plain_text_terminal_fallback_eager_nudge", "bool", "nudge first, at most twice"),
    Setting("agent_name", _C + "agent_name", "text", "who the agent is in events and breakdowns"),
    Setting("conversation_id", _C + "conversation_id", "text?", "given to hooks and events"),
    Setting("model_id", _C + "model_id", "text?", "the model's name as hooks see it"),
    Setting("connect_timeout", _C + "connect_timeout", "seconds?", "time to connect to the provider"),
    Setting("first_chunk_timeout", _C + "first_chunk_timeout", "seconds?", "time to the first piece of a reply"),
    Setting("stall_timeout", _C + "stall_timeout", "seconds?", "time between two pieces of a reply"),
    Setting("call_timeout", _C + "call_timeout", "seconds?", "time for one attempt at a model call"),
    Setting("hook_timeout", _C + "hook_timeout", "seconds", "time for one answer of an async hook"),
    Setting("constraint_timeout", _C + "constraint_timeout", "seconds", "time for one answer of a constraint"),
    Setting("telemetry.otel", "", "bool", "send spans and metrics to OpenTelemetry, set up by the usual OTEL_* variables", "--otel"),
    Setting("telemetry.content", "", "bool", "record messages, arguments and results on spans, too"),
    Setting("output_format", "", "choice", "what is printed: text, one json object, or stream-json (one event per line)", "--output-format", choices=("text", "json", "stream-json"), default="text", found=FREE),
    Setting("streaming", "", "bool", "show the answer while it is written; display only", "--streaming", "streaming", default=True, found=FREE),
)
# fmt: on

PYTHON_ONLY: dict[str, str] = {
    "LoopConfig.tool_sources": "Python objects; MCP servers stand in [mcp.servers.NAME]",
    "LoopConfig.limits": "the section [limits]",
    "LoopConfig.guardrails": "the section [guardrails]",
    "LoopConfig.event_sink": "a Python callable",
    "LoopConfig.graceful_turn_limit_message_provider": "a Python callable",
    "LoopConfig.graceful_turn_limit_grace_provider": "a Python callable",
    "LoopConfig.token_estimator": "a Python object",
    "LoopConfig.protocol_policy": "a Python object",
    "LoopConfig.output_type": "a Python type",
    "LoopConfig.kill_switch_grace": "a kill switch is a Python object",
}
"""What a file cannot say, and why."""

SECTIONS = ("limits", "guardrails", "telemetry")
BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}
BY_SEED: dict[str, Setting] = {
    setting.seed: setting for setting in SETTINGS if setting.seed and setting.seed != setting.key
}
"""The older key of a setting, where it differs from ours. Under it, 0 means off."""


def variable(setting: Setting) -> str:
    """The environment variable of a setting."""
    return "GLIDEPATH_" + setting.key.replace(".", "_").upper()
