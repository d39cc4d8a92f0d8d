"""A recorded reply with the ids of this run: what the recorded run called otherwise is put in, also across deltas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from glidepath._wire import WireError, encode, loads

_FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DELTAS = ("partial_json", "text", "thinking", "delta", "arguments", "content", "refusal", "reasoning_content")
"""Members that hold a piece of a longer text, in an event that says it is a delta."""
_LEAST = 4
"""Characters of a value that is put in: anything shorter occurs by chance."""


class Substitution:
    """What the recorded run called it, and what this one does."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, recorded: str, live: str) -> None:
        """One pair. The first one counts: a later one would change what was said."""
        if len(recorded) >= _LEAST and recorded not in self._known:
            self._known[recorded] = live
            self._pattern = None

    def apply(self, text: str) -> str:
        """A text with everything put in."""
        if not self._known:
            return text
        if self._pattern is None:
            longest = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])" for one in longest))
        return self._pattern.sub(lambda found: self._known[found[0]], text)

    def rewrite(self, reply: bytes, sizes: list[int], *, is_stream: bool) -> list[bytes]:
        """The reply in its pieces; byte for byte as it was recorded where nothing has to be put in."""
        pieces = _split(reply, sizes)
        if not self._known:
            return pieces
        if not is_stream:
            changed = self._rewrite_whole(reply)
            return pieces if changed is None else [changed]
        frames = _read_frames(reply)
        events = [_read_event(frame) for frame in frames]
        if not self._rewrite_events(events):
            return pieces
        return _regroup(
            [_write_frame(frame, event) for frame, event in zip(frames, events, strict=True)], frames, sizes
        )

    def _rewrite_whole(self, reply: bytes) -> bytes | None:
        try:
            body = loads(reply)
        except (WireError, ValueError, RecursionError):
            return None
        made = self._walk(body)
        return None if made == body else encode(made)

    def _rewrite_events(self, events: list[Any]) -> bool:
        """Put everything into these events; True when that changed one."""
        changed = False
        streams: dict[str, list[tuple[dict[str, Any], str]]] = {}
        for event in events:
            if isinstance(event, dict):
                for key, holder, name in _deltas_of(event):
                    streams.setdefault(key, []).append((holder, name))
        held = {id(holder) for parts in streams.values() for holder, _ in parts}
        for parts in streams.values():
            texts = [holder[name] for holder, name in parts]
            before = "".join(texts)
            after = self.apply(before)
            if after == before:
                continue
            changed = True
            at = 0
            for number, (holder, name) in enumerate(parts):
                size = len(texts[number]) if number < len(parts) - 1 else len(after)
                holder[name] = after[at : at + size]
                at += size
        for event in events:
            if isinstance(event, dict):
                changed |= self._change_others(event, held)
        return changed

    def _change_others(self, holder: dict[str, Any] | list[Any], held: set[int]) -> bool:
        """Put everything into all other texts, in place."""
        changed = False
        value: Any = holder
        for name, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(one, str):
                if id(value) in held and name in _DELTAS:
                    continue
                made = self.apply(one)
                if made != one:
                    value[name] = made
                    changed = True
            elif isinstance(one, dict | list):
                changed |= self._change_others(one, held)
        return changed

    def _walk(self, value: object) -> Any:
        if isinstance(value, str):
            return self.apply(value)
        if isinstance(value, Mapping):
            return {name: self._walk(one) for name, one in value.items()}
        return [self._walk(one) for one in value] if isinstance(value, list) else value


def _deltas_of(event: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """The pieces of longer texts in an event: which text, who holds the piece, under which name."""
    kind = str(event.get("type", ""))
    if kind.endswith(".delta") and isinstance(event.get("delta"), str):  # Responses
        return [(f"{kind} {event.get('item_id')} {event.get('output_index')}", event, "delta")]
    found: list[tuple[str, dict[str, Any], str]] = []
    holder = event.get("delta")
    if kind == "content_block_delta" and isinstance(holder, dict):  # Messages
        found += [
            (f"{event.get('index')} {name}", holder, name) for name in _DELTAS if isinstance(holder.get(name), str)
        ]
    for choice in event.get("choices") or ():  # chat completions
        holder = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(holder, dict):
            continue
        where = str(choice.get("index"))
        found += [(f"{where} {name}", holder, name) for name in _DELTAS if isinstance(holder.get(name), str)]
        for call in holder.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                found.append((f"{where} call {call.get('index')}", function, "arguments"))
    return found


def _read_frames(reply: bytes) -> list[bytes]:
    """The events of a stream with their ends."""
    frames, at = [], 0
    for found in _FRAME_END.finditer(reply):
        frames.append(reply[at : found.end()])
        at = found.end()
    return [*frames, reply[at:]] if at < len(reply) else frames


def _read_event(frame: bytes) -> Any:
    lines = [line[5:].strip() for line in frame.splitlines() if line.startswith(b"data:")]
    if len(lines) != 1:
        return None
    try:
        return loads(lines[0])
    except (WireError, ValueError, RecursionError):
        return None


def _write_frame(frame: bytes, event: object) -> bytes:
    """The event as it was, unless it says something else now."""
    if event is None or event == _read_event(frame):
        return frame
    lines = frame.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith(b"data:"):
            end = line[len(line.rstrip(b"\r\n")) :]
            lines[number] = b"data: " + encode(event) + end
    return b"".join(lines)


def _split(reply: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(reply[at : at + size])
        at += size
    return pieces


def _regroup(made: list[bytes], frames: list[bytes], sizes: list[int]) -> list[bytes]:
    """The new events in the pieces in which the old ones ended."""
    ends, at = [], 0
    for size in sizes:
        at += size
        ends.append(at)
    pieces = [b""] * len(sizes)
    at, piece = 0, 0
    for frame, new in zip(frames, made, strict=True):
        at += len(frame)
        while piece < len(ends) - 1 and ends[piece] < at:
            piece += 1
        pieces[piece] += new
    return pieces
