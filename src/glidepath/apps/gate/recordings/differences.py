"""The first place where a request is not what was recorded, and what that probably means."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from glidepath._wire import Value
from glidepath.apps.gate.recordings.scrubbing import star_keys
from glidepath.apps.gate.recordings.volatile import Place

_AROUND = 60
_MOST_SHOWN = 160
_FEW = 5
_RESULT = re.compile(r"tool_result|function_call_output|custom_tool_call_output|\btool\b")


class _Absent:
    """What is not there."""


_ABSENT = _Absent()


class Difference(Value, frozen=True, kw_only=True):
    """Why a request was not answered from the recording."""

    sentence: str
    """What is probably the matter, and what to do."""
    field: str = ""
    """Where the request differs, as `messages[3].content`."""
    recorded: str = ""
    live: str = ""
    call: int = 0
    """The recorded call it was compared with."""


def find_first(recorded: object, live: object, at: str = "") -> tuple[str, str, str] | None:
    """The first field that differs, with an excerpt of both; None when none does."""
    if isinstance(recorded, Mapping) and isinstance(live, Mapping):
        names = [*recorded, *[one for one in live if one not in recorded]]
        pairs = [
            (f"{at}.{name}" if at else str(name), recorded.get(name, _ABSENT), live.get(name, _ABSENT))
            for name in names
        ]
    elif isinstance(recorded, list) and isinstance(live, list):
        both = itertools.zip_longest(recorded, live, fillvalue=_ABSENT)
        pairs = [(f"{at}[{index}]", one, other) for index, (one, other) in enumerate(both)]
    else:
        return _compare(recorded, live, at)
    return next((found for place, one, other in pairs if (found := find_first(one, other, place)) is not None), None)


def _compare(recorded: object, live: object, at: str) -> tuple[str, str, str] | None:
    if type(recorded) is type(live) and recorded == live:
        return None
    if isinstance(recorded, str) and isinstance(live, str):
        pairs = enumerate(zip(recorded, live, strict=False))
        start = next((number for number, (one, other) in pairs if one != other), min(len(recorded), len(live)))
        return at, _cut(recorded, start), _cut(live, start)
    return at, _show(recorded), _show(live)


class RequestComparison(Value, frozen=True, kw_only=True):
    """Two requests without what is volatile, the runs they are of, and the first place where they differ."""

    place: str
    recorded: Any
    live: Any
    ours: Place
    theirs: Place


def explain(found: RequestComparison) -> str:
    """What the difference probably means, and what to do."""
    ours, theirs = found.ours, found.theirs
    if ours.agent != theirs.agent:
        return f"the recording is of {ours.agent or 'an unknown agent'}, and this is {theirs.agent or 'another one'}"
    if ours.version and theirs.version and ours.version != theirs.version:
        return (
            f"another release of the agent: the recording is of {ours.version}, and this is {theirs.version}. Install "
            f"{ours.version} to replay it"
        )
    return _explain_tools(found) or _explain_place(found)


def _explain_tools(found: RequestComparison) -> str:
    before, now = list(_tools_of(found.recorded)), list(_tools_of(found.live))
    if missing := [name for name in before if name not in now]:
        return f"tools are missing that the recording has: {_list(missing)}. Connect the servers that bring them"
    if added := [name for name in now if name not in before]:
        return f"there are tools that the recording does not have: {_list(added)}. Leave out what brings them"
    return ""


def _explain_place(found: RequestComparison) -> str:
    ours, theirs = found.ours.folder, found.theirs.folder
    if _is_result(found.place, found.recorded):
        moved = f"; the recording was made in {ours}, and this is {theirs}" if ours != theirs else ""
        return (
            "a tool gave another result: the folder is not as it was when the recording began, or the tool answers "
            f"differently each time. Name a folder that is as it was then with --workspace{moved}"
        )
    if ours and theirs and ours != theirs:
        return f"another working folder: the recording was made in {ours}, and this is {theirs}"
    if re.match(r"(?:messages|input|contents)\[\d+\]", found.place):
        return "the conversation is another one: give the command the task and the flags that it was recorded with"
    return "the request is another one: give the command the settings and the flags that it was recorded with"


def _is_result(place: str, body: object) -> bool:
    """True for a place inside the result of a tool."""
    steps = re.findall(r"[^.\[\]]+", place)
    value = body
    for step in steps:
        if isinstance(value, Mapping):
            if _RESULT.search(f"{value.get('type')} {value.get('role')}"):
                return True
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False
    return False


def _tools_of(body: object) -> Iterator[str]:
    """The names of the tools a request offers, in any dialect."""
    if isinstance(body, Mapping):
        items = body.get("input")
        for holder in (body, *(items if isinstance(items, list) else ())):
            tools = holder.get("tools") if isinstance(holder, Mapping) else None
            yield from _names_in(tools if isinstance(tools, list) else [])


def _names_in(tools: list[Any]) -> Iterator[str]:
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        inner = tool.get("function")
        name = tool.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
        if isinstance(name, str):
            yield name
        for member in ("tools", "functionDeclarations"):
            if isinstance(tool.get(member), list):
                yield from _names_in(tool[member])


def _list(names: list[str]) -> str:
    few = ", ".join(names[:_FEW])
    return few if len(names) <= _FEW else f"{few} and {len(names) - _FEW} more"


def _show(value: object) -> str:
    if value is _ABSENT:
        return "(not there)"
    text = star_keys(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _cut(text: str, start: int) -> str:
    first, last = max(0, start - _AROUND // 2), start + _AROUND
    shown = star_keys(text)[first:last].replace("\n", "\\n").replace("\t", "\\t")
    return f"{'...' if first else ''}{shown}{'...' if last < len(text) else ''}"
