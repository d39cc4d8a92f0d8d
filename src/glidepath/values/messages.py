"""The conversation: messages, the blocks inside them, the deltas a model streams, and what they cost in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from glidepath import _wire
from glidepath._wire import Value
from glidepath.values.errors import ConfigurationError

__all__ = [
    "CLIENT",
    "IMPORTED",
    "REDACTED",
    "AssistantMessage",
    "Citation",
    "CustomMessage",
    "Delta",
    "FileBlock",
    "ImageBlock",
    "Message",
    "ReasoningBlock",
    "ReasoningDelta",
    "ReplyInfo",
    "StopReason",
    "StreamEnd",
    "SystemMessage",
    "TextBlock",
    "TextDelta",
    "ThinkingBlock",
    "ThinkingDelta",
    "TokenLogprob",
    "ToolCall",
    "ToolCallDelta",
    "ToolResultMessage",
    "UnknownMessage",
    "Usage",
    "UserMessage",
    "origins_of",
    "own_words",
]


class StopReason(str, Enum):
    """Why a model stopped writing."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    ERROR = "error"
    ABORTED = "aborted"
    OTHER = "other"
    PAUSE_TURN = "pause_turn"
    """The provider's own tools need another request to finish: the reply goes back as it is."""

    @classmethod
    def parse(cls, word: str | None) -> StopReason:
        """The reason for a provider's word; an unknown word is OTHER."""
        try:
            return cls(word)
        except ValueError:
            return cls.OTHER


class Usage(Value, frozen=True, gc=False):
    """Tokens of one or more calls. `input` includes cached, `output` includes reasoning."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of the input that came from the provider's prompt cache; None without any input."""
        return self.cache_read / self.input if self.input else None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )


# --- blocks ---------------------------------------------------------------------------------------------------


class TextBlock(Value, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="text"):
    """Visible text."""

    text: str
    origins: tuple[str, ...] = ()
    """In a message of the user: the untrusted sources of this part, such as a file that the user has attached."""


class ImageBlock(Value, frozen=True, gc=False, tag_field="type", tag="image"):
    """An image, as bytes or by address. `ImageBlock.read(path)` reads one from a file."""

    media_type: str
    data: bytes | None = None
    url: str | None = None

    @classmethod
    def read(cls, path: str | PathLike[str], media_type: str | None = None) -> ImageBlock:
        """The picture at `path`, read now; raises `ConfigurationError` for what is not a picture, or `OSError`."""
        from glidepath.values.media_types import find_media_type

        file, found = find_media_type(path, media_type)
        if not found.startswith("image/"):
            hint = "use a FileBlock for a document, a recording or a video" if found else "pass media_type="
            raise ConfigurationError(f"{str(path)[-200:]!r} is not a picture ({found or 'unknown type'}); {hint}")
        return cls(found, data=file.read_bytes())


class FileBlock(Value, frozen=True, gc=False, tag_field="type", tag="file"):
    """A document, a recording or a video, as bytes or by address. `FileBlock.read(path)` reads one from a file."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None

    @property
    def kind(self) -> str:
        """`document`, `audio` or `video`; empty for a media type that no provider is known to take."""
        main, _, sub = self.media_type.lower().partition("/")
        if main in ("audio", "video") and sub:
            return main
        from glidepath.values.media_types import DOCUMENTS

        return "document" if (main == "text" and sub) or self.media_type.lower() in DOCUMENTS else ""

    @classmethod
    def read(cls, path: str | PathLike[str], media_type: str | None = None) -> FileBlock:
        """The file at `path`, read now; raises `ConfigurationError` when its media type is unknown, or `OSError`."""
        from glidepath.values.media_types import find_media_type

        file, found = find_media_type(path, media_type)
        if not cls(found).kind:
            hint = "; use an ImageBlock for a picture" if found.startswith("image/") else "; pass media_type="
            raise ConfigurationError(f"{str(path)[-200:]!r}: no provider is known to take {found or 'this type'}{hint}")
        return cls(found, data=file.read_bytes(), name=file.name)


class ThinkingBlock(Value, frozen=True, gc=False, tag_field="type", tag="thinking"):
    """Thoughts a model wrote between visible tags, filtered from its text."""

    text: str


class ReasoningBlock(Value, frozen=True, gc=False, tag_field="type", tag="reasoning"):
    """Provider-native reasoning. `opaque` is kept byte for byte, for replay to the same vendor."""

    text: str = ""
    opaque: str = ""
    vendor: str = ""


class ToolCall(Value, frozen=True, gc=False, tag_field="type", tag="tool_call"):
    """One call the model asks for. When its arguments were not a JSON object, `malformed` keeps what it wrote.

    `arguments` is a copy for the reader: nobody who is shown a call can change what runs. A call that a model
    streamed keeps its arguments as the JSON it wrote, a fourth of the size. They are written back byte for byte.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None = None

    @property
    def stored(self) -> dict[str, Any] | _wire.Raw:
        """The arguments as they are kept: plain data, or the JSON of one object."""
        return stored_arguments(self)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if type(other) is not ToolCall:
            return NotImplemented
        mine, theirs = (self.id, self.name, self.malformed), (other.id, other.name, other.malformed)
        return mine == theirs and self.arguments == other.arguments

    __hash__ = None  # type: ignore[assignment] # as any value with a dict in it

    def __repr__(self) -> str:
        return f"ToolCall({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = [("id", self.id), ("name", self.name), ("arguments", self.arguments)]
        return shown if self.malformed is None else [*shown, ("malformed", self.malformed)]


stored_arguments: Any = ToolCall.__dict__["arguments"].__get__
"""The arguments of a call as they are kept: the field itself, which the property below hides."""


def _read(call: ToolCall) -> dict[str, Any]:
    kept: Any = stored_arguments(call)
    try:
        return _wire.loads(kept) if type(kept) is _wire.Raw else _wire.thaw(kept)  # type: ignore[no-any-return]
    except RecursionError:  # an application made it, and nobody can write it: it never runs
        return kept  # type: ignore[no-any-return]


ToolCall.arguments = property(_read)  # type: ignore[assignment]


UserBlock: TypeAlias = TextBlock | ImageBlock | FileBlock
ResultBlock: TypeAlias = TextBlock | ImageBlock | FileBlock
AssistantBlock: TypeAlias = TextBlock | ThinkingBlock | ReasoningBlock | ToolCall


def is_visible(text: str) -> bool:
    """True when a person who reads the text sees anything: blanks and zero-width characters are nothing."""
    return text[:1].isalnum() or any(char.isprintable() and not char.isspace() for char in text)


def _join_text(blocks: Sequence[Any]) -> str:
    if len(blocks) == 1:
        only = blocks[0]
        return only.text if type(only) is TextBlock else ""
    return "".join([block.text for block in blocks if type(block) is TextBlock])


# --- messages -------------------------------------------------------------------------------------------------


class SystemMessage(Value, frozen=True, gc=False, tag_field="role", tag="system"):
    """Instructions from the application."""

    content: str
    role: ClassVar[Literal["system"]] = "system"

    @property
    def text(self) -> str:
        """The instructions."""
        return self.content


class UserMessage(Value, frozen=True, gc=False, tag_field="role", tag="user"):
    """What the person says; or, when `internal`, what the runtime tells the model and hides from people."""

    content: str | tuple[UserBlock, ...]
    internal: bool = False
    reason: str | None = None
    origins: tuple[str, ...] = ()
    """The untrusted sources its text may come from; empty when the person, or the application, wrote it."""
    role: ClassVar[Literal["user"]] = "user"

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return self.content if isinstance(self.content, str) else _join_text(self.content)


class TokenLogprob(Value, frozen=True, gc=False, omit_defaults=True):
    """One token of a reply and the logarithm of its probability; `top` are the likeliest ones at its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Media(Value, frozen=True, gc=False, omit_defaults=True):
    """Tokens of sound and pictures in a call, which are part of its usage; `cached` ones are part of the input."""

    audio_input: int = 0
    audio_cached: int = 0
    audio_output: int = 0
    image_input: int = 0
    image_cached: int = 0
    image_output: int = 0


class ReplyInfo(Value, frozen=True, gc=False, omit_defaults=True):
    """What a provider says about a reply beside the reply; empty where it says nothing."""

    response_id: str = ""
    request_id: str = ""
    model: str = ""
    """The version of the model that answered."""
    service_tier: str = ""
    stop_sequence: str = ""
    """The stop sequence at which it stopped."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The tokens of its visible text with their probabilities, where `logprobs` asked for them."""
    web_searches: int = 0
    """Searches of the web that the provider made for it and bills beside the tokens."""
    origins: tuple[str, ...] = ()
    """The untrusted sources of a reply: what a hosted tool has read for it, or who has made it instead of a model."""
    media: Media | None = None
    """Sound and pictures in the call, where the provider counts them."""
    billed: float | None = None
    """Dollars that the provider says the call cost, where it says so."""
    code_sessions: int = 0
    """Containers in which the provider ran programs of the reply, and which it may bill."""


class Citation(Value, frozen=True, gc=False, omit_defaults=True):
    """A source that a reply cites. `start` and `end` are places in the reply's text, where the provider gives them."""

    url: str = ""
    title: str = ""
    quote: str = ""
    start: int | None = None
    end: int | None = None


class _One(Value, frozen=True, gc=False, array_like=True):
    only: Any


class Two(Value, frozen=True, gc=False, array_like=True):
    """Two blocks, as a message keeps them: see `pack_blocks`."""

    first: Any
    second: Any


class _Cited(Value, frozen=True):
    cites: tuple[Citation, ...]


class AssistantMessage(Value, frozen=True, gc=False, tag_field="role", tag="assistant"):
    """One reply of a model.

    One or two blocks that a model streamed are kept without a tuple (`pack_blocks`): a transcript is thousands of
    these, and nothing of it has to be looked at by the garbage collector then. They are still written.
    """

    blocks: tuple[AssistantBlock, ...] = ()
    stop_reason: StopReason = StopReason.END_TURN
    usage: Usage | None = None
    error: str | None = None
    model: str | None = None
    info: ReplyInfo | None = None
    role: ClassVar[Literal["assistant"]] = "assistant"

    @property
    def text(self) -> str:
        """The visible text."""
        kept = _kept(self)
        if kept.__class__ is Two and kept.first.__class__ is TextBlock and kept.second.__class__ is ToolCall:
            return kept.first.text  # as nearly every reply with a call
        return _join_text(self.blocks)

    @property
    def origins(self) -> tuple[str, ...]:
        """The untrusted sources of a reply that somebody else sent; a reply of the model has none of its own."""
        return () if self.info is None else self.info.origins

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls it asks for, in source order."""
        return tuple([block for block in self.blocks if type(block) is ToolCall])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources it cites, in the order in which the provider names them."""
        found: list[Citation] = []
        for block in self.blocks:
            if type(block) is ReasoningBlock and '"cites":' in block.opaque:
                try:
                    found += _wire.decode(block.opaque, _Cited).cites
                except _wire.WireError:
                    continue  # written by somebody else
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        if type(other) is not AssistantMessage:
            return NotImplemented
        return _parts(self) == _parts(other)

    def __hash__(self) -> int:
        return hash(_parts(self))

    def __repr__(self) -> str:
        shown = [f"{name}={part!r}" for name, part in self.__rich_repr__()]
        if self.info is None:
            shown.pop()
        return f"AssistantMessage({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(zip(self.__struct_fields__, _parts(self), strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return AssistantMessage, _parts(self)  # how it is kept here is nobody else's affair


_kept: Any = AssistantMessage.__dict__["blocks"].__get__  # as above: the field behind the property


def _unpack_blocks(message: AssistantMessage) -> tuple[AssistantBlock, ...]:
    kept: Any = _kept(message)
    return _wire.astuple(kept) if type(kept) is Two or type(kept) is _One else kept


def _parts(message: AssistantMessage) -> tuple[Any, ...]:
    return message.blocks, message.stop_reason, message.usage, message.error, message.model, message.info


AssistantMessage.blocks = property(_unpack_blocks)  # type: ignore[assignment]


def pack_blocks(blocks: Sequence[AssistantBlock]) -> Any:
    """Blocks as a message that is made here keeps them."""
    if len(blocks) == 2:  # noqa: PLR2004 - most replies: a text and a call
        return Two(*blocks)
    return _One(*blocks) if len(blocks) == 1 else tuple(blocks)


class ToolResultMessage(Value, frozen=True, gc=False, tag_field="role", tag="tool_result"):
    """The one result of one tool call. `details` and `narration` are for people and never sent to the model."""

    call_id: str
    tool_name: str
    content: str | tuple[ResultBlock, ...]
    is_error: bool = False
    kind: str | None = None
    details: Any = None
    narration: str | None = None
    origins: tuple[str, ...] = ()
    """The untrusted sources its text comes from: the tool, and what the children of the call have read."""
    raised_at: str | None = None
    """Where the tool raised an error, as module and line: `app.tools:42`. None when it did not, or nobody knows."""
    rule: str | None = None
    """The rule that has decided whether the call runs, such as `allow rule shell(npm test *)`; None: there was none."""
    role: ClassVar[Literal["tool_result"]] = "tool_result"

    @property
    def text(self) -> str:
        """The text the model reads."""
        return self.content if isinstance(self.content, str) else _join_text(self.content)


class CustomMessage(Value, frozen=True, gc=False, tag_field="role", tag="custom"):
    """Something an application keeps in the transcript; never sent to a model."""

    kind: str
    payload: Any = None
    role: ClassVar[Literal["custom"]] = "custom"

    @property
    def text(self) -> str:
        """Empty: the payload belongs to the application."""
        return ""


class UnknownMessage(Value, frozen=True, gc=False, tag_field="role", tag="unknown"):
    """A message of a kind this version does not know: kept as it was read, never sent."""

    kind: str
    raw: bytes
    role: ClassVar[Literal["unknown"]] = "unknown"

    @property
    def text(self) -> str:
        """Empty: this version cannot read it."""
        return ""


def place_result(
    reply: AssistantMessage, results: Sequence[ToolResultMessage], result: ToolResultMessage
) -> tuple[ToolResultMessage, ...]:
    """The results of a reply with one more: in the order of its calls."""
    order = {call.id: place for place, call in enumerate(reply.tool_calls)}
    return tuple(sorted([*results, result], key=lambda one: order[one.call_id]))


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage | CustomMessage | UnknownMessage

MessageT = TypeVar("MessageT", bound=Message)

REDACTED = "redacted"
"""The origin of a message that was read from a journal and is not what was said: a redaction hook has changed it."""
CLIENT = "client"
"""The origin of replies that a client sends as earlier ones of the assistant: nobody here knows what they quote."""
IMPORTED = "imported session"
"""The origin of every message of a session that was imported, the user's included: anybody may have written them."""


def origins_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """The untrusted sources of all these messages, each once, in the order in which they were first read."""
    found: dict[str, None] = {}
    for message in messages:
        if isinstance(message, ToolResultMessage | UserMessage | AssistantMessage) and message.origins:
            found.update(dict.fromkeys(message.origins))
        if isinstance(message, UserMessage) and not isinstance(message.content, str):
            found.update(dict.fromkeys([name for part in find_untrusted_parts(message) for name in part.origins]))
    return tuple(found)


def find_untrusted_parts(message: UserMessage) -> list[TextBlock]:
    """The parts of a message that the person did not write."""
    blocks = () if isinstance(message.content, str) else message.content
    return [block for block in blocks if isinstance(block, TextBlock) and block.origins]


def own_words(message: UserMessage) -> str:
    """What the person wrote of a message; nothing of one that has origins."""
    if message.origins or message.internal:
        return ""
    if isinstance(message.content, str):
        return message.content
    return "".join([block.text for block in message.content if isinstance(block, TextBlock) and not block.origins])


def make_earlier_reply(text: str, calls: Sequence[ToolCall] = ()) -> AssistantMessage:
    """A reply that a client sends as an earlier one of the assistant, with the calls that it says were made."""
    blocks: tuple[AssistantBlock, ...] = (*([TextBlock(text)] if text or not calls else []), *calls)
    stop = StopReason.TOOL_USE if calls else StopReason.END_TURN
    return AssistantMessage(blocks, stop_reason=stop, info=ReplyInfo(origins=(CLIENT,)))


def make_earlier_result(call_id: str, name: str, text: str) -> ToolResultMessage:
    """What a client says that one of those calls has returned."""
    return ToolResultMessage(call_id, name, text, origins=(CLIENT,))


def add_origins(message: MessageT, origins: Iterable[str]) -> MessageT:
    """The message with these sources added to its own; a kind that has none is not changed."""
    if not isinstance(message, ToolResultMessage | UserMessage):
        return message
    sources = tuple(dict.fromkeys((*message.origins, *origins)))
    return message if sources == message.origins else _wire.replace(message, origins=sources)


codec: _wire.Codec[Any, UnknownMessage] = _wire.Codec(
    Message,
    tag_field="role",
    tags=frozenset({"system", "user", "assistant", "tool_result", "custom", "unknown"}),
    unknown=lambda kind, raw: UnknownMessage(kind=kind, raw=raw),
)
"""Reads and writes one message."""


# --- deltas ---------------------------------------------------------------------------------------------------


class TextDelta(Value, frozen=True, gc=False, tag_field="type", tag="text"):
    """A piece of visible text."""

    text: str


class ThinkingDelta(Value, frozen=True, gc=False, tag_field="type", tag="thinking"):
    """A piece of thinking; shown apart from the answer."""

    text: str


class ReasoningDelta(Value, frozen=True, gc=False, tag_field="type", tag="reasoning"):
    """A whole provider-native reasoning item, opaque to us."""

    text: str = ""
    opaque: str = ""
    vendor: str = ""


class ToolCallDelta(Value, frozen=True, gc=False, tag_field="type", tag="tool_call"):
    """A fragment of a tool call. Fragments with the same `index` are joined; the first carries id and name."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class StreamEnd(Value, frozen=True, gc=False, tag_field="type", tag="end"):
    """The terminal event of a stream. Without it the stream counts as a dropped connection."""

    stop_reason: str = "end_turn"
    usage: Usage | None = None
    info: ReplyInfo | None = None


Delta: TypeAlias = TextDelta | ThinkingDelta | ReasoningDelta | ToolCallDelta | StreamEnd
