"""Many tools: when the tools of sources would fill the context window, two tools that never change replace them.

The model looks tools up with `find_tools` and calls them with `call_found_tool`; so the beginning of every request
stays the same, whichever tools are found. A call becomes a call of the real tool before anybody judges it: gates,
approvals, journal and events see the real name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.spi import ProtocolPolicy
from glidepath.tools import Tool, find_closest
from glidepath.values import ToolCall

SHARE = 0.10  # of the context window
FIND, CALL = "find_tools", "call_found_tool"
MOST_FOUND = 20
LONG_WORD = 4  # letters, from which on a beginning counts
MOST_SHOWN = 12_000  # characters of one answer
_WORD = r"[a-z0-9]+"


def are_too_many(tools: Sequence[Tool], window: int | None, estimate: Callable[[str], int]) -> bool:
    """True when the definitions of these tools take more than their share of the window."""
    if not tools or window is None:
        return False
    return estimate(_wire.encode([tool.spec for tool in tools]).decode()) > window * SHARE


def make_search_tools(behind: Sequence[Tool]) -> tuple[Tool, Tool]:
    """The two tools that replace these."""
    known = {tool.name: tool for tool in behind}

    async def find(values: dict[str, Any], _context: object) -> str:
        return _search_tools(known, str(values.get("query", "")), int(values.get("limit") or 5))

    async def call(values: dict[str, Any], _context: object) -> str:
        name = str(values.get("name", ""))
        meant = find_closest(name, known)
        hint = f"; did you mean {meant!r}?" if meant else ""
        return f"There is no tool named {name[:80]!r}{hint} Look for one with {FIND}."

    finder = Tool(
        name=FIND,
        description=(
            f"Find tools by what they do. There are {len(known)} more tools than are listed here; this returns the "
            f"names, descriptions and parameters of those that fit the query. Call one with {CALL}."
        ),
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "A few words: what the tool should do, or its name."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": 5},
            },
            "required": ["query"],
        },
        fn=_never_called,
        read_only=True,
        counts_toward_limit=False,
    )
    caller = Tool(
        name=CALL,
        description=f"Call a tool that {FIND} has found, with the arguments its parameters describe.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name."},
                "arguments": {"type": "object", "description": "Its arguments.", "additionalProperties": True},
            },
            "required": ["name"],
        },
        fn=_never_called,
    )
    return finder.answering(find), caller.answering(call)


async def _never_called(**_: object) -> None:
    """Never called: `answering` gives the body."""


def _search_tools(known: Mapping[str, Tool], query: str, limit: int) -> str:
    """The tools that fit a query best, as many as fit into an answer."""
    wanted = _split_words(query)
    ranked = sorted(known.values(), key=lambda tool: (-_score_tool(tool, query, wanted), tool.name))
    fitting = [tool for tool in ranked if _score_tool(tool, query, wanted) > 0][: max(1, min(limit, MOST_FOUND))]
    if not fitting:
        some = ", ".join(sorted(known)[:30])
        return f"No tool fits {query[:80]!r}. There are {len(known)}; some of them: {some}"
    shown: list[str] = []
    size = 0
    for tool in fitting:
        entry = _wire.encode(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        ).decode()
        size += len(entry)
        if shown and size > MOST_SHOWN:
            break
        shown.append(entry)
    return "\n".join(shown)


def _split_words(text: str) -> set[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return set(re.findall(_WORD, spaced.lower()))


def _score_tool(tool: Tool, query: str, wanted: set[str]) -> int:
    if query.strip() == tool.name:
        return 100
    named, said = _split_words(tool.name), _split_words(tool.description)
    return sum(
        5 if word in named else 2 if word in said else _score_similar_word(word, named | said) for word in wanted
    )


def _score_similar_word(word: str, words: set[str]) -> int:
    long = [other for other in words if len(other) >= LONG_WORD]
    return int(len(word) >= LONG_WORD and any(other.startswith(word) or word.startswith(other) for other in long))


def wrap_policy(policy: ProtocolPolicy, behind: Mapping[str, Tool]) -> ProtocolPolicy:
    """The same policy, with calls of found tools first turned into calls of the tools themselves.

    It asks the application's own object, which may keep state, and overrides only what that overrides: code that looks
    for the methods of an application still finds them.
    """
    kind: Any = type(policy)

    def normalize(calls: Sequence[ToolCall], tool_names: frozenset[str]) -> Sequence[ToolCall]:
        return policy.normalize_tool_calls([_unwrap_call(call, behind) for call in calls], tool_names)

    body: dict[str, Any] = {
        "terminal_tool_names": policy.terminal_tool_names,
        "normalize_tool_calls": staticmethod(normalize),
    }
    for name in ("plain_text_recovery_prompt", "hidden_tool_error"):
        if getattr(kind, name) is not getattr(ProtocolPolicy, name):
            body[name] = staticmethod(getattr(policy, name))
    made: ProtocolPolicy = type(kind.__name__, (ProtocolPolicy,), body)()
    return made


def _unwrap_call(call: ToolCall, behind: Mapping[str, Tool]) -> ToolCall:
    if call.name != CALL or call.malformed is not None:
        return call
    given = call.arguments
    name, arguments = given.get("name"), given.get("arguments")
    if isinstance(arguments, str):  # models like to write objects as text
        try:
            arguments = _wire.loads(arguments.encode())
        except Exception:
            return call
    if not isinstance(name, str) or name not in behind or not isinstance(arguments or {}, dict):
        return call
    return ToolCall(call.id, name, arguments or {})
