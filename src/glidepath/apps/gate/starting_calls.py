"""Which program is it, and which of its calls has started this sub-agent?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.attribution import headers_of
from glidepath.values import AssistantMessage

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun
    from glidepath.apps.gate.gate_calls import GateCall

_PRODUCT = re.compile(r"[A-Za-z][A-Za-z0-9._ -]{0,39}")
_LEAST = 12
"""Characters of a prompt that are enough to recognize it."""
_UNKNOWN = "agent"


def program_of(call: GateCall) -> str:
    """The program that calls: one that we know, else what its User-Agent says."""
    if call.session.known.name:
        return call.session.known.name
    said = headers_of(call.request.headers).get("user-agent", "")
    found = _PRODUCT.match(said.partition("/")[0].strip())
    return found.group().strip().lower().replace(" ", "-") if found else _UNKNOWN


def starting_call(parent: ForeignRun, prompt: str) -> str:
    """The call of the parent's last reply that has the sub-agent's prompt in its arguments; empty when none has."""
    wanted = " ".join(prompt.split())
    reply = next((one for one in reversed(parent.conversation.messages) if type(one) is AssistantMessage), None)
    if reply is None or len(wanted) < _LEAST:
        return ""
    taken = {child.call_id for child in parent.children}
    for call in reply.tool_calls:
        if call.id not in taken and any(_matches(text, wanted) for text in _texts(call.arguments)):
            return call.id
    return ""


def _matches(text: str, wanted: str) -> bool:
    given = " ".join(text[:2000].split())
    return len(given) >= _LEAST and (given.startswith(wanted) or wanted.startswith(given[: len(wanted)]))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return []
