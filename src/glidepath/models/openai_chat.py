"""OpenAI chat completions, and every server that speaks the same protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.models.chat_calls import ChatCalls
from glidepath.models.citations import chat_citation
from glidepath.models.content import (
    check_stops,
    higher_report,
    make_unsupported_error,
    merge_extras,
    parse_event,
    schema_words,
    tool_choice_to_send,
    tools_to_declare,
    user_fields,
)
from glidepath.models.exchange import Reader
from glidepath.models.faults import Faults
from glidepath.models.formats.chat_messages import VENDOR, chat_messages
from glidepath.models.hosts import HOSTS, Quirks, effort_for, matches_model
from glidepath.models.names import make_legal_name
from glidepath.models.openai_client import OpenAIModel, make_output_format
from glidepath.models.strictness import strict_parameters
from glidepath.models.thinkers import REASONING
from glidepath.models.usage_reports import anthropic_searches, chat_bill, chat_media, chat_usage
from glidepath.models.vendor_model import fit_thoughts
from glidepath.spi import HostedTool, ModelRequest, ToolSpec
from glidepath.values import Citation, Delta, ToolCallDelta, Usage

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


class OpenAIChatModel(OpenAIModel):
    """A model behind a chat completions endpoint: OpenAI's, or any compatible one by `base_url`.

    `host` names a server of the table of hosts (`groq`, `ollama`), with its address, key variable and quirks. The key
    is `api_key`, else the host's own from the environment: OPENAI_API_KEY where no host is named. With a `base_url`
    that is not the host's own, no key is taken from the environment. `client` is your own `AsyncOpenAI`, for one
    event loop, closed by you. `prompt_cache_key` and `prompt_cache_retention` are sent as they are, where they are set.
    """

    vendor = VENDOR
    usual = "openai-chat"

    def _adapt_quirks(self, quirks: Quirks) -> Quirks:
        vendor = "OpenAI chat completions" if self._official else self.host
        quirks = replace(quirks, takes=replace(quirks.takes, vendor=vendor))
        if not REASONING.match(self.name):
            return quirks
        known = quirks if quirks.fixed else HOSTS["openai-chat"].quirks
        return replace(quirks, cap="max_completion_tokens", fixed=known.fixed, calm=known.calm)

    def explain_no_hosted(self, _tool: HostedTool, _others: Sequence[object], /) -> str | None:
        """Why it cannot offer a tool of its provider: chat completions have none."""
        return f"chat completions have none; use openai:{self.name}" if self._official else "its host has none"

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
        if tools := tools_to_declare(request):
            body["tools"] = [_tool(tool, request) for tool in tools]
            body["tool_choice"] = _choice(self._choose_tool_choice(request, body), named=quirks.named_choice)
        if request.max_output_tokens is not None:
            body[quirks.cap] = request.max_output_tokens
        body.update(self._sampling(request))
        if request.reasoning_tokens is not None and self.least_reasoning_tokens is not None:
            body["reasoning"] = {"max_tokens": fit_thoughts(request.reasoning_tokens, request.max_output_tokens)}
        elif (effort := self._reasoning(request)) is not None:
            self._effort(body, effort)
        if request.seed is not None:
            body[quirks.seed] = request.seed
        if request.stop_sequences:
            if matches_model(quirks.no_stop, self.name):
                raise make_unsupported_error(f"{self.host}:{self.name}", "stop_sequences")
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
            body.update(user_fields(request, metadata=stored))
        return merge_extras(body, request.extras)

    def _choose_tool_choice(self, request: ModelRequest, body: dict[str, Any]) -> str:
        """The tool choice to send. If thinking allows only "auto", either thinking or the choice gives way."""
        choice = tool_choice_to_send(request)
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
        if not tools_to_declare(request) or not matches_model(quirks.plain_tools, self.name):
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
        "name": make_legal_name(tool.name),
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
    return {"type": "function", "function": {"name": make_legal_name(choice)}} if named else "required"


def _format(wanted: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """The output format field, as far as the server can enforce a schema."""
    if quirks.schema == "words":
        return {}
    if quirks.schema == "json":
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": make_output_format(wanted)}}


# --- the reply ------------------------------------------------------------------------------------------------


class ChatReader(Reader):
    """Reads the chunks of one completion. `echo`: thoughts are kept, to send them back."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str], *, echo: bool = True) -> None:
        super().__init__(request, faults, unknown)
        self._echo = echo
        self._usage: Usage | None = None
        self._reason: Any = None
        self._refused = False
        self._calls = ChatCalls()
        self._thoughts: dict[str, Any] = {}
        self._cites: list[Citation] = []

    def read(self, _name: str, data: str) -> Iterable[Delta]:
        """The deltas of one chunk."""
        if data.startswith("[DONE]"):
            yield from self._end()
            return
        chunk = parse_event(data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise self.faults.refusal(None, chunk)
        if "model" not in self.info and chunk.get("model"):  # every chunk repeats it
            self.add_reply_info(response_id=chunk.get("id"), model=chunk["model"])
        if chunk.get("service_tier"):
            self.add_reply_info(service_tier=chunk["service_tier"])
        if used := chunk.get("usage") or ("x_groq" in chunk and chunk["x_groq"].get("usage")):
            before, self._usage = self._usage, higher_report(self._usage, chat_usage(used))
            if self._usage is not before:
                self.media = chat_media(used)
            self.billed = max(self.billed or 0.0, chat_bill(used) or 0.0) or None
            self.searches = anthropic_searches(used)  # from OpenRouter
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # a second answer, which was not requested
            yield from self._delta(choice.get("delta") or {})
            if choice.get("logprobs"):
                self.add_logprobs(choice["logprobs"].get("content"))
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
            yield self.add_thinking(thought)
        if delta.get("reasoning_details"):
            self._thoughts.setdefault("reasoning_details", []).extend(delta["reasoning_details"])
        for field in ("content", "refusal"):
            text = delta.get(field)
            if isinstance(text, list):
                yield from self._parts(text)
            elif text:
                self._refused = self._refused or field == "refusal"
                yield self.add_text(text)
        for fragment in delta.get("tool_calls") or ():
            yield self._call(fragment)
        self._cites += [chat_citation(annotation) for annotation in delta.get("annotations") or ()]

    def _parts(self, parts: list[Any]) -> Iterable[Delta]:
        """Content in parts: some servers send thoughts and text separately."""
        for part in parts:
            thoughts = part.get("thinking")
            for thought in thoughts if isinstance(thoughts, list) else ():
                yield self.add_thinking(thought.get("text") or "")
            if part.get("text"):
                yield self.add_text(part["text"])

    def _call(self, fragment: Mapping[str, Any]) -> ToolCallDelta:
        call, name, written = self._calls.add(fragment)
        self.calls = len(self._calls.all)
        self.silent = False
        return ToolCallDelta(
            index=call.place, id=str(fragment.get("id") or ""), name=self.resolve_tool_name(name), arguments=written
        )

    def _end(self) -> Iterable[Delta]:
        if self.ended:
            return
        if self._thoughts and self._echo:
            if "reasoning_details" in self._thoughts:  # they contain the text, too
                self._thoughts.pop("reasoning", None)
            yield self.keep_item(VENDOR, self._thoughts, first=True)
        if self._cites:  # the text alone is sent back
            yield self.keep_item(VENDOR, {}, cites=self._cites)
        stop = self.stop(self._reason, _REASONS)
        yield from self.end("refusal" if self._refused and stop == "end_turn" else stop, self._usage)
