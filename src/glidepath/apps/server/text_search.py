"""Looks for a text in transcripts: what was asked, what the model wrote and called, what the tools answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.sessions import message_of, read
from glidepath.values import AssistantMessage, ReasoningBlock, StoreError, ThinkingBlock

if TYPE_CHECKING:
    from glidepath.apps.server.store_reader import StoreReader
    from glidepath.spi import Commit, Entry

__all__ = ["TextSearch", "cut_excerpt", "texts_of"]

_BEFORE, _AFTER = 40, 100  # characters of an excerpt beside what was found
_MANY = 200  # commits that are searched beside the requests
_SPOKEN = frozenset({"message", "result"})
_REWRITTEN = "transcript"


def texts_of(message: object) -> Iterator[str]:
    """Everything in a message that a person can read."""
    yield str(getattr(message, "text", "") or "")
    if type(message) is AssistantMessage:
        for block in message.blocks:
            if isinstance(block, ThinkingBlock | ReasoningBlock):
                yield block.text or ""
        for call in message.tool_calls:
            yield f"{call.name} {_wire.encode(call.arguments).decode()}"


def cut_excerpt(text: str, wanted: str) -> str | None:
    """The place where a text has what is wanted, ignoring case, with a few words around it; None without it."""
    folded = text.casefold()
    at = folded.find(wanted.casefold())
    if at < 0:
        return None
    if len(folded) != len(text):  # folding has made it longer: the place is not the same in the text itself
        at = min(at, len(text))
    start, end = max(0, at - _BEFORE), at + len(wanted) + _AFTER
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


class TextSearch:
    """Searches the runs that a reader knows."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.turn = asyncio.Lock()

    async def find_in_session(self, entry: Entry, wanted: str) -> str | None:
        """Where the transcript of a session has a text; None when it has not, or cannot be read."""
        await asyncio.sleep(0)  # others have their turn between two journals
        try:
            _, commits = await self._reader.store.load(entry.session_id)
            if len(commits) > _MANY:
                return await asyncio.to_thread(_find_in_commits, commits, wanted)
            return _find_in_commits(commits, wanted)
        except (StoreError, _wire.WireError, ValueError):  # damaged, or removed meanwhile
            return None

    def find_in_memory(self, run_ids: Sequence[str], wanted: str) -> dict[str, str]:
        """The same for runs that no store keeps, by run id."""
        found: dict[str, str] = {}
        for run_id in run_ids:
            excerpt = _find_in_messages(self._reader.messages_at_hand(run_id) or (), wanted)
            if excerpt is not None:
                found[run_id] = excerpt
        return found


def _find_in_messages(messages: Iterable[Any], wanted: str) -> str | None:
    for message in messages:
        for text in texts_of(message):
            if text and (excerpt := cut_excerpt(text, wanted)) is not None:
                return excerpt
    return None


def _find_in_commits(commits: Iterable[Commit], wanted: str) -> str | None:
    """Commits without the text in their bytes are not decoded. Text with line ends or quotes is escaped in there."""
    plain, escaped = wanted.casefold(), _wire.encode(wanted).decode()[1:-1].casefold()
    for commit in commits:
        body = commit.body.decode(errors="replace").casefold()
        if escaped not in body and plain not in body:  # the arguments of a call are JSON, and shown as such
            continue
        for record in read(commit):
            payload = bytes(record.payload)
            if record.kind in _SPOKEN:
                messages = [message_of(payload)]
            elif record.kind == _REWRITTEN:
                messages = [message_of(bytes(raw)) for raw in _wire.decode(payload, list[_wire.Raw])]
            else:
                continue
            if (excerpt := _find_in_messages(messages, wanted)) is not None:
                return excerpt
    return None
