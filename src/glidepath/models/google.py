"""Google's Gemini models."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._sdk_privates import google_connection
from glidepath.models.checks import check_headers, check_key, check_name, check_url
from glidepath.models.citations import google_citations
from glidepath.models.clients import Clients
from glidepath.models.content import (
    VendorReply,
    check_stops,
    higher_report,
    merge_extras,
    schema_words,
    tool_choice_to_send,
    tools_to_declare,
)
from glidepath.models.exchange import run_out
from glidepath.models.faults import Faults
from glidepath.models.formats.google_contents import VENDOR, google_contents
from glidepath.models.hosted_forms import explain_no_gemini, gemini_hosted
from glidepath.models.hosts import find_host, find_key, key_advice, read_variable
from glidepath.models.names import make_legal_name
from glidepath.models.sse import Lines
from glidepath.models.thinkers import LEVELED, UNTHINKING
from glidepath.models.usage_reports import gemini_media, gemini_searches, gemini_usage
from glidepath.models.vendor_model import VendorModel, fit_thoughts
from glidepath.spi import HostedTool, ModelRequest, ToolSpec
from glidepath.values import (
    ConfigurationError,
    Delta,
    ModelError,
    RefusedError,
    RejectedError,
    SystemMessage,
    ToolCallDelta,
    TransientError,
    Usage,
    require_extra,
)

if TYPE_CHECKING:
    import httpx
    from google.genai import Client
    from google.genai.types import GenerateContentResponse, LogprobsResult, Part

_REFUSALS = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
)
_REASONS = {
    "STOP": "end_turn",
    "FUNCTION_CALL": "tool_use",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(_REFUSALS, "refusal"),
}
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
_LEVELS = {"none": "minimal", "xhigh": "high", "max": "high"}
_LEAST_LEVELS = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
_MINIMAL = re.compile(r"gemini-3(\.[0-6])?-flash|.*-flash-lite")
"""Models with the level `minimal`. Pro models and newer Flash models refuse it; `low` works for all of them."""
LEAST_PRO_BUDGET = 128
LEAST_LITE_BUDGET = 512
_BUDGETS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
_MOST_STOPS = 5
_IDLE = re.compile(rb":|(?:event|id|retry):|data: ?\[DONE\]")
_DATA = re.compile(rb"^data:(?! )")
_response: ContextVar[list[Any] | None] = ContextVar("glidepath_google_response", default=None)

_patience: ContextVar[float | None] = ContextVar("glidepath_google_patience", default=None)


class GoogleModel(VendorModel):
    """A Gemini model, on the Gemini API or on Vertex AI.

    The key is `api_key`, else what the SDK finds (GEMINI_API_KEY or GOOGLE_API_KEY; GOOGLE_GENAI_USE_VERTEXAI chooses
    Vertex AI, and so does `host="vertex"`). `client` is a `google.genai.Client` of your own, for one event loop, closed
    by you.
    """

    vendor = VENDOR
    provider = "google"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_window: int | None = None,
        client: Client | None = None,
        host: str | None = None,
    ) -> None:
        self.name = check_name(name)
        served = find_host(host or "google")
        if served.adapter not in ("google", "vertex"):
            raise ConfigurationError(f"host={host!r} does not serve Gemini models over Google's protocol")
        check_key(api_key, served.key)
        check_url(base_url)
        check_headers(headers)
        if client is not None:
            clients = Clients(lambda: _Linked(client, None), ours=False)
        else:
            vertex = served.name == "vertex"
            if vertex and base_url is not None and not served.is_own_address(base_url):
                find_key(served, base_url, api_key)  # credentials are not sent to another address
            clients = Clients(lambda: _client(api_key, base_url, headers, vertex=vertex))
        key, address, on_vertex = google_connection(clients.peek().client)
        self.usage_is_billed = served.is_own_address(address)
        self.host = "vertex" if on_vertex else served.name
        advice = key_advice(find_host(self.host), given=api_key is not None or client is not None)
        if not (api_key or client) and self.host == "google" and key and key == read_variable("GOOGLE_API_KEY"):
            advice = advice.replace("GEMINI_API_KEY", "GOOGLE_API_KEY")  # the SDK took the key from there
        self.least_reasoning_tokens = _least_thinking(name)
        # Gemini 3 bills every query, earlier models a prompt.
        self.search_price = "0.014" if LEVELED.match(name) else "0.035"
        faults = Faults(f"{self.host}:{name}", [key, api_key, *(headers or {}).values()], advice)
        super().__init__(name, context_window, clients, faults)

    def explain_no_hosted(self, tool: HostedTool, tools: Sequence[object], /) -> str | None:
        """Why it cannot offer a tool of its provider beside these other tools; None if it can."""
        return explain_no_gemini(self.name, tool, tools, vertex=self.host == "vertex")

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        return self._stream(self._body(request), request)

    async def _stream(self, body: dict[str, Any], request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The deltas of one reply. The error is raised outside its handler: an SDK's error holds the key."""
        reader = _Reader(request, self._faults, self._unknown_reasons)
        reader.bills_each_query = LEVELED.match(self.name) is not None
        failure: ModelError | None = None
        responses: list[Any] = []
        chunks = None

        async def close() -> None:
            for response in responses:
                await response.aclose()

        _response.set(responses)
        _patience.set(request.connect_timeout)
        try:
            client = (await self._clients.get()).client
            # The whole request is in extra_body: the SDK would check every part of a long history.
            chunks = await client.aio.models.generate_content_stream(
                model=self.name, contents="-", config={"http_options": {"extra_body": body}}
            )
            async for chunk in chunks:
                for delta in list(reader.read(chunk)):
                    yield delta
            for delta in reader.finish():
                yield delta
        except Exception as error:
            failure = self._explain(error, responses) if responses else self._faults.make_unsent_error(error)
        finally:
            _response.set(None)
            if chunks is not None:
                await run_out(close, chunks)
        if failure is not None:
            raise failure

    def _explain(self, error: Exception, responses: list[Any]) -> ModelError:
        failure = self._faults.explain(error)
        kind = str(responses[-1].headers.get("content-type", ""))
        if type(failure) is TransientError and type(error).__name__ == "UnknownApiResponseError":
            if not kind.startswith(("text/event-stream", "application/json")):
                return RejectedError(
                    f"the server answered with {self._faults.clean(kind or 'nothing', 80)} instead of an event stream: "
                    "is the address (base_url) right?"
                )
            return TransientError("the provider sent an event that cannot be read")
        return failure

    # --- the request ------------------------------------------------------------------------------------------

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        leveled = LEVELED.match(self.name) is not None
        body: dict[str, Any] = {"contents": google_contents(request.messages, leveled=leveled)}
        system = [request.system_prompt, *[m.content for m in request.messages if type(m) is SystemMessage]]
        tools, hosted = tools_to_declare(request), request.hosted_tools
        if request.output_schema is not None and not request.tools and not leveled:
            tools = ()  # an enforced schema is worth more than the cache of a last call
        if request.output_schema is not None and (tools or hosted) and not leveled:
            system.append(schema_words(request.output_schema))  # these models refuse tools and a schema together
        if any(system):
            body["systemInstruction"] = {"parts": [{"text": "\n\n".join([part for part in system if part])}]}
        body.update(_tool_fields(request, tools))
        check_stops("Gemini", request.stop_sequences, _MOST_STOPS)
        wanted = {
            "maxOutputTokens": request.max_output_tokens,
            "temperature": request.temperature,
            "stopSequences": list(request.stop_sequences) or None,
            "seed": request.seed,
            "responseLogprobs": None if request.logprobs is None else True,
            "logprobs": request.logprobs or None,
        }
        settings: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        if (thinking := self._thinking_settings(request, leveled=leveled)) is not None:
            settings["thinkingConfig"] = thinking
        if request.output_schema is not None and (leveled or not (tools or hosted)):
            settings["responseMimeType"] = "application/json"
            settings["responseJsonSchema"] = request.output_schema
        extras = dict(request.extras or {})
        given = extras.pop("generationConfig", None)
        settings = merge_extras(settings, given if isinstance(given, Mapping) else None)
        if settings:
            body["generationConfig"] = settings
        return merge_extras(body, extras)

    def _thinking_settings(self, request: ModelRequest, *, leveled: bool) -> dict[str, Any] | None:
        if request.reasoning_tokens is not None and self.least_reasoning_tokens is not None:
            tokens = max(self.least_reasoning_tokens, fit_thoughts(request.reasoning_tokens, request.max_output_tokens))
            return {"includeThoughts": True, "thinkingBudget": tokens}
        if request.reasoning is None:
            return None
        if UNTHINKING.match(self.name):
            self._leave_out("gets no thinking setting: it cannot think, and Google refuses the setting")
            return None
        return _thinking(self.name, request.reasoning, leveled=leveled)


def _tool_fields(request: ModelRequest, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The tools of both sides. In a landing the hosted ones are left out: no tool choice holds for them."""
    hosted = [gemini_hosted(tool) for tool in request.hosted_tools]
    if not tools:
        return {"tools": hosted} if hosted else {}
    declared = [
        {"name": make_legal_name(tool.name), "description": tool.description, "parametersJsonSchema": tool.parameters}
        for tool in tools
    ]
    held = any(request.strict_tools if tool.strict is None else tool.strict for tool in tools)
    config: dict[str, Any] = {"functionCallingConfig": _choice(tool_choice_to_send(request), held=held)}
    if hosted:
        config["includeServerSideToolInvocations"] = True
    return {"tools": [{"functionDeclarations": declared}, *hosted], "toolConfig": config}


def _least_thinking(name: str) -> int | None:
    """The fewest tokens that a model may be told to think; None for one that takes a level, or cannot think."""
    if LEVELED.match(name) or UNTHINKING.match(name):
        return None
    return LEAST_PRO_BUDGET if "-pro" in name else LEAST_LITE_BUDGET if "-lite" in name else 1


class _Linked:
    """A client and the connections it was given, which it does not close."""

    __slots__ = ("client", "connections")

    def __init__(self, client: Client, connections: httpx.AsyncClient | None) -> None:
        self.client = client
        self.connections = connections

    async def close(self) -> None:
        if self.connections is not None:
            await self.connections.aclose()
        self.client.close()


async def _set_connect_timeout(request: httpx.Request) -> None:
    """Set the connect timeout: the SDK has only one for the whole call."""
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "connect": _patience.get()}


async def _remember(response: httpx.Response) -> None:
    """Keep the response of a call: the SDK has no way to close it."""
    responses = _response.get()
    if responses is not None:
        responses.append(response)
        if str(response.headers.get("content-type", "")).startswith("text/event-stream"):
            vars(response)["aiter_lines"] = partial(_lines, response)


async def _lines(response: httpx.Response) -> AsyncGenerator[str, None]:
    """The lines of an event stream in a form the SDK can read.

    Its own reader splits at characters that a text may contain, and parses every field except `data` as JSON.
    """
    lines = Lines()
    async for chunk in response.aiter_bytes():
        for line in lines.feed(chunk):
            if not _IDLE.match(line):
                yield _DATA.sub(b"data: ", line).decode("utf-8", "replace")
    for line in lines.finish():
        if not _IDLE.match(line):
            yield _DATA.sub(b"data: ", line).decode("utf-8", "replace")


def _client(key: str | None, base_url: str | None, headers: Mapping[str, str] | None, *, vertex: bool) -> _Linked:
    genai = require_extra("google.genai", "Google models need the google-genai package", "google")
    try:
        http = import_module("httpx2")
    except ImportError:
        http = import_module("httpx")
    limits = http.Limits(max_connections=None, max_keepalive_connections=100)  # runs are limited elsewhere
    hooks = {"request": [_set_connect_timeout], "response": [_remember]}
    connections = http.AsyncClient(timeout=None, follow_redirects=True, limits=limits, event_hooks=hooks)
    options: dict[str, Any] = {"httpx_async_client": connections}
    if base_url is not None:
        options["base_url"] = base_url
    if headers:
        options["headers"] = dict(headers)
    try:
        beta: Any = {**options, "api_version": "v1beta"}
        client: Any = None if vertex else genai.Client(api_key=key, http_options=beta)
        if client is None or client.vertexai:  # Vertex names its versions differently
            beta.pop("api_version")
            client = genai.Client(vertexai=True, api_key=key, http_options=beta, **_place(vertex=vertex, key=key))
    except ValueError as error:
        what = "there is no key for Google: set the environment variable GEMINI_API_KEY, or pass api_key="
        if vertex or "key" not in str(error).lower():
            what = f"the Google client cannot be made: {error}"
        raise ConfigurationError(what) from None
    check_key(google_connection(client).key, "GEMINI_API_KEY")
    return _Linked(client, connections)


def _place(*, vertex: bool, key: str | None) -> dict[str, Any]:
    """Project and location for a `vertex:` model; a Vertex AI key needs neither."""
    if not vertex or key is not None:
        return {}
    project = read_variable("GOOGLE_CLOUD_PROJECT")
    if project is None:
        raise ConfigurationError("Vertex AI needs a project: set the environment variable GOOGLE_CLOUD_PROJECT")
    return {"project": project, "location": read_variable("GOOGLE_CLOUD_LOCATION") or "global"}


def _choice(choice: str, *, held: bool) -> dict[str, Any]:
    """The function calling mode; with `held`, the schemas of calls are enforced."""
    modes = {"auto": "VALIDATED" if held else "AUTO", "required": "ANY", "none": "NONE"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [make_legal_name(choice)]}


def _thinking(name: str, effort: str, *, leveled: bool) -> dict[str, Any]:
    shown = {"includeThoughts": True} if effort != "none" else {}
    pro = "-pro" in name
    if leveled:
        known = _LEVELS if _MINIMAL.match(name.removeprefix("models/")) else _LEAST_LEVELS
        level = known.get(effort, effort)
        return {**shown, "thinkingLevel": "high" if level == "medium" and "gemini-3-pro" in name else level}
    budget = _BUDGETS.get(effort, _BUDGETS["medium"])
    return {**shown, "thinkingBudget": max(budget, LEAST_PRO_BUDGET) if pro else budget}


# --- the reply ------------------------------------------------------------------------------------------------


class _Reader(VendorReply):
    """Reads the chunks of one reply."""

    bills_each_query = True
    """Gemini 3 bills every query; earlier models bill a prompt once, however often they search."""

    def __init__(self, request: ModelRequest, faults: Faults, unknown: set[str]) -> None:
        super().__init__(request, faults, unknown)
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._why = ""
        self._grounds: Any = None
        self._texts: list[str] = []
        """The pieces of the visible text; citations point into it."""

    def read(self, chunk: GenerateContentResponse) -> Iterable[Delta]:
        if "model" not in self.info:  # every chunk repeats it
            self.add_reply_info(response_id=chunk.response_id, model=chunk.model_version)
        if chunk.usage_metadata is not None:
            before, self._usage = self._usage, higher_report(self._usage, gemini_usage(chunk.usage_metadata))
            if self._usage is not before:
                self.media = gemini_media(chunk.usage_metadata)
        blocked = getattr(chunk.prompt_feedback, "block_reason", None)
        if blocked is not None and not chunk.candidates:
            raise RefusedError(f"the provider refuses this request: {self.faults.clean(_text_of_enum(blocked), 80)}")
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                yield from self._part(part)
            if candidate.grounding_metadata is not None:
                self._grounds = candidate.grounding_metadata
                self.note_hosted("web_search")
                queries = candidate.grounding_metadata.web_search_queries
                self.searches = gemini_searches(queries, each=self.bills_each_query) or self.searches
            if getattr(candidate, "url_context_metadata", None) is not None:
                self.note_hosted("web_fetch")
            if candidate.logprobs_result is not None:
                self.add_logprobs(_weights(candidate.logprobs_result))
            if candidate.finish_reason is not None:
                self._reason = _text_of_enum(candidate.finish_reason)
                self._why = self.faults.clean(getattr(candidate, "finish_message", None) or "", 200)

    def finish(self) -> Iterable[Delta]:
        """The end of the reply; nothing without a finish reason, because then the connection was dropped."""
        if self._reason is None:
            return
        if self._reason in _BROKEN and not self.calls:
            raise TransientError(f"the model wrote a malformed call ({self._reason}) {self._why}".rstrip())
        cites = [] if self._grounds is None else list(google_citations(self._grounds, "".join(self._texts)))
        if cites:
            yield self.keep_item(VENDOR, {"on": "cited"}, cites=cites)
        yield from self.end(self.stop(self._reason, _REASONS), self._usage, self._why)

    def _part(self, part: Part) -> Iterable[Delta]:
        call = part.function_call
        signature = part.thought_signature
        if call is None and part.text is None and (own := _dump_part(part)):
            self.silent = False  # from the provider's own tools: sent back unchanged
            yield self.keep_item(VENDOR, {"on": "part", "part": own})
            return
        if signature is not None:
            on = "call" if call is not None else "text"
            item = {"on": on, "signature": base64.b64encode(signature).decode()}
            self.silent = False
            yield self.keep_item(VENDOR, item)
        if call is not None:
            given = _wire.encode(call.args or {}).decode()
            self.silent = False
            yield ToolCallDelta(
                index=self.calls, id=call.id or "", name=self.resolve_tool_name(call.name or ""), arguments=given
            )
            self.calls += 1
        elif part.text and part.thought:
            yield self.add_thinking(part.text)
        elif part.text:
            said = self.add_text(part.text)
            self._texts.append(said.text)
            yield said
        if signature is not None and call is None:
            yield self.keep_item(VENDOR, {"on": "cut"})


def _dump_part(part: Part) -> dict[str, Any]:
    """A part that is neither text nor a call, in the form to send back; empty if it is only a signature."""
    dumped: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped if set(dumped) - {"thoughtSignature", "thought"} else {}


def _weights(given: LogprobsResult) -> list[dict[str, Any]]:
    """The tokens of a piece of a reply with their probabilities, as OpenAI writes them."""
    others = [place.candidates or () for place in given.top_candidates or ()]
    found = []
    for number, chosen in enumerate(given.chosen_candidates or ()):
        top = others[number] if number < len(others) else ()
        entries = [{"token": one.token or "", "logprob": one.log_probability or 0.0} for one in (chosen, *top)]
        found.append({**entries[0], "top_logprobs": entries[1:]})
    return found


def _text_of_enum(reason: object) -> str:
    return str(getattr(reason, "value", reason))
