"""Make a request fit into what is left for its landing: the newest tool results lose their middle, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LEAST = 400
"""Characters of a result that stay, half at its beginning and half at its end."""
_LISTS = ("messages", "input", "contents")
# A tuple: a client may have put a list there, which no set can look for.
_RESULT_TYPES = (
    "tool_result",
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "mcp_call",
)
_TEXT_KEYS = ("content", "text", "output", "response", "result", "functionResponse", "function_response", "parts")


def shorten_results(body: dict[str, Any], excess: int) -> dict[str, Any] | None:
    """The request with `excess` characters less in its tool results, the longest first; None if that is too much.

    What comes back shares everything with `body` that did not change.
    """
    key = next((name for name in _LISTS if type(body.get(name)) is list), None)
    if key is None:
        return None
    texts = sorted(_result_texts(body[key], (key,)), key=lambda found: -len(found[1]))
    for path, text in texts:
        if excess <= 0:
            break
        spare = len(text) - LEAST
        if spare <= 0:
            return None
        gone = min(spare, excess + 60)
        keep = (len(text) - gone) // 2
        mark = f"\n[... {gone:,} characters left out to fit the budget ...]\n"
        body = _replace_at(body, path, text[:keep] + mark + text[len(text) - keep :])
        excess -= gone - len(mark)
    return body if excess <= 0 else None


def _result_texts(node: Any, path: tuple[Any, ...], *, inside: bool = False) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text of a tool result, with its place."""
    if type(node) is list:
        for at, item in enumerate(node):
            yield from _result_texts(item, (*path, at), inside=inside)
    elif type(node) is dict:
        is_result = inside or node.get("role") == "tool" or node.get("type") in _RESULT_TYPES
        for name, value in node.items():
            if name in _TEXT_KEYS or (inside and type(value) is str and name not in ("id", "name", "type")):
                within = is_result or name in ("functionResponse", "function_response")
                if type(value) is not str:
                    yield from _result_texts(value, (*path, name), inside=within)
                elif within:
                    yield (*path, name), value


def _replace_at(node: Any, path: tuple[Any, ...], value: str) -> Any:
    if not path:
        return value
    copy = node.copy()
    copy[path[0]] = _replace_at(node[path[0]], path[1:], value)
    return copy
