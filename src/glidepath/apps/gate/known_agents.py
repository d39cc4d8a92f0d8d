"""What is known of the agents people run: by which headers their sessions are told apart, and how they finish.

All of it is data. An agent that is not here is recognized by the ids of its tool calls, or by what it sent before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from glidepath._wire import Value, replace
from glidepath.values import ToolResultMessage


class KnownAgent(Value, frozen=True, kw_only=True):
    """One agent program."""

    name: str
    user_agents: tuple[str, ...] = ()
    """How its User-Agent header begins, in lower case."""
    marks: tuple[str, ...] = ()
    """Headers that only this program sends."""
    session: tuple[str, ...] = ()
    """Headers that name the session, the first that is there."""
    agent: tuple[str, ...] = ()
    """Headers that name one agent of the session; none is the main one."""
    parent: tuple[str, ...] = ()
    """Headers that name the agent above it."""
    noise: tuple[tuple[str, str], ...] = ()
    """Names and patterns of what it adds to the results of commands and is another one each time."""
    waiting: str = ""
    """A pattern for the result of a command that still runs: to ask again is to wait, and no loop."""
    refusal: int = 402
    """The status for a call that must fail: one that this program does not try again."""
    finishing_move: tuple[str, str, str] | None = None
    """For a program that ends only by its own command: tool, argument and command. The client executes it.

    Nothing of what a model wrote is ever in it. It is used only for a program that is named, never for one that only
    looks like it.
    """


KNOWN = (
    KnownAgent(
        name="claude-code",
        user_agents=("claude-cli", "claude-code"),
        marks=("x-claude-code-session-id",),
        session=("x-claude-code-session-id",),
        agent=("x-claude-code-agent-id",),
        parent=("x-claude-code-parent-agent-id",),
    ),
    KnownAgent(
        name="codex",
        user_agents=("codex_", "codex-"),
        marks=("x-codex-turn-metadata",),
        session=("session-id", "session_id"),
        agent=("thread-id", "thread_id"),
        parent=("x-codex-parent-thread-id",),
        noise=(
            ("chunk", r'(?<="chunk_id":")[0-9a-f]+|(?<=Chunk ID: )[0-9a-f]+'),
            ("took", r'(?<="wall_time_seconds":)[\d.eE+-]+|(?<="duration_seconds":)[\d.eE+-]+'),
            ("time", r"(?<=Wall time )[\d.]+|(?<=Wall time: )[\d.]+"),
        ),
        waiting=r'running with \w+ ID|"session_id":"?\w*\d',
        refusal=400,
    ),
    KnownAgent(
        name="opencode",
        user_agents=("opencode",),
        marks=("x-session-affinity",),
        agent=("x-session-id", "x-session-affinity"),
        parent=("x-parent-session-id",),
        session=("x-parent-session-id", "x-session-id", "x-session-affinity"),
    ),
    KnownAgent(
        name="gemini-cli",
        user_agents=("geminicli",),
        noise=(("group", r"(?<=Process Group PGID: )\d+|(?<=Background PIDs: )[\d, ]+"),),
    ),
    KnownAgent(name="qwen-code", user_agents=("qwencode", "qwen-code")),
    KnownAgent(name="aider", user_agents=("aider",)),
    KnownAgent(
        name="mini-swe-agent",
        finishing_move=("bash", "command", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
    ),
)
UNKNOWN = KnownAgent(name="")
_NOISE = {known.name: re.compile("|".join([pattern for _, pattern in known.noise])) for known in KNOWN if known.noise}

_FINISHING = (
    "final_answer",
    "final_result",
    "complete_task",
    "submit_final_answer",
    "finish",
    "submit",
    "attempt_completion",
)
"""Tools by which agents end that can end no other way, the most usual first."""
_ONLY_FINISHING = ("final_", "complete_task")
"""How those begin that are nothing but that: a sub-agent of Gemini CLI fails without `complete_task`."""
_WORDS = {"final_answer": "answer", "complete_task": "result"}
"""The argument that is the answer, where that is one text."""
_SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")


def recognize(headers: Mapping[str, str]) -> KnownAgent:
    """The program that sent these headers; `UNKNOWN` when it is not one that we know."""
    said = headers.get("user-agent", "").lower()
    for known in KNOWN:
        if any(mark in headers for mark in known.marks) or (known.user_agents and said.startswith(known.user_agents)):
            return known
    return UNKNOWN


def find_known(name: str) -> KnownAgent:
    """The program of this name; `UNKNOWN` when it is not one that we know."""
    return next((known for known in KNOWN if known.name == name), UNKNOWN)


def remove_noise(known: KnownAgent, results: tuple[ToolResultMessage, ...]) -> tuple[ToolResultMessage, ...]:
    """Results without what this program adds to them: the same output is then the same result."""
    noise = _NOISE.get(known.name)
    if noise is None or (known.waiting and any(re.search(known.waiting, one.text) for one in results)):
        return results
    return tuple([replace(one, content=noise.sub("", one.text)) for one in results])


def finishing_tool(tools: tuple[str, ...], tool_choice: str) -> str | None:
    """The tool that ends the run, for an agent that must call one: it offers such a tool and demands a call.

    Some tools are nothing but that; the others only when the model has no other choice.
    """
    for name in _FINISHING:
        if name in tools and (name.startswith(_ONLY_FINISHING) or tool_choice == "required"):
            return name
    return next((name for name in tools if name.startswith("final_result_")), None)


def finishing_call(name: str, tools: object, text: str) -> tuple[str, dict[str, Any]] | None:
    """A call of the finishing tool with these words; None when its arguments are more than one text.

    `tools` are those of the request, in any dialect.
    """
    field = _WORDS.get(name)
    schema = _find_schema(tools, name)
    required = schema.get("required") if isinstance(schema, dict) else None
    if field is None or (required and required != [field]):
        return None
    return name, {field: text}


def _find_schema(tools: object, name: str) -> object:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function"), *_as_list(tool.get("functionDeclarations") or tool.get("function_declarations"))
        for one in (tool, *inner):
            if isinstance(one, dict) and one.get("name") == name:
                return next((one[key] for key in _SCHEMAS if key in one), None)
    return None


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
