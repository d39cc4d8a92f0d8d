"""What is known of the agents people run: by which headers their sessions are told apart, and how they finish.

All of it is data. An agent that is not here is recognized by the ids of its tool calls, or by what it sent before.
"""

from __future__ import annotations

from collections.abc import Mapping

from glidepath._wire import Value


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
    KnownAgent(name="gemini-cli", user_agents=("geminicli",)),
    KnownAgent(name="qwen-code", user_agents=("qwencode", "qwen-code")),
    KnownAgent(name="aider", user_agents=("aider",)),
    KnownAgent(
        name="mini-swe-agent",
        finishing_move=("bash", "command", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
    ),
)
UNKNOWN = KnownAgent(name="")

_FINISHING = ("final_answer", "final_result", "submit_final_answer", "finish", "submit", "attempt_completion")
"""Tools by which agents end that can end no other way, the most usual first."""


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


def finishing_tool(tools: tuple[str, ...], tool_choice: str) -> str | None:
    """The tool that ends the run, for an agent that must call one: it offers such a tool and demands a call.

    `final_answer` and `final_result` are nothing but that; the others only when the model has no other choice.
    """
    for name in _FINISHING:
        if name in tools and (name.startswith("final_") or tool_choice == "required"):
            return name
    return next((name for name in tools if name.startswith("final_result_")), None)
