"""Which paths the gate knows, and what each of them means. Everything else is refused, never passed on."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from glidepath._wire import Value

_SEGMENT = re.compile(rb"[A-Za-z0-9._~@+:=-]{1,128}\Z")
_MODEL = re.compile(r"[A-Za-z0-9._~@+-]{1,128}(?:%3[Aa][A-Za-z0-9._~@+-]{1,64})?")
_ENDPOINTS = {
    "/messages": ("anthropic", "generate"),
    "/messages/count_tokens": ("anthropic", "count_tokens"),
    "/chat/completions": ("openai-chat", "generate"),
    "/responses": ("openai-responses", "generate"),
}
_GEMINI = {"generateContent": (False, "generate"), "streamGenerateContent": (True, "generate")}
_GEMINI_ACTIONS = re.compile(rf"/models/({_MODEL.pattern}):(generateContent|streamGenerateContent|countTokens)\Z")
_MODELS = re.compile(rf"/models(?:/{_MODEL.pattern})?\Z")
_TAIL = re.compile(r"(?:/messages(?:/count_tokens)?|/chat/completions|/responses|/models(?:/[^/]*)?)\Z")
_VERSIONS = ("/v1", "/v1beta", "/v1alpha")
_MOST_SEGMENTS = 8


class GateRoute(Value, frozen=True, kw_only=True):
    """What a path asks for. Without a dialect it is the base URL itself, which clients knock at with HEAD."""

    line: tuple[str, ...]
    dialect: str = ""
    operation: str = ""
    path: str = ""
    path_model: str | None = None
    is_streamed_by_path: bool | None = None


def read_route(method: str, raw_path: bytes) -> GateRoute | None:
    """The route of a percent-encoded path, or None for one that the gate does not have.

    A base URL with one `/v1` too many or too few is understood: clients disagree about who writes it.
    """
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError:
        return None
    found = _TAIL.search(path)
    version, start = ("/v1", len(path)) if found is None else _read_version(path, found.start())
    line = _read_line(path[:start])
    if line is None:
        return None
    if found is None:
        return GateRoute(line=line) if method == "HEAD" else None
    return _read_endpoint(method, line, version, found[0])


def _read_version(path: str, end: int) -> tuple[str, int]:
    """The version before an endpoint, and where the first of several begins.

    A loop: a regular expression that may repeat here takes seconds for a path of ten thousand versions.
    """
    version, start = "", end
    while (found := next((one for one in _VERSIONS if path.endswith(one, 0, start)), None)) is not None:
        version, start = version or found, start - len(found)
    return version or "/v1", start


def _read_endpoint(method: str, line: tuple[str, ...], version: str, rest: str) -> GateRoute | None:
    path = version + rest
    known = _ENDPOINTS.get(rest)
    if known is not None and version == "/v1":
        if method != "POST":
            return None
        return GateRoute(line=line, dialect=known[0], operation=known[1], path=path)
    action = _GEMINI_ACTIONS.match(rest)
    if action is not None:
        if method != "POST":
            return None
        streamed, operation = _GEMINI.get(action[2], (None, "count_tokens"))
        model = unquote_to_bytes(action[1]).decode("ascii")
        return GateRoute(
            line=line,
            dialect="gemini",
            operation=operation,
            path=path,
            path_model=model,
            is_streamed_by_path=streamed,
        )
    if method == "GET" and _MODELS.match(rest):
        dialect = "openai-chat" if version == "/v1" else "gemini"
        return GateRoute(line=line, dialect=dialect, operation="models", path=path)
    return None


def _read_line(path: str) -> tuple[str, ...] | None:
    """The segments before the endpoint; None for what no line can be."""
    segments = [segment for segment in path.split("/") if segment]
    if len(segments) > _MOST_SEGMENTS:
        return None
    plain = [unquote_to_bytes(segment) for segment in segments]
    if any(not _SEGMENT.match(one) or one in (b".", b"..", b"v1", b"v1beta") for one in plain):
        return None
    return tuple([one.decode("ascii") for one in plain])


def guess_dialect(raw_path: bytes) -> str:
    """The dialect in which to refuse a path that is not known: by the words in it."""
    if b"/messages" in raw_path:
        return "anthropic"
    if b"/responses" in raw_path:
        return "openai-responses"
    return "gemini" if b"/v1beta" in raw_path else "openai-chat"
