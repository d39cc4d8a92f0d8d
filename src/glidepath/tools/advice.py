"""Messages for a model that called a tool wrongly: what was wrong, and how to do it right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glidepath import _wire
from glidepath.tools.text import shorten
from glidepath.values import close_to, pluralize

MAX_LISTED = 12
_MAX_NAME = 80
_EXCERPT = 30


def find_closest(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that `name` most likely meant, or None."""
    wanted = _normalize_name(name[:_MAX_NAME])
    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(_normalize_name(candidate[:_MAX_NAME]), candidate)
    if wanted in folded:
        return folded[wanted]
    found = close_to(wanted, folded)
    return None if found is None else folded[found]


def _normalize_name(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def unknown_tool_message(name: str, available: Sequence[str], *, hidden: bool = False) -> str:
    """Tell the model that it cannot use `name`: the closest match, and up to 12 tools it can use.

    With `hidden`, the tool exists but may not be used now.
    """
    shown = repr(shorten(name, _MAX_NAME))
    said = [f"The tool {shown} cannot be used now." if hidden else f"There is no tool named {shown}."]
    if not available:
        said.append("No tools are available now: answer in plain text.")
        return " ".join(said)
    match = find_closest(name, available)
    if match is not None:
        said.append(f"Did you mean {match!r}?")
    listed = list(available[:MAX_LISTED])
    if match is not None and match not in listed:
        listed[-1] = match
    more = len(available) - len(listed)
    said.append(f"Available tools: {', '.join(listed)}" + (f" and {more} more." if more > 0 else "."))
    return " ".join(said)


def explain_malformed_arguments(text: str) -> str:
    """Tell the model what is wrong with the JSON of its arguments, where, and how to send them again."""
    again = "Call the tool again with its arguments as one complete JSON object."
    return f"The arguments of this call could not be read: {_explain_json_fault(text)}. {again}"


def _explain_json_fault(text: str) -> str:
    import json

    if not text.strip():
        return "they are empty"
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            return f"expected a JSON object, got {_kind(data)}"
        _wire.loads(text)  # stricter about NaN, lone surrogates and huge numbers
    except json.JSONDecodeError as error:
        return _place(text, error.msg, error.pos, f"line {error.lineno} column {error.colno}")
    except RecursionError:
        return "the JSON is nested too deeply"
    except (_wire.WireError, ValueError) as error:
        return shorten(str(error), 200)
    return "they were cut or repeated"


def _place(text: str, fault: str, at: int, where: str) -> str:
    if at >= len(text.rstrip()) or fault.startswith("Unterminated string"):
        return f"the JSON ends too early, after {pluralize(len(text), 'character')} ({fault})"
    near = text[max(0, at - _EXCERPT) : at + _EXCERPT]
    return f"{fault} at {where}, near {shorten(near, _MAX_NAME)!r}"


def _kind(data: object) -> str:
    kinds = {str: "a string", list: "an array", bool: "a boolean", type(None): "null"}
    return kinds.get(type(data), "a number")
