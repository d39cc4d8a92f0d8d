"""Which offered tool a scripted model calls, and with which harmless, valid arguments."""

from __future__ import annotations

import re
from typing import Any

from glidepath._wire import encode
from glidepath.testing.upstream.asked import SUBMIT_LINE, AskedCall, OfferedTool
from glidepath.testing.upstream.spoken import SpokenCall

SHELLS = (
    "Bash",
    "bash",
    "shell",
    "shell_command",
    "exec_command",
    "run_shell_command",
    "execute_command",
    "run_command",
    "terminal",
)
CHILDREN = {
    "Agent": "general-purpose",
    "Task": "general-purpose",
    "agent": "general-purpose",
    "task": "general",
    "invoke_agent": "generalist",
    "spawn_agent": "default",
}
"""Tools that start a sub-agent in known agents, each with the kind of sub-agent that may use every tool."""
WAITING = ("wait_agent",)
SCRIPTS = {"exec": "text(await tools.exec_command({cmd: %s}))"}
"""Custom tools that take a program instead of JSON, with one that runs a shell command."""
AGENT_ID = re.compile(r'"(?:agent_id|id)"\s*:\s*"([^"]+)"')
FINISHING = re.compile(r"(?i)^(final_?answer|final_?result\w*|finish|attempt_completion|complete_task|submit\w*)$")
"""Tools whose call ends the run."""
SPECIAL = re.compile(
    r"(?i)ask|question|plan|todo|task|agent|goal|kill|stop|delete|remove|write|edit|patch|replace|web|fetch|search|notif"
    r"|schedul|cron|sleep|wait|monitor|memory|skill|worktree|mode|message|upload|download|image|workflow|notebook"
)
"""Tools with an effect, or that need a person: called only when nothing else is offered."""
PROMPTS = ("prompt", "message", "task", "instructions", "request", "objective", "input", "query")
DEEPEST = 8


def has_children_tool(asked: AskedCall) -> OfferedTool | None:
    """The offered tool that starts a sub-agent."""
    return next((tool for tool in asked.tools if tool.name in CHILDREN), None)


def choose_tool(asked: AskedCall) -> OfferedTool | None:
    """The tool to call in a loop: a shell, an ordinary tool, one with an effect, and only then what ends the run."""
    ranked = sorted(enumerate(asked.tools), key=lambda entry: (_rank(entry[1]), entry[0]))
    return ranked[0][1] if ranked else None


def _rank(tool: OfferedTool) -> int:
    if tool.name in SHELLS:
        return SHELLS.index(tool.name) - len(SHELLS)
    if tool.kind == "custom" and tool.name in SCRIPTS:
        return 0
    if FINISHING.match(tool.name):
        return 4
    if tool.kind == "custom":
        return 3
    return 2 if SPECIAL.search(tool.name) or tool.name in CHILDREN else 1


def call_tool(tool: OfferedTool, words: str) -> SpokenCall:
    """A call of that tool with valid arguments; a shell echoes `words`, other strings are them."""
    if tool.kind == "custom":
        script = SCRIPTS.get(tool.name)
        text = words if script is None else script % encode(f"echo {words}").decode()
        return SpokenCall(name=tool.name, arguments=text, kind="custom", namespace=tool.namespace)
    arguments = encode(fill_schema(tool.parameters, words)).decode()
    return SpokenCall(name=tool.name, arguments=arguments, namespace=tool.namespace)


def start_child(tool: OfferedTool, number: str, tag: str) -> SpokenCall:
    """A call that starts the scripted child `number`; `tag` says whose run it is part of."""
    prompt = f"You are scripted child {number}. {tag}".strip()
    arguments = fill_schema(tool.parameters, prompt)
    properties = tool.parameters.get("properties") or {}
    if "description" in arguments:
        arguments["description"] = f"scripted work {number}"
    if "task_name" in arguments:
        arguments["task_name"] = f"work_{number.replace('.', '_')}"
    for name in ("subagent_type", "agent_name"):
        if name in properties:
            arguments[name] = CHILDREN[tool.name]
    if not any(name in arguments for name in PROMPTS):
        field = next((one for one in PROMPTS if one in properties), "prompt")
        arguments = {**({} if "items" in arguments else arguments), field: prompt}
    if "fork_turns" in properties and tool.name == "spawn_agent":
        arguments["fork_turns"] = "none"
    if "run_in_background" in properties:
        arguments["run_in_background"] = False
    return SpokenCall(name=tool.name, arguments=encode(arguments).decode(), namespace=tool.namespace)


def wait_for_children(asked: AskedCall) -> SpokenCall | None:
    """A call that waits for the children that were started, in agents whose children run beside their parent."""
    tool = next((tool for tool in asked.tools if tool.name in WAITING), None)
    ids = [found for past in asked.past if past.name in CHILDREN for found in AGENT_ID.findall(past.result)]
    field = next((one for one in ("targets", "ids") if tool and one in (tool.parameters.get("properties") or ())), None)
    if tool is None or not (ids or field is None):
        return None
    if field is None:
        return SpokenCall(name=tool.name, arguments="{}", namespace=tool.namespace)
    arguments = fill_schema(tool.parameters, "step 1")
    return SpokenCall(name=tool.name, arguments=encode({**arguments, field: ids}).decode(), namespace=tool.namespace)


def submit_by_shell(asked: AskedCall, words: str) -> SpokenCall | None:
    """The shell call by which some agents submit; None when no shell is offered."""
    shell = next((tool for tool in asked.tools if tool.name in SHELLS), None)
    if shell is None:
        return None
    return SpokenCall(
        name=shell.name,
        arguments=encode(
            fill_schema(shell.parameters, words, command=f"echo {SUBMIT_LINE} && echo '{words}'")
        ).decode(),
    )


def fill_schema(
    schema: dict[str, Any], words: str, *, command: str | None = None, number: int | None = None
) -> dict[str, Any]:
    """Arguments for an object schema: what is required. Numbers are `number`, else the first one in `words`."""
    if number is None:
        digits = re.search(r"\d+", words)
        number = int(digits[0]) if digits else 1
    filled = _Filler(schema, words, command or f"echo {words}", number).fill(schema)
    return filled if isinstance(filled, dict) else {}


class _Filler:
    """Makes a value for each schema; `$ref` is looked up in the outermost one."""

    def __init__(self, root: dict[str, Any], words: str, command: str, number: int) -> None:
        self._root, self._words, self._command, self._number = root, words, command, number

    def fill(self, schema: dict[str, Any], name: str = "", depth: int = 0) -> Any:
        """A value that fits the schema."""
        schema = self._resolve(schema)
        if "const" in schema or schema.get("enum"):
            known = schema.get("enum") or [schema["const"]]
            return known[0]
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((one for one in kind if one != "null"), "null")
        kind = str(kind or ("object" if "properties" in schema else "string")).lower()
        if kind == "object":
            return self._fill_object(schema, depth)
        if kind == "array":
            return self._fill_array(schema, name, depth)
        return self._fill_scalar(schema, kind, name)

    def _fill_scalar(self, schema: dict[str, Any], kind: str, name: str) -> Any:
        if kind in ("number", "integer"):
            return self._fill_number(schema)
        if kind in ("boolean", "null"):
            return False if kind == "boolean" else None
        return self._fill_string(schema, name)

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        for _ in range(DEEPEST):
            if "$ref" in schema:
                found: Any = self._root
                for part in str(schema["$ref"]).removeprefix("#/").split("/"):
                    found = found.get(part, {}) if isinstance(found, dict) else {}
                schema = found
            elif options := schema.get("anyOf") or schema.get("oneOf"):
                schema = next((one for one in options if one.get("type") != "null"), {})
            elif len(schema.get("allOf") or ()) == 1:
                schema = schema["allOf"][0]
            else:
                return schema
        return {}

    def _fill_object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        wanted = [name for name in properties if name in (schema.get("required") or ())]
        if depth == 0 and not wanted and properties:
            wanted = [next(iter(properties))]
        if depth > DEEPEST:
            return {}
        return {name: self.fill(properties[name], name, depth + 1) for name in wanted}

    def _fill_array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        if name in ("command", "cmd"):
            return ["bash", "-lc", self._command]
        least = max(1 if depth <= 1 else 0, schema.get("minItems") or 0)
        return [self.fill(schema.get("items") or {"type": "string"}, name, depth + 1) for _ in range(least)]

    def _fill_number(self, schema: dict[str, Any]) -> int:
        least, most = schema.get("minimum"), schema.get("maximum")
        value = self._number
        if isinstance(most, (int, float)):
            value = min(value, int(most))
        return max(value, int(least)) if isinstance(least, (int, float)) else value

    def _fill_string(self, schema: dict[str, Any], name: str) -> str:
        if name in ("command", "cmd", "script"):
            return self._command
        if name == "code":
            return f"print({self._words!r})"
        if name.endswith(("path", "file", "filename")) or name == "directory":
            return "/etc/hostname"
        if name.endswith(("url", "uri")) or schema.get("format") == "uri":
            return "http://127.0.0.1:9/"
        if schema.get("format") in ("date", "date-time"):
            return "2026-01-01" if schema["format"] == "date" else "2026-01-01T00:00:00Z"
        longest = schema.get("maxLength")
        return self._words[:longest] if isinstance(longest, int) else self._words
