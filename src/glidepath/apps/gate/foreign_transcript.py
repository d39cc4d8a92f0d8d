"""The conversation of a foreign agent as the journal has it: what every request tells again is written once.

A client sends its whole history with every request. What a commit needs is the difference to the last one: a few
messages at its end, nearly always. A client that has cut or rewritten its history is taken at its word, too, but not at
any price: see `ForeignTranscript.take`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import encode, replace
from glidepath.models import call_of
from glidepath.models.formats.read_anthropic import from_anthropic
from glidepath.models.formats.read_gemini import from_gemini
from glidepath.models.formats.read_openai import from_openai_chat, from_openai_responses
from glidepath.sessions import Items
from glidepath.tools import clean
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    CustomMessage,
    FileBlock,
    ImageBlock,
    Message,
    ReplyInfo,
    StopReason,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
    codec,
)

if TYPE_CHECKING:
    from glidepath.apps.gate.passage import GovernedPassage

OWN = "gate"
"""The origin of what the gate itself wrote in a model's place."""
LONGEST_TEXT = 200_000
"""Characters of one text that are kept: its two ends."""
LARGEST_DATA = 64 << 10
"""Bytes of a picture or a document that are kept."""
FEW = 16
"""A conversation of this many messages is written again without a second thought."""
_NOISE = 4
"""Lines by which two system prompts may differ and still be the same: some programs count or date theirs."""
_ENDS = {"max_tokens": StopReason.MAX_TOKENS, "length": StopReason.MAX_TOKENS, "MAX_TOKENS": StopReason.MAX_TOKENS}
_ODD = (ConfigurationError, KeyError, TypeError, ValueError, AttributeError, RecursionError)


class ForeignTranscript:
    """One conversation. `messages` is what the journal has, our own notices included."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self._told: list[Message] | None = None
        """The client's newest version, when the journal has another one."""
        self._added = 0
        """Messages that came since all of it was last written."""

    def take(self, told: Sequence[Message]) -> list[Message] | None:
        """Take over what a request tells. The new messages; None when all of it must be written again.

        Rewriting costs the length of the conversation. It is done at once for a short one, for one that the client has
        cut, and when as much has come since the last time; until then only what is new is added, and `settle` does the
        rest. So a client that changes something old in every request does not make the journal grow with the square.
        """
        known = [message for message in self.messages if not _is_notice(message)]
        same = _common_length(known, told)
        self._told = None
        if same == len(known):
            return self._add(told[same:])
        if len(told) < len(known) or len(told) <= FEW or self._added * 2 >= len(told):
            self._rewrite(told, same)
            return None
        self._told = list(told)
        return self._add(told[_place_after_reply(known, told) :])

    def add(self, message: Message) -> Message:
        """One more message: a reply, or a notice of ours."""
        if self._told is not None and not _is_notice(message):
            self._told.append(message)
        return self._add([message])[0]

    def settle(self) -> bool:
        """True when all of it must be written now, because the client's version differs from the journal's."""
        told, self._told = self._told, None
        if told is None:
            return False
        self._rewrite(told, _common_length([one for one in self.messages if not _is_notice(one)], told))
        return True

    def _add(self, new: Sequence[Message]) -> list[Message]:
        kept = [limit_message(message) for message in new]
        self.messages += kept
        self._added += len(kept)
        return kept

    def _rewrite(self, told: Sequence[Message], same: int) -> None:
        """The client's version from the first difference on; our notices come before that."""
        kept: list[Message] = []
        left = same
        for message in self.messages:
            if _is_notice(message):
                kept.append(message)
            elif left:
                kept.append(message)
                left -= 1
        self.messages = [*kept, *[limit_message(message) for message in told[same:]]]
        self._added = 0

    def records(self) -> Items:
        """All of it, as one record."""
        return [("transcript", list(self.messages))]


def _is_notice(message: Message) -> bool:
    return type(message) is UserMessage and message.internal


def _common_length(known: Sequence[Message], told: Sequence[Message]) -> int:
    same = 0
    for mine, theirs in zip(known, told, strict=False):
        if not _is_same(mine, theirs) and not _is_same(mine, limit_message(theirs)):
            break
        same += 1
    return same


def _is_same(mine: Message, theirs: Message) -> bool:
    """Whether a client means this message of ours. Of a reply it tells text and calls again, and little else."""
    if mine.__class__ is not theirs.__class__:
        return False
    if isinstance(mine, AssistantMessage) and isinstance(theirs, AssistantMessage):
        return mine.text.strip() == theirs.text.strip() and _has_same_calls(mine, theirs)
    if isinstance(mine, SystemMessage) and isinstance(theirs, SystemMessage):
        return mine.content == theirs.content or _differ_little(mine.content, theirs.content)
    if isinstance(mine, ToolResultMessage) and isinstance(theirs, ToolResultMessage):
        return mine.call_id == theirs.call_id and mine.content == theirs.content
    if isinstance(mine, UserMessage) and isinstance(theirs, UserMessage):
        return mine.content == theirs.content
    return mine == theirs


def _has_same_calls(mine: AssistantMessage, theirs: AssistantMessage) -> bool:
    """Gemini's calls often have no id: then the reader gives them one, and what they ask for must do."""
    ours, others = mine.tool_calls, theirs.tool_calls
    return len(ours) == len(others) and all(
        one.name == other.name and (one.id == other.id or one.arguments == other.arguments)
        for one, other in zip(ours, others, strict=True)
    )


def _differ_little(mine: str, theirs: str) -> bool:
    before, after = set(mine.splitlines()), set(theirs.splitlines())
    return len(before ^ after) <= _NOISE < len(before & after)


def _place_after_reply(known: Sequence[Message], told: Sequence[Message]) -> int:
    """Where a client's history continues behind the last reply that we know; else its last message."""
    reply = next((message for message in reversed(known) if type(message) is AssistantMessage), None)
    for place in range(len(told) - 1, -1, -1):
        if reply is not None and _is_same(reply, told[place]):
            return place + 1
    return max(0, len(told) - 1)


# --- reading what a request tells ----------------------------------------------------------------------------------


def read_conversation(dialect: str, body: Mapping[str, Any]) -> list[Message]:
    """The messages of a request. What no reader understands is kept as the client wrote it, and never an error."""
    try:
        found = _READERS[dialect](body)
    except _ODD:
        return _read_one_by_one(dialect, body)
    return found if all(map(_is_sound, found)) else _read_one_by_one(dialect, body)


def _is_sound(message: Message) -> bool:
    """True when texts are texts: a reader takes over what a client has put in their place."""
    if isinstance(message, SystemMessage):
        return isinstance(message.content, str)
    if isinstance(message, AssistantMessage):
        return all(map(_is_sound_block, message.blocks)) and all(map(_is_sound_call, message.tool_calls))
    if isinstance(message, UserMessage | ToolResultMessage):
        content = message.content
        return isinstance(content, str) or (isinstance(content, list | tuple) and all(map(_is_sound_block, content)))
    return True


def _is_sound_block(block: Any) -> bool:
    if isinstance(block, TextBlock):
        return isinstance(block.text, str)
    if isinstance(block, ImageBlock | FileBlock):
        has_data = block.data is None or isinstance(block.data, str | bytes)
        return has_data and (block.url is None or isinstance(block.url, str)) and isinstance(block.media_type, str)
    return True


def _is_sound_call(call: Any) -> bool:
    return isinstance(call.id, str) and isinstance(call.name, str) and isinstance(call.arguments, Mapping)


def _read_responses(body: Mapping[str, Any]) -> list[Message]:
    given, told = body.get("input"), body.get("instructions")
    head: list[Message] = [SystemMessage(told)] if isinstance(told, str) and told else []
    if isinstance(given, str):
        return [*head, UserMessage(given)]
    return [*head, *from_openai_responses(given or ())]


_READERS: dict[str, Callable[[Mapping[str, Any]], list[Message]]] = {
    "anthropic": lambda body: from_anthropic(_only(body, "system", "messages")),
    "openai-chat": lambda body: from_openai_chat(body.get("messages") or ()),
    "openai-responses": _read_responses,
    "gemini": lambda body: from_gemini(_only(body, "systemInstruction", "contents")),
}
_LISTS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}


def _only(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}


def _read_one_by_one(dialect: str, body: Mapping[str, Any]) -> list[Message]:
    field = _LISTS[dialect]
    items = body.get(field)
    found: list[Message] = []
    for number, item in enumerate(items if isinstance(items, list) else [items]):
        part = {**body, field: [item]} if number == 0 else {field: [item]}
        try:
            told = _READERS[dialect](part)
        except _ODD:
            told = [CustomMessage(dialect, item)]
        found += told if all(map(_is_sound, told)) else [CustomMessage(dialect, item)]
    return found


# --- what is kept of a message --------------------------------------------------------------------------------------


def limit_message(message: Message) -> Message:
    """The message as it is kept: no text or picture without end, and nothing that cannot be written."""
    if isinstance(message, SystemMessage):
        return message if _fits(message.content) else SystemMessage(_short(message.content))
    if isinstance(message, UserMessage | ToolResultMessage):
        limited = _limit_content(message)
        return limited if _can_be_written(limited) else _summary_of(limited)
    return message if _is_storable(message) else _summary_of(message)


def _limit_content(message: UserMessage | ToolResultMessage) -> Message:
    content = message.content
    if isinstance(content, str):
        return message if _fits(content) else replace(message, content=_short(content))
    blocks: tuple[Any, ...] = tuple([_limit_block(block) for block in content])
    unchanged = all(new is old for new, old in zip(blocks, content, strict=True))
    return message if unchanged else replace(message, content=blocks)


def _fits(text: str) -> bool:
    return len(text) <= LONGEST_TEXT and clean(text) is text


def _short(text: str) -> str:
    half = LONGEST_TEXT // 2
    if len(text) > LONGEST_TEXT:
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters are not kept ...]\n{text[-half:]}"
    return clean(text)


def _limit_block(block: Any) -> Any:
    if isinstance(block, TextBlock):
        return block if _fits(block.text) else replace(block, text=_short(block.text))
    if isinstance(block, ImageBlock | FileBlock) and block.data is not None and len(block.data) > LARGEST_DATA:
        return TextBlock(f"[{clean(block.media_type)[:80]}, {len(block.data)} bytes, not kept]")
    if isinstance(block, ImageBlock | FileBlock) and block.url is not None and len(block.url) > LARGEST_DATA:
        return TextBlock(f"[{clean(block.media_type)[:80]} by an address of {len(block.url)} characters, not kept]")
    return block


def _is_storable(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        plain = all(isinstance(block, TextBlock) and _fits(block.text) for block in message.blocks)
        if plain and message.error is None and message.info is None:
            return True
    return _can_be_written(message, 4 * LONGEST_TEXT)


def _can_be_written(message: Message, most: float = inf) -> bool:
    try:
        return len(codec.encode(message)) <= most
    except Exception:  # half of a surrogate pair, a number without end, something too deep
        return False


def _summary_of(message: Message) -> Message:
    """What is left of a message that cannot be kept as it is."""
    if isinstance(message, AssistantMessage):
        blocks: list[Any] = [TextBlock(_short(message.text))] if message.text else []
        blocks += [
            call_of(clean(call.id)[:200], clean(call.name)[:200], _short_arguments(call.arguments))
            for call in message.tool_calls
        ]
        return AssistantMessage(tuple(blocks), message.stop_reason, message.usage, None, message.model)
    if isinstance(message, ToolResultMessage):
        content = message.content if isinstance(message.content, str) else repr(message.content)
        return ToolResultMessage(clean(message.call_id)[:200], clean(message.tool_name)[:200], _short(content))
    if isinstance(message, UserMessage):
        return UserMessage(_short(repr(message.content)))
    if isinstance(message, UnknownMessage):
        return CustomMessage("unknown")
    kind = clean(str(getattr(message, "kind", "custom")))[:80]
    return CustomMessage(kind, clean(repr(getattr(message, "payload", None)))[:1000])


def _short_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        text = encode(arguments).decode()
    except Exception:
        text = repr(arguments)
    return {"not_kept": clean(text)[:2000]}


# --- replies --------------------------------------------------------------------------------------------------------


def reply_of(passage: GovernedPassage) -> AssistantMessage | None:
    """The reply of a call as the client has it, our own words in it marked as ours; None when nothing came."""
    reader = passage.reader
    blocks: list[Any] = [TextBlock(reader.text)] if reader.text else []
    note = reader.client_text[len(reader.text) :]
    if note:
        blocks.append(TextBlock(note, origins=(OWN,)))
    # Calls that were hidden from the client never happened.
    shown = [one for one in reader.calls if not reader._is_hidden(one.name)]  # noqa: SLF001 - of the same house
    blocks += [call_of(one.id, one.name, one.arguments) for one in shown]
    if not blocks and not reader.is_complete:
        return None
    return AssistantMessage(
        tuple(blocks),
        _stop_of(passage, has_calls=bool(shown)),
        error=None if reader.failure is None else clean(reader.failure)[:500],
        model=clean(passage.call.facts.model)[:200],
        info=reader.info,
    )


def _stop_of(passage: GovernedPassage, *, has_calls: bool) -> StopReason:
    reader = passage.reader
    if reader.failure is not None:
        return StopReason.ERROR
    if has_calls:
        return StopReason.TOOL_USE
    if not (reader.is_complete or passage.is_cut):
        return StopReason.ABORTED
    if reader.stop == "refusal":
        return StopReason.REFUSAL
    return _ENDS.get(reader.stop or "", StopReason.END_TURN)


def own_reply(text: str) -> AssistantMessage:
    """A reply that no model wrote."""
    return AssistantMessage((TextBlock(text, origins=(OWN,)),), info=ReplyInfo(origins=(OWN,)))
