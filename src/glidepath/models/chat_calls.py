"""Which call a fragment of a chat completion belongs to: some servers give no index, no id, or the index 0 to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath import _wire


class ChatCall:
    """A call that is being written. `place` is its number in the reply."""

    __slots__ = ("arguments", "id", "name", "place")

    def __init__(self, place: int, call_id: str) -> None:
        self.place = place
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []

    def is_over(self, call_id: str, written: str) -> bool:
        """Whether a fragment that names a tool begins another call: it has another id, or new arguments."""
        if call_id and self.id:
            return call_id != self.id
        if not written.lstrip().startswith("{"):
            return False
        try:
            return type(_wire.loads("".join(self.arguments))) is dict
        except _wire.WireError:
            return False


class ChatCalls:
    """The calls of one reply."""

    __slots__ = ("_by_key", "_newest", "all")

    def __init__(self) -> None:
        self.all: list[ChatCall] = []
        self._by_key: dict[Any, ChatCall] = {}
        self._newest: ChatCall | None = None

    def add(self, fragment: Mapping[str, Any]) -> tuple[ChatCall, str, str]:
        """The call of this fragment, and what the fragment adds: a name and arguments."""
        function = fragment.get("function") or fragment.get("custom") or {}
        call_id, name = str(fragment.get("id") or ""), function.get("name") or ""
        given = function.get("arguments", function.get("input"))
        written = given if isinstance(given, str) else _wire.encode(given).decode() if given else ""
        key = fragment.get("index")
        call = self._by_key.get(key)
        if call is None and key is None and not name:
            call = self._newest
        if call is None or (name and call.is_over(call_id, written)):
            call = self._by_key[key] = ChatCall(len(self.all), call_id)
            self.all.append(call)
        self._newest = call
        call.id = call.id or call_id
        call.name = call.name or str(name)
        call.arguments.append(written)
        return call, name, written
