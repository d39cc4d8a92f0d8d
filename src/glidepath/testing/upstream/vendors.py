"""The four dialects as the server sees them: where each is served, which headers it wants and sends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from glidepath.testing.upstream import chat_write, gemini_write, messages_write
from glidepath.testing.upstream.asked import AskedCall, IllegalRequestError
from glidepath.testing.upstream.chat_read import read_chat
from glidepath.testing.upstream.gemini_read import read_gemini
from glidepath.testing.upstream.issued_ids import IssuedIds
from glidepath.testing.upstream.messages_read import read_messages
from glidepath.testing.upstream.prefix_cache import InputTokens, PrefixCache
from glidepath.testing.upstream.reported import Piece, Reported
from glidepath.testing.upstream.responses_read import StoredResponses, read_response
from glidepath.testing.upstream.responses_write import ResponsesWriter
from glidepath.testing.upstream.spoken import Spoken

Headers = Mapping[str, str]
MODELS = ("claude-sonnet-4-5", "claude-haiku-4-5", "gpt-5", "gpt-4o-mini", "gemini-2.5-pro", "gemini-2.5-flash")
GEMINI = re.compile(r".*/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)")


class Vendor:
    """One dialect: a subclass for each."""

    name: str

    def read(self, body: dict[str, Any], path: str, query: Mapping[str, str]) -> AskedCall:
        """Read a request; raises `IllegalRequestError` as the vendor would refuse it."""
        raise NotImplementedError

    def look_up(self, cache: PrefixCache, asked: AskedCall) -> InputTokens:
        """What the input costs, with what the prompt cache holds of it."""
        return cache.look_up(asked.model, asked.blocks)

    def write_whole(self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
        """A reply that is not streamed."""
        raise NotImplementedError

    def write_stream(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int
    ) -> Iterator[Piece]:
        """A streamed reply, with deltas of about `size` characters."""
        raise NotImplementedError

    def write_error(self, error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:
        """The body of an error."""
        return chat_write.write_error(error, ids)

    def write_count(self, tokens: int) -> dict[str, Any]:
        """The answer to a request that only counts."""
        return {"input_tokens": tokens}

    def is_count(self, path: str) -> bool:  # noqa: ARG002 - not every vendor counts
        """Whether that path only counts tokens."""
        return False

    def stream_type(self, asked: AskedCall) -> str:  # noqa: ARG002 - Gemini has two
        """The content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def headers(self, ids: IssuedIds) -> dict[str, str]:
        """Headers of every reply."""
        return {
            "content-type": "application/json",
            "x-request-id": ids.issue("req_"),
            "openai-version": "2020-10-01",
            "openai-processing-ms": "1",
            "x-ratelimit-limit-tokens": "10000000",
            "x-ratelimit-remaining-tokens": "9999999",
        }

    def check_headers(self, headers: Headers, query: Mapping[str, str], keys: frozenset[str] | None) -> None:  # noqa: ARG002
        """Refuse a request without a key, or with one that is not among `keys`."""
        key = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not key:
            raise IllegalRequestError(
                "You didn't provide an API key. You need to provide your API key in an Authorization header using "
                "Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                status=401,
            )
        if keys is not None and key not in keys:
            raise IllegalRequestError("Incorrect API key provided.", status=401)


class AnthropicVendor(Vendor):
    """Anthropic Messages."""

    name = "anthropic"

    def read(self, body: dict[str, Any], path: str, query: Mapping[str, str]) -> AskedCall:  # noqa: ARG002
        """As `Vendor.read`."""
        return read_messages(body, counting=self.is_count(path))

    def look_up(self, cache: PrefixCache, asked: AskedCall) -> InputTokens:
        """As `Vendor.look_up`; only what the request marks is cached."""
        return cache.look_up_marked(asked.model, asked.blocks)

    def write_whole(self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_whole`."""
        return messages_write.write_whole(asked, spoken, usage, ids)

    def write_stream(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int
    ) -> Iterator[Piece]:
        """As `Vendor.write_stream`."""
        return messages_write.write_stream(asked, spoken, usage, ids, size)

    def write_error(self, error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_error`."""
        return messages_write.write_error(error, ids)

    def is_count(self, path: str) -> bool:
        """As `Vendor.is_count`."""
        return path.endswith("/count_tokens")

    def headers(self, ids: IssuedIds) -> dict[str, str]:
        """As `Vendor.headers`."""
        return {
            "content-type": "application/json",
            "request-id": ids.issue("req_"),
            "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
            "anthropic-ratelimit-input-tokens-limit": "10000000",
            "anthropic-ratelimit-input-tokens-remaining": "9999999",
        }

    def check_headers(self, headers: Headers, query: Mapping[str, str], keys: frozenset[str] | None) -> None:  # noqa: ARG002
        """As `Vendor.check_headers`."""
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not key:
            raise IllegalRequestError("x-api-key header is required", status=401)
        if keys is not None and key not in keys:
            raise IllegalRequestError("invalid x-api-key", status=401)
        if "anthropic-version" not in headers:
            raise IllegalRequestError("anthropic-version: header is required")


class ChatVendor(Vendor):
    """OpenAI chat completions."""

    name = "openai-chat"

    def read(self, body: dict[str, Any], path: str, query: Mapping[str, str]) -> AskedCall:  # noqa: ARG002
        """As `Vendor.read`."""
        return read_chat(body)

    def write_whole(self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_whole`."""
        return chat_write.write_whole(asked, spoken, usage, ids)

    def write_stream(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int
    ) -> Iterator[Piece]:
        """As `Vendor.write_stream`."""
        return chat_write.write_stream(asked, spoken, usage, ids, size)


class ResponsesVendor(Vendor):
    """OpenAI Responses; remembers what it may be asked to continue."""

    name = "openai-responses"

    def __init__(self) -> None:
        self._stored = StoredResponses()

    def read(self, body: dict[str, Any], path: str, query: Mapping[str, str]) -> AskedCall:  # noqa: ARG002
        """As `Vendor.read`."""
        return read_response(body, self._stored)

    def write_whole(self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_whole`."""
        return ResponsesWriter(asked, spoken, usage, ids, self._stored).write_whole()

    def write_stream(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int
    ) -> Iterator[Piece]:
        """As `Vendor.write_stream`."""
        return ResponsesWriter(asked, spoken, usage, ids, self._stored).write_stream(size)


class GeminiVendor(Vendor):
    """Gemini generateContent."""

    name = "gemini"

    def read(self, body: dict[str, Any], path: str, query: Mapping[str, str]) -> AskedCall:
        """As `Vendor.read`; the model and streaming are in the path."""
        found = GEMINI.fullmatch(path)
        if found is None:
            raise IllegalRequestError(f"{path} is not a method of a model", status=404)
        asked = read_gemini(body, found[1])
        asked.stream = found[2] == "streamGenerateContent"
        asked.as_array = query.get("alt") != "sse"
        return asked

    def write_whole(self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_whole`."""
        return gemini_write.write_whole(asked, spoken, usage, ids)

    def write_stream(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, size: int
    ) -> Iterator[Piece]:
        """As `Vendor.write_stream`."""
        return gemini_write.write_stream(asked, spoken, usage, ids, size)

    def write_error(self, error: IllegalRequestError, ids: IssuedIds) -> dict[str, Any]:
        """As `Vendor.write_error`."""
        return gemini_write.write_error(error, ids)

    def write_count(self, tokens: int) -> dict[str, Any]:
        """As `Vendor.write_count`."""
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}

    def is_count(self, path: str) -> bool:
        """As `Vendor.is_count`."""
        return path.endswith(":countTokens")

    def stream_type(self, asked: AskedCall) -> str:
        """As `Vendor.stream_type`."""
        return "application/json; charset=UTF-8" if asked.as_array else "text/event-stream"

    def headers(self, ids: IssuedIds) -> dict[str, str]:  # noqa: ARG002
        """As `Vendor.headers`."""
        return {"content-type": "application/json; charset=UTF-8", "server-timing": "gfet4t7; dur=1"}

    def check_headers(self, headers: Headers, query: Mapping[str, str], keys: frozenset[str] | None) -> None:
        """As `Vendor.check_headers`."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        key = headers.get("x-goog-api-key") or query.get("key") or bearer
        if not key:
            raise IllegalRequestError(
                "Method doesn't allow unregistered callers (callers without established identity).", status=403
            )
        if keys is not None and key not in keys:
            raise IllegalRequestError("API key not valid. Please pass a valid API key.")


def make_vendors() -> dict[str, Vendor]:
    """One of each, by the end of the path that it serves."""
    anthropic = AnthropicVendor()
    return {
        "/v1/messages": anthropic,
        "/v1/messages/count_tokens": anthropic,
        "/v1/chat/completions": ChatVendor(),
        "/v1/responses": ResponsesVendor(),
        ":gemini": GeminiVendor(),
    }


def find_vendor(path: str, vendors: Mapping[str, Vendor]) -> Vendor | None:
    """The vendor that serves that path, whatever comes before it."""
    for end, vendor in vendors.items():
        if path.endswith(end):
            return vendor
    return vendors[":gemini"] if GEMINI.fullmatch(path) else None


def list_models(path: str, headers: Headers) -> dict[str, Any] | None:
    """The answer to `GET /v1/models`, or to one model below it, in the form of the vendor that is asked for it."""
    found = re.fullmatch(r".*/v1(beta|alpha)?/models(?:/([^/]+))?", path)
    if found is None:
        return None
    if found[1]:
        rows = [_gemini_row(name) for name in MODELS]
        return _gemini_row(found[2]) if found[2] else {"models": rows}
    if "anthropic-version" in headers:
        row = {"type": "model", "created_at": "2026-01-01T00:00:00Z"}
        listed = [{**row, "id": name, "display_name": name} for name in ([found[2]] if found[2] else MODELS)]
        ends = {"has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
        return listed[0] if found[2] else {"data": listed, **ends}
    own = {"object": "model", "created": 1767225600, "owned_by": "scripted"}
    return {"id": found[2], **own} if found[2] else {"object": "list", "data": [{"id": name, **own} for name in MODELS]}


def _gemini_row(name: str) -> dict[str, Any]:
    methods = ["generateContent", "countTokens"]
    return {
        "name": f"models/{name}",
        "displayName": name,
        "version": "001",
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": methods,
    }
