"""Shared by all adapters: the place of reasoning, settings, schemas, stop reasons."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.models.faults import Faults
from glidepath.models.hosted_forms import UNTRUSTED
from glidepath.models.names import ToolNames
from glidepath.spi import ModelRequest, ToolSpec
from glidepath.tools import clean
from glidepath.values import (
    AssistantMessage,
    Citation,
    Delta,
    Media,
    ReasoningBlock,
    ReasoningDelta,
    RefusedError,
    RejectedError,
    ReplyInfo,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCall,
    Usage,
    read_dollars,
)

_log = logging.getLogger("glidepath")
MOST_TOKENS = 1 << 17  # tokens of one reply whose probabilities are kept
IMPOSSIBLE = -9999.0


# --- reasoning ------------------------------------------------------------------------------------------------


def encode_held_item(item: Mapping[str, Any], *, text: int, calls: int, cites: Sequence[Citation] = ()) -> str:
    """A provider's own item, unchanged, with its place: after this many characters of text and this many calls.

    `cites` are the sources it names, for `AssistantMessage.citations`.
    """
    cited = {"cites": cites} if cites else {}
    return _wire.encode({"at": [text, calls], "item": item, **cited}).decode()


def iterate_pieces(message: AssistantMessage, vendor: str) -> Iterator[tuple[str, Any]]:
    """A reply in the order it was written: ("text", str), ("call", ToolCall) and ("item", dict) of this vendor only."""
    text, calls = message.text, message.tool_calls
    said = done = 0
    for block in message.blocks:
        if type(block) is not ReasoningBlock or block.vendor != vendor:
            continue
        try:
            (characters, number), item = (kept := _wire.loads(block.opaque))["at"], kept["item"]
            characters, number = max(said, characters), max(done, number)
        except (_wire.WireError, KeyError, TypeError, ValueError):
            continue  # not written by us: it cannot be sent
        if characters > said:
            yield "text", text[said:characters]
            said = characters
        for call in calls[done:number]:
            yield "call", call
        done = number
        yield "item", item
    if said < len(text):
        yield "text", text[said:]
    for call in calls[done:]:
        yield "call", call


def add_turn(turns: list[dict[str, Any]], role: str, field: str, parts: list[dict[str, Any]]) -> None:
    """Add what somebody said to the turns: neighbors of one role are one, so that results are next to their calls."""
    if turns and turns[-1]["role"] == role:
        turns[-1][field] += parts
    elif parts:
        turns.append({"role": role, field: parts})


def arguments(call: ToolCall) -> str:
    """The arguments of a call as JSON text, byte for byte as the model wrote them."""
    return _wire.encode(call.stored).decode()


# --- requests -------------------------------------------------------------------------------------------------


_ADDED = ("tools", "include")


def merge_extras(body: dict[str, Any], extras: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request with the application's own fields on top; a field set to None is left out.

    `tools` and `include` are added to ours: the provider's own tools, such as web search, and further output.
    """
    if extras:
        try:
            json.dumps(extras, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RejectedError(f"extras cannot be written as JSON: {error}") from None
        before = {name: body.get(name) for name in _ADDED if name in extras}
        body.update(extras)
        for name, ours in before.items():
            theirs = extras[name]
            if isinstance(ours, list) and isinstance(theirs, Sequence) and not isinstance(theirs, str):
                body[name] = [*ours, *[one for one in theirs if one not in ours]]
        for field in [name for name, value in extras.items() if value is None]:
            del body[field]
    return body


def tools_to_declare(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """The tools to declare: all tools of the run, so that the prefix is the same even if some may not be called.

    A request that was built without `defined_tools` declares its `tools`.
    """
    return request.defined_tools or request.tools


def tool_choice_to_send(request: ModelRequest) -> str:
    """The tool choice to send: "none" if no tool may be called, although some are defined."""
    return request.tool_choice if request.tools or request.hosted_tools else "none"


def user_fields(request: ModelRequest, *, metadata: bool) -> dict[str, Any]:
    """OpenAI's fields for the user and the metadata of a run, if it has them."""
    fields: dict[str, Any] = {} if request.user is None else {"safety_identifier": request.user}
    if metadata and request.metadata:
        fields["metadata"] = dict(request.metadata)
    return fields


def schema_words(schema: Mapping[str, Any]) -> str:
    """The schema as an instruction, for a model that cannot enforce it."""
    return f"Your final answer must be JSON that fits this schema, and nothing else:\n{_wire.encode(schema).decode()}"


def check_stops(vendor: str, words: Sequence[str], most: int | None) -> None:
    """Reject more stop sequences than a vendor takes."""
    if most is not None and len(words) > most:
        raise RejectedError(f"{vendor} takes at most {most} stop_sequences, and there are {len(words)}: remove some")


def make_unsupported_error(vendor: str, name: str, hint: str = "") -> RejectedError:
    """The error for a setting that a vendor does not have, raised before the call."""
    return RejectedError(f"{vendor} has no {name}: remove the setting{f', or {hint}' if hint else ''}")


# --- replies --------------------------------------------------------------------------------------------------


_NO_MEDIA = Media()


def dollars_in(figures: Mapping[str, Any], *path: str) -> float | None:
    """An amount of dollars from a provider's usage; None if it is missing, or is not an amount."""
    found: Any = figures
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return read_dollars(found)


def count(figures: object, *path: str) -> int:
    """An integer from a provider's usage; 0 if it is missing."""
    for name in path:
        figures = figures.get(name) if isinstance(figures, Mapping) else getattr(figures, name, None)
    return figures if type(figures) is int else 0


def higher_report(before: Usage | None, now: Usage) -> Usage:
    """The totals that a stream has reported so far: they only grow, and a later report takes nothing back."""
    if before is None or (now.input >= before.input and now.output >= before.output):
        return now
    given, written = max(before, now, key=lambda one: one.input), max(before, now, key=lambda one: one.output)
    return Usage(given.input, written.output, given.cache_read, given.cache_write, written.reasoning)


def parse_event(data: str) -> Any:
    """The JSON of an event; Python's own parser accepts what some servers write: NaN, and lone surrogates."""
    try:
        return _wire.loads(data)
    except _wire.WireError:
        return json.loads(data)


def require_text(text: object) -> str:
    """This text; raises `TypeError` for anything else."""
    if isinstance(text, str):
        return text
    raise TypeError(f"{type(text).__name__} instead of text")


class VendorReply:
    """One reply so far: how much text, how many calls, and whether anything has come at all."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str]) -> None:
        self.faults = faults
        self._names = ToolNames(tool.name for tool in tools_to_declare(request))
        self._tokens: list[TokenLogprob] | None = None if request.logprobs is None else []
        self.text = 0
        self.calls = 0
        self.silent = True
        self.ended = False
        self.info: dict[str, str] = {}
        self.searches = 0
        """Web searches that the provider bills."""
        self.media = Media()
        """Sound and pictures among the tokens."""
        self.billed: float | None = None
        """Dollars that the provider says the call cost."""
        self._unknown = unknown
        self.code_sessions = 0
        """Containers that the provider ran programs in, and may bill."""
        self._read: dict[str, None] = {}
        """The untrusted sources that the provider's own tools have read for it."""
        self._half = ""

    def add_text(self, text: str) -> TextDelta:
        """A piece of visible text."""
        self.silent = False
        if self._half or not require_text(text).isascii():
            text = self._join_surrogates(text)
        self.text += len(text)
        return TextDelta(text)

    def resolve_tool_name(self, name: object) -> str:
        """Our own name for the tool that is called."""
        return self._names.ours(require_text(name))

    def add_thinking(self, text: str) -> ThinkingDelta:
        """A piece of thinking."""
        self.silent = False
        return ThinkingDelta(clean(require_text(text)))

    def _join_surrogates(self, text: str) -> str:
        """The text joined to the surrogate that came before it, and without a lone one at its end."""
        text, self._half = self._half + require_text(text), ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return clean(text)

    def keep_item(
        self, vendor: str, item: Mapping[str, Any], *, cites: Sequence[Citation] = (), first: bool = False
    ) -> ReasoningDelta:
        """The delta for a provider's own item, in its place: after what has come so far, or before all of it."""
        text, calls = (0, 0) if first else (self.text, self.calls)
        return ReasoningDelta(opaque=encode_held_item(item, text=text, calls=calls, cites=cites), vendor=vendor)

    def add_reply_info(self, **facts: object) -> None:
        """What the provider says about the reply: fields of `ReplyInfo`."""
        self.info.update({name: clean(fact)[:200] for name, fact in facts.items() if fact and isinstance(fact, str)})

    def note_hosted(self, tool: str) -> None:
        """One of the provider's own tools has answered."""
        if tool in UNTRUSTED:
            self._read[tool] = None

    def add_logprobs(self, entries: Iterable[Mapping[str, Any]] | None) -> None:
        """Tokens with their probabilities, as OpenAI writes them; empty unless asked for."""
        if self._tokens is None:
            return
        for entry in entries or ():
            if len(self._tokens) == MOST_TOKENS:
                return
            top = [_read_logprob(other) for other in entry.get("top_logprobs") or ()]
            self._tokens.append(TokenLogprob(*_read_logprob(entry), tuple(top)))

    @property
    def weights(self) -> tuple[TokenLogprob, ...]:
        """The tokens so far with their probabilities."""
        return tuple(self._tokens or ())

    def stop(self, word: object, reasons: Mapping[str, str]) -> str:
        """Our word for a provider's stop reason; an unknown one is logged once per model object."""
        known = reasons.get(word) or reasons.get(word.lower()) if isinstance(word, str) else None
        if known is not None:
            return known
        name = str(word)[:60]
        if name not in self._unknown:
            self._unknown.add(name)
            _log.warning("the provider stopped for an unknown reason: %r", name)
        return "other"

    def end(self, stop: str, usage: Usage | None, why: str = "") -> Iterator[Delta]:
        """The terminal event; raises `RefusedError` for a refusal without text."""
        if stop == "end_turn" and self.calls:
            stop = "tool_use"
        if self.silent and stop == "refusal":
            raise RefusedError(f"the provider refused to answer{': ' if why else ''}{why}")
        if self.silent and stop == "max_tokens":
            yield ThinkingDelta("")  # all of it went into hidden thoughts: the reply was cut, it is not empty
        self.ended = True
        info: dict[str, Any] = {**self.info}
        if self._tokens:
            info["logprobs"] = self.weights
        if self.searches:
            info["web_searches"] = self.searches
        if self.media != _NO_MEDIA:
            info["media"] = self.media
        if self.billed is not None:
            info["billed"] = self.billed
        if self.code_sessions:
            info["code_sessions"] = self.code_sessions
        if self._read:
            info["origins"] = tuple(self._read)
        yield StreamEnd(stop, usage, ReplyInfo(**info) if info else None)


def _read_logprob(entry: Mapping[str, Any]) -> tuple[str, float]:
    """A token and its log probability; minus infinity becomes OpenAI's value for it."""
    logprob = float(entry["logprob"])
    return clean(require_text(entry["token"])), logprob if math.isfinite(logprob) else IMPOSSIBLE
