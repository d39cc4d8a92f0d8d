"""OpenAI Responses: the endpoint that keeps a model's reasoning across tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.models.citations import responses_citation
from glidepath.models.content import (
    dollars_in,
    make_unsupported_error,
    merge_extras,
    parse_event,
    require_text,
    tool_choice_to_send,
    tools_to_declare,
    user_fields,
)
from glidepath.models.exchange import Reader
from glidepath.models.faults import Faults
from glidepath.models.formats.responses import VENDOR, responses_input
from glidepath.models.hosted_forms import count_openai_uses, explain_no_openai, hosted_to_declare, openai_hosted
from glidepath.models.hosts import effort_for
from glidepath.models.names import make_legal_name
from glidepath.models.openai_client import OpenAIModel, make_output_format
from glidepath.models.strictness import strict_parameters
from glidepath.models.thinkers import PLAIN
from glidepath.models.usage_reports import is_billed_search, responses_media, responses_usage
from glidepath.spi import HostedTool, ModelRequest, ToolSpec
from glidepath.values import Citation, Delta, ToolCallDelta

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class OpenAIResponsesModel(OpenAIModel):
    """An OpenAI model behind the Responses endpoint.

    Nothing is stored at OpenAI: reasoning comes back encrypted and is sent again with the history. The key is
    `api_key`, else what the SDK finds in OPENAI_API_KEY. `host` is `azure` for Azure OpenAI. `client` is an
    `AsyncOpenAI` of your own, for one event loop, closed by you. `prompt_cache_key` and `prompt_cache_retention` are
    sent as they are, where they are set. From `compaction=` tokens of input on, OpenAI itself replaces the beginning of
    the conversation by an item that only it can read.
    """

    vendor = VENDOR
    provider = "openai"
    usual = "openai-responses"
    compacts = True
    search_price = "0.01"
    session_price = "0.03"

    def explain_no_hosted(self, tool: HostedTool, _others: Sequence[object], /) -> str | None:
        """Why it cannot offer a tool of its provider; None if it can."""
        if self.host not in ("openai", "openai-responses", "azure"):
            if self.host == "openai-compatible":
                return (
                    "its address is not OpenAI's own, and nobody knows whether the server there has it; pass "
                    "extras={'tools': [...]} if it does, or set GLIDEPATH_GATE_URL to that address and "
                    "GLIDEPATH_GATE_VENDORS=openai if it is a gate in front of OpenAI"
                )
            return f"nobody knows whether {self.host} has it; pass extras={{'tools': [...]}} if it does"
        return explain_no_openai(tool)

    def _reader(self, request: ModelRequest) -> _Reader:
        return _Reader(request, self._faults, self._unknown_reasons)

    def _open(self, client: AsyncOpenAI, body: dict[str, Any], **how: object) -> Any:
        create: Any = client.responses.with_streaming_response.create
        return create(model=self.name, extra_body=body, **how)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "input": responses_input(request.messages),
            "stream": True,
            "store": False,
        }
        if request.system_prompt:
            body["instructions"] = request.system_prompt
        if not self.name.startswith(PLAIN) and "-chat" not in self.name:
            body["include"] = ["reasoning.encrypted_content"]
        if request.logprobs is not None:
            body["include"] = [*body.get("include", ()), "message.output_text.logprobs"]
            body["top_logprobs"] = request.logprobs
        if request.stop_sequences:
            raise make_unsupported_error("OpenAI Responses", "stop_sequences", "use openai-chat:")
        if request.seed is not None:
            raise make_unsupported_error("OpenAI Responses", "seed", "use openai-chat:")
        hosted = hosted_to_declare(request)
        if (tools := tools_to_declare(request)) or hosted:
            body["tools"] = [*[_tool(tool, request) for tool in tools], *[openai_hosted(tool) for tool in hosted]]
            choice = tool_choice_to_send(request)
            plain = choice in ("auto", "required", "none")
            body["tool_choice"] = choice if plain else {"type": "function", "name": make_legal_name(choice)}
        if hosted:
            body["max_tool_calls"] = count_openai_uses(hosted)
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        body.update(self._sampling(request))
        if request.reasoning is not None:
            word = effort_for(self._quirks, self.name, request.reasoning)
            if word is None:
                self._leave_out("gets no reasoning effort: this model does not reason")
            else:
                body["reasoning"] = {"effort": word}
        if request.output_schema is not None:
            body["text"] = {"format": {"type": "json_schema", **make_output_format(request.output_schema)}}
        body.update(self._caching)
        if self.compaction is not None:
            body["context_management"] = [{"type": "compaction", "compact_threshold": self.compaction}]
        if self.usage_is_billed:  # another host may not know the fields
            body.update(user_fields(request, metadata=True))
        return merge_extras(body, request.extras)


def _tool(tool: ToolSpec, request: ModelRequest) -> dict[str, Any]:
    closed = strict_parameters(tool, request)
    return {
        "type": "function",
        "name": make_legal_name(tool.name),
        "description": tool.description,
        "parameters": tool.parameters if closed is None else closed,
        "strict": closed is not None,  # the endpoint's own default would change the meaning of optional parameters
    }


# --- the reply ------------------------------------------------------------------------------------------------


class _Reader(Reader):
    """Reads the events of one response."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str]) -> None:
        super().__init__(request, faults, unknown)
        self._refused = False
        self._written: dict[int, int] = {}
        """Characters of arguments so far, by the index of the call."""
        self._spoken: set[Any] = set()
        """The items whose text came in pieces."""
        self._starts: dict[Any, int] = {}
        """Where the text of each item begins."""

    def read(self, _name: str, data: str) -> Iterable[Delta]:
        if data.startswith("[DONE]"):
            return
        event = parse_event(data)
        kind = event.get("type", "")
        if kind == "response.output_text.delta":
            self.add_logprobs(event.get("logprobs"))
            yield self._read_text(event)
        elif kind == "response.function_call_arguments.delta":
            self._written[event["output_index"]] += len(event["delta"])
            yield ToolCallDelta(index=event["output_index"], arguments=require_text(event["delta"]))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            yield self.add_thinking(event["delta"])
        elif kind == "response.refusal.delta":
            self._refused = True
            yield self._read_text(event)
        elif kind == "response.output_item.added":
            yield from self._open_item(event["output_index"], event["item"])
        elif kind == "response.output_item.done":
            yield from self._close_item(event["output_index"], event["item"])
        elif kind in ("response.completed", "response.incomplete"):
            yield from self._end(event["response"])
        elif kind == "response.failed":
            raise self.faults.refusal(None, event["response"].get("error") or {"message": "the response failed"})
        elif kind == "error" or event.get("error"):
            raise self.faults.refusal(None, event)

    def _read_text(self, event: Mapping[str, Any]) -> Delta:
        self._spoken.add(event.get("output_index"))
        self._starts.setdefault(event.get("output_index"), self.text)
        return self.add_text(event["delta"])

    def _open_item(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if item.get("type") != "function_call" or index in self._written:
            return
        self.silent = False
        self.calls += 1
        self._written[index] = len(item.get("arguments") or "")
        yield ToolCallDelta(
            index=index,
            id=require_text(item["call_id"]),
            name=self.resolve_tool_name(item["name"]),
            arguments=require_text(item.get("arguments") or ""),
        )

    def _close_item(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        if item.get("type") == "function_call":
            yield from self._open_item(index, item)
            rest = (item.get("arguments") or "")[self._written[index] :]
            if rest:  # it came all at once
                self._written[index] += len(rest)
                yield ToolCallDelta(index=index, arguments=rest)
        elif item.get("type") == "message":
            yield from self._message(index, item)
        elif item.get("type"):  # reasoning, and the provider's own tools: sent back unchanged
            self.silent = False
            if is_billed_search(item):
                self.searches += 1
            if item["type"] == "code_interpreter_call":
                self.code_sessions = 1
            self.note_hosted(str(item["type"]).removesuffix("_call"))
            item = {key: value for key, value in item.items() if value is not None}
            yield self.keep_item(VENDOR, item)

    def _message(self, index: int, item: Mapping[str, Any]) -> Iterable[Delta]:
        spoken, cites = index in self._spoken, list[Citation]()
        start = self._starts.get(index, self.text)
        for part in item.get("content") or ():
            self._spoken.add(index)
            if not spoken:
                self._refused = self._refused or bool(part.get("refusal"))
                self.add_logprobs(part.get("logprobs"))
                yield self.add_text(part.get("text") or part.get("refusal") or "")
            cites += [responses_citation(one, start) for one in part.get("annotations") or ()]
            start += len(part.get("text") or part.get("refusal") or "")
        if cites:  # the text alone is sent back
            yield self.keep_item(VENDOR, {}, cites=cites)

    def _end(self, response: Mapping[str, Any]) -> Iterable[Delta]:
        usage = response.get("usage")
        self.add_reply_info(
            response_id=response.get("id"), model=response.get("model"), service_tier=response.get("service_tier")
        )
        if response.get("error"):
            raise self.faults.refusal(None, response)
        if self.silent:  # a server that does not stream sends all of it at the end
            for index, item in enumerate(response.get("output") or ()):
                yield from self._close_item(index, item)
        stop = "end_turn"
        if response.get("status") == "incomplete" or response.get("incomplete_details"):
            reason = (response.get("incomplete_details") or {}).get("reason", "max_output_tokens")
            stop = self.stop(reason, _INCOMPLETE)
            stop = "max_tokens" if stop == "other" else stop  # cut for an unknown reason is still cut
        elif self._refused:
            stop = "refusal"
        if usage is not None:
            self.media = responses_media(usage)
            self.billed = dollars_in(usage, "cost")
        yield from self.end(stop, None if usage is None else responses_usage(usage))
