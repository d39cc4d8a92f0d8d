"""OpenAI chat completions, and every server that speaks the same protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import replace
from glidepath.messages import Citation, Delta, Media, ToolCallDelta, Usage
from glidepath.models.citations import chat_citation
from glidepath.models.content import (
    check_stops,
    count,
    defined,
    dollars_in,
    known_by,
    merged,
    no_setting,
    parsed,
    schema_words,
    sent_choice,
)
from glidepath.models.exchange import Reader
from glidepath.models.faults import Faults
from glidepath.models.formats.chat_messages import VENDOR, chat_messages
from glidepath.models.hosts import HOSTS, Quirks, effort_for, matches
from glidepath.models.names import sent_name
from glidepath.models.openai_client import OpenAIModel, named_output
from glidepath.models.strictness import strict_parameters
from glidepath.spi import ModelRequest, ToolSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# Gateways pass on the words of the provider behind them.
_WORDS = {
    "end_turn": "stop end_turn eos eos_token stop_sequence",
    "tool_use": "tool_calls function_call tool_use",
    "max_tokens": "length max_tokens model_length",
    "refusal": "content_filter safety refusal",
    "error": "error insufficient_system_resource",
    "aborted": "abort",
}
_REASONS = {word: ours for ours, words in _WORDS.items() for word in words.split()}
_OFF = {"type": "disabled"}
_REASONING = re.compile(r"(openai/)?(o\d|gpt-([5-9]|\d\d))")
"""Models that refuse `max_tokens`, wherever they are served."""


class OpenAIChatModel(OpenAIModel):
    """A model behind a chat completions endpoint: OpenAI's, or any compatible one by `base_url`.

    `host` names a server of the table of hosts (`groq`, `ollama`), with its address, key variable and quirks. The key
    is `api_key`, else the host's own from the environment: OPENAI_API_KEY where no host is named. With a `base_url`
    that is not the host's own, no key is taken from the environment. `client` is your own `AsyncOpenAI`, for one
    event loop, closed by you. `prompt_cache_key` and `prompt_cache_retention` are sent as they are, where they are set.
    """

    vendor = VENDOR
    usual = "openai-chat"

    def _adapted(self, quirks: Quirks) -> Quirks:
        vendor = "OpenAI chat completions" if self._official else self.host
        quirks = replace(quirks, takes=replace(quirks.takes, vendor=vendor))
        if not _REASONING.match(self.name):
            return quirks
        known = quirks if quirks.fixed else HOSTS["openai-chat"].quirks
        return replace(quirks, cap="max_completion_tokens", fixed=known.fixed, calm=known.calm)

    @property
    def _official(self) -> bool:
        return self.host == "openai-chat"

    def _reader(self, request: ModelRequest) -> ChatReader:
        return ChatReader(request, self._faults, self._unknown_reasons, echo=not self._official)

    def _open(self, client: AsyncOpenAI, body: dict[str, Any], **how: object) -> Any:
        create: Any = client.chat.completions.with_streaming_response.create
        return create(model=self.name, messages=(), extra_body=body, **how)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        quirks, system = self._quirks, request.system_prompt
        if request.output_schema is not None and quirks.schema != "schema":
            system = f"{system}\n\n{schema_words(request.output_schema)}".strip()
        messages = chat_messages(request.messages, system, quirks=quirks)
        body: dict[str, Any] = {"model": self.name, "messages": messages, "stream": True}
        if quirks.stream_options:
            body["stream_options"] = {"include_usage": True}
        if tools := defined(request):
            body["tools"] = [_tool(tool, request) for tool in tools]
            body["tool_choice"] = _choice(self._chosen(request, body), named=quirks.named_choice)
        if request.max_output_tokens is not None:
            body[quirks.cap] = request.max_output_tokens
        body.update(self._sampling(request))
        if (effort := self._reasoning(request)) is not None:
            self._effort(body, effort)
        if request.seed is not None:
            body[quirks.seed] = request.seed
        if request.stop_sequences:
            if matches(quirks.no_stop, self.name):
                raise no_setting(f"{self.host}:{self.name}", "stop_sequences")
            check_stops(self.host, request.stop_sequences, quirks.most_stops)
            body["stop"] = list(request.stop_sequences)
        if request.logprobs is not None:
            body["logprobs"] = True
            if request.logprobs:
                body["top_logprobs"] = request.logprobs
        if request.output_schema is not None:
            body.update(_format(request.output_schema, quirks))
        body.update(self._caching)
        if self._official:  # another host may not know the fields
            stored = (request.extras or {}).get("store") is True  # the endpoint refuses metadata otherwise
            body.update(known_by(request, metadata=stored))
        return merged(body, request.extras)

    def _chosen(self, request: ModelRequest, body: dict[str, Any]) -> str:
        """The tool choice to send. If thinking allows only "auto", either thinking or the choice gives way."""
        choice = sent_choice(request)
        if choice == "auto" or not self._quirks.thinking_switch:
            return choice
        if not request.tools:
            return "auto"  # in a last call: a tool that is called anyway does not run
        body["thinking"] = _OFF
        if request.reasoning not in (None, "none"):
            self._leave_out(f"does not think in a request with a tool_choice: {self.host} refuses both together")
        return choice

    def _reasoning(self, request: ModelRequest) -> str | None:
        """The effort to ask for. If tools and reasoning are refused together, reasoning gives way."""
        quirks, effort = self._quirks, request.reasoning
        if not defined(request) or not matches(quirks.plain_tools, self.name):
            return effort
        if effort_for(quirks, self.name, "none") != "none":
            return effort  # reasoning cannot be turned off: the endpoint decides
        if effort not in (None, "none"):
            self._leave_out(
                "does not reason in a request with tools: chat completions refuse both together. "
                "The Responses endpoint ('openai:') takes both"
            )
        return "none"

    def _effort(self, body: dict[str, Any], effort: str) -> None:
        quirks = self._quirks
        word = effort_for(quirks, self.name, effort)
        if quirks.thinking_switch and (effort == "none" or "thinking" in body):
            body["thinking"] = _OFF
        elif word is None:
            self._leave_out(f"gets no reasoning effort: {self.host} refuses it")
        elif quirks.effort == "reasoning":
            body["reasoning"] = {"effort": word}
        else:
            body[quirks.effort] = word


def _tool(tool: ToolSpec, request: ModelRequest) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": sent_name(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
    }
    closed = strict_parameters(tool, request)
    if closed is not None:
        function = {**function, "parameters": closed, "strict": True}
    return {"type": "function", "function": function}


def _choice(choice: str, *, named: bool) -> Any:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": sent_name(choice)}} if named else "required"


def _format(wanted: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """The output format field, as far as the server can enforce a schema."""
    if quirks.schema == "words":
        return {}
    if quirks.schema == "json":
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": named_output(wanted)}}


# --- the reply ------------------------------------------------------------------------------------------------


class _Call:
    """A call that is being written."""

    __slots__ = ("arguments", "id", "place")

    def __init__(self, place: int, call_id: str) -> None:
        self.place = place
        self.id = call_id
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


class ChatReader(Reader):
    """Reads the chunks of one completion. `echo`: thoughts are kept, to send them back."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str], *, echo: bool = True) -> None:
        super().__init__(request, faults, unknown)
        self._echo = echo
        self._usage: Usage | None = None
        self._reason: Any = None
        self._refused = False
        self._calls: dict[Any, _Call] = {}
        self._newest: _Call | None = None
        self._thoughts: dict[str, Any] = {}
        self._cites: list[Citation] = []

    def read(self, _name: str, data: str) -> Iterable[Delta]:
        """The deltas of one chunk."""
        if data.startswith("[DONE]"):
            yield from self._end()
            return
        chunk = parsed(data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise self.faults.refusal(None, chunk)
        if "model" not in self.info and chunk.get("model"):  # every chunk repeats it
            self.told(response_id=chunk.get("id"), model=chunk["model"])
        if chunk.get("service_tier"):
            self.told(service_tier=chunk["service_tier"])
        if used := chunk.get("usage") or ("x_groq" in chunk and chunk["x_groq"].get("usage")):
            self._usage, self.media, self.billed = _usage(used), _media(used), _billed(used)
            self.searches = count(used, "server_tool_use", "web_search_requests")  # from OpenRouter
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # a second answer, which was not requested
            yield from self._delta(choice.get("delta") or {})
            if choice.get("logprobs"):
                self.weighed(choice["logprobs"].get("content"))
            self._reason = choice.get("finish_reason") or self._reason

    def finish(self) -> Iterable[Delta]:
        """The end for a server that never sends [DONE]; without a finish reason the connection was dropped."""
        if self._reason is not None:
            yield from self._end()

    def _delta(self, delta: Mapping[str, Any]) -> Iterable[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            field = "reasoning_content" if delta.get("reasoning_content") else "reasoning"
            self._thoughts[field] = self._thoughts.get(field, "") + thought
            yield self.thought(thought)
        if delta.get("reasoning_details"):
            self._thoughts.setdefault("reasoning_details", []).extend(delta["reasoning_details"])
        for field in ("content", "refusal"):
            text = delta.get(field)
            if isinstance(text, list):
                yield from self._parts(text)
            elif text:
                self._refused = self._refused or field == "refusal"
                yield self.said(text)
        for fragment in delta.get("tool_calls") or ():
            yield self._call(fragment)
        self._cites += [chat_citation(annotation) for annotation in delta.get("annotations") or ()]

    def _parts(self, parts: list[Any]) -> Iterable[Delta]:
        """Content in parts: some servers send thoughts and text separately."""
        for part in parts:
            thoughts = part.get("thinking")
            for thought in thoughts if isinstance(thoughts, list) else ():
                yield self.thought(thought.get("text") or "")
            if part.get("text"):
                yield self.said(part["text"])

    def _call(self, fragment: Mapping[str, Any]) -> ToolCallDelta:
        """The delta of a fragment. Some servers give every call the index 0, or no index, or no id."""
        function = fragment.get("function") or {}
        call_id, name, given = (
            str(fragment.get("id") or ""),
            self.called(function.get("name") or ""),
            function.get("arguments"),
        )
        written = given if isinstance(given, str) else _wire.encode(given).decode() if given else ""
        key = fragment.get("index")
        call = self._calls.get(key)
        if call is None and key is None and not name:
            call = self._newest
        if call is None or (name and call.is_over(call_id, written)):
            call = self._calls[key] = _Call(self.calls, call_id)
            self.calls += 1
        self._newest = call
        call.arguments.append(written)
        self.silent = False
        return ToolCallDelta(index=call.place, id=call_id, name=name, arguments=written)

    def _end(self) -> Iterable[Delta]:
        if self.ended:
            return
        if self._thoughts and self._echo:
            if "reasoning_details" in self._thoughts:  # they contain the text, too
                self._thoughts.pop("reasoning", None)
            yield self.kept(VENDOR, self._thoughts, first=True)
        if self._cites:  # the text alone is sent back
            yield self.kept(VENDOR, {}, cites=self._cites)
        stop = self.stop(self._reason, _REASONS)
        yield from self.end("refusal" if self._refused and stop == "end_turn" else stop, self._usage)


def _usage(given: Mapping[str, Any]) -> Usage:
    prompt, completion = count(given, "prompt_tokens"), count(given, "completion_tokens")
    reasoning = count(given, "completion_tokens_details", "reasoning_tokens")
    if reasoning and count(given, "total_tokens") == prompt + completion + reasoning:
        completion += reasoning  # this server counts them separately
    cached = count(given, "prompt_tokens_details", "cached_tokens") or count(given, "prompt_cache_hit_tokens")
    written = count(given, "prompt_tokens_details", "cache_write_tokens")
    return Usage(prompt, completion, cached, written, reasoning)


def _media(given: Mapping[str, Any]) -> Media:
    return Media(
        audio_input=count(given, "prompt_tokens_details", "audio_tokens"),
        audio_output=count(given, "completion_tokens_details", "audio_tokens"),
        image_input=count(given, "prompt_tokens_details", "image_tokens"),
        image_output=count(given, "completion_tokens_details", "image_tokens"),
    )


def _billed(given: Mapping[str, Any]) -> float | None:
    """What OpenRouter says the call cost. A caller with its own key at the provider pays there in addition."""
    own, upstream = dollars_in(given, "cost"), dollars_in(given, "cost_details", "upstream_inference_cost")
    if own is None:
        return None
    return own + (upstream or 0.0) if given.get("is_byok") else own
