"""Maps every error of an SDK or of the transport to one kind of `ModelError`."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard

from glidepath.values import (
    ContextOverflowError,
    InconsistentHistoryError,
    ModelError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)

_SHOWN = 500
_RATE_LIMITED, _TOO_LARGE = 429, 413
_PASSING = frozenset({408, 409, 425, 499})
_NEVER = frozenset({501, 505})
_CLIENT_FAULT, _SERVER_FAULT = 400, 500

# Codes and error types of all providers. If there is one, the message is not searched.
_CODES: Mapping[type[ModelError], str] = {
    ContextOverflowError: """
        context_length_exceeded exceed_context_size_error model_context_window_exceeded request_too_large
        string_above_max_length
    """,
    RateLimitedError: """
        rate_limit_exceeded rate_limit_error too_many_requests resource_exhausted servicequotaexceededexception
        throttlingexception
    """,
    RejectedError: """
        authentication_error billing_error billing_hard_limit_reached insufficient_quota invalid_api_key
        model_not_found not_found_error permission_error
    """,
    RefusedError: """
        bio_policy content_filter content_policy_violation image_content_policy_violation invalid_prompt
        misalignment_policy_violation
    """,
    TransientError: """
        aborted api_error deadline_exceeded internal internalserverexception modelnotreadyexception
        modelstreamerrorexception modeltimeoutexception overloaded_error server_error serviceunavailableexception
        timeout_error unavailable vector_store_timeout
    """,
}
_BY_CODE = {code: kind for kind, codes in _CODES.items() for code in codes.split()}
_REFUSALS = frozenset({"validationexception", "accessdeniedexception", "resourcenotfoundexception"})
"""What Bedrock sends in a stream when the request is at fault; the message may say that it was too long."""
# Anthropic, Google and vLLM have no code for these two: only then is the message searched.
_OVERFLOW = re.compile(
    r"(?:prompt|input) is too long|maximum context length"
    r"|exceeds? the (?:maximum|model's|available) .{0,40}(?:tokens|context)"
    r"|input token count .{0,40}exceeds|context (?:window|length) .{0,40}exceed"
    r"|exceed.{0,30}context (?:window|length|size|limit)",
    re.IGNORECASE,
)
_HISTORY = re.compile(
    r"^messages\.\d+|`?tool_(?:use|result|calls)`?.{0,40}(?:must|without|ids)"
    r"|function (?:call|response) (?:turn|parts)",
    re.IGNORECASE,
)
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai)-[A-Za-z0-9_\-]{12,}|\bAIza[A-Za-z0-9_\-]{20,}|(?i:bearer)\s+[^\s'\",]{8,}"
)
_SHORTEST_SECRET = 4
_ADVICE = {
    401: "the key was not accepted",
    403: "the key may not do this",
    404: "there is no such model or address",
}
_PAGE = re.compile(r"<(style|script)\b.*?</\1>|<[^<>]*>", re.IGNORECASE | re.DOTALL)
_MOST_PAGE = 4_000
_ASTRAY = ("TooManyRedirects", "UnsupportedProtocol", "InvalidURL")


class Faults:
    """Explains errors of one model object; its texts never contain a key."""

    __slots__ = ("_advice", "_secrets", "_who")

    def __init__(self, who: str, secrets: Iterable[Any], advice: str) -> None:
        self._who = who
        known = {text for text in secrets if isinstance(text, str) and len(text) >= _SHORTEST_SECRET}
        self._secrets = sorted(known, key=len, reverse=True)
        self._advice = advice

    def clean(self, text: object, shown: int = _SHOWN) -> str:
        """The text without keys, on one line, not too long."""
        clean = str(text)
        for secret in self._secrets:
            clean = clean.replace(secret, "[key]")
        clean = " ".join(_KEYS.sub("[key]", clean).split())
        return clean if len(clean) <= shown else clean[: shown - 3] + "..."

    def explain(self, error: BaseException) -> ModelError:
        """The `ModelError` for an exception of an SDK or the transport."""
        if isinstance(error, ModelError):
            return error
        status = _status(error)
        if status is not None or getattr(error, "body", None) is not None:
            response = getattr(error, "response", None)
            headers = getattr(response, "headers", None) or {}
            body = getattr(error, "body", None)
            body = getattr(error, "details", None) if body is None else body
            return self.refusal(status, body, headers, str(getattr(error, "message", None) or error))
        return self._make_transport_error(error)

    def make_unsent_error(self, error: BaseException) -> ModelError:
        """The error for an exception before any answer: retrying does not help a request that cannot be written."""
        if isinstance(error, TypeError | ValueError | RecursionError) and _status(error) is None:
            said = self.clean(error, 200)
            return RejectedError(f"{self._who}: the request cannot be written ({type(error).__name__}: {said})")
        return self.explain(error)

    def refusal(self, status: int | None, body: object, headers: object = (), text: str = "") -> ModelError:
        """The error for an HTTP status with a body, or for an error event in mid-stream."""
        inner = _inner(body)
        message = _message(inner) or text
        status = _status_in_stream(inner) if status is None else status
        codes = [str(inner[field]).lower() for field in ("code", "type", "status") if inner.get(field)]
        codes = [self.clean(code, 60) for code in codes if not code.isdigit()]
        details = inner.get("details")
        if isinstance(details, Mapping) and details.get("error_code"):
            codes.insert(0, str(details["error_code"]).lower())
        kind = next((_BY_CODE[code] for code in codes if code in _BY_CODE), None) or _kind(status, inner, message or "")
        said = self.clean(message or "no message")
        where = ", ".join([part for part in (str(status or ""), *codes[:1]) if part])
        what = f"{self._who} answered {where}: {said}" if where else f"{self._who}: {said}"
        if kind is RateLimitedError:
            return RateLimitedError(what, retry_after=retry_after(headers) or _delay(details))
        if kind is TransientError:
            return TransientError(what, retry_after=retry_after(headers) or _delay(details))
        if kind is RejectedError and status in _ADVICE:
            return RejectedError(f"{what} ({_ADVICE[status]}; {self._advice})")
        if status is not None and status < _CLIENT_FAULT:
            return RejectedError(f"{what} (the server redirects: check base_url)")
        return kind(what)

    def _make_transport_error(self, error: BaseException) -> ModelError:
        causes = list(_chain(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return RejectedError(f"{self._who}: the server's certificate is not trusted: {self.clean(cause)}")
            if type(cause).__name__ == "ConnectTimeout":
                return TransientError(f"{self._who}: could not connect in time (connect_timeout)")
            if isinstance(cause, ConnectionRefusedError):
                return TransientError(f"{self._who}: nothing answers at this address: is the server running?")
            if type(cause).__name__ in _ASTRAY:
                said = self.clean(cause, 200)
                return RejectedError(f"{self._who}: the address cannot be reached: {said} (check base_url)")
        root = causes[-1]
        words = self.clean(str(root) or str(error) or "no message")
        return TransientError(f"{self._who}: {type(error).__name__}: {words}")


def _kind(status: int | None, inner: Mapping[str, Any], message: str) -> type[ModelError]:
    """The kind of error if no code tells."""
    if status == _RATE_LIMITED:
        return RateLimitedError
    if status == _TOO_LARGE or (_OVERFLOW.search(message) and (status is None or status < _SERVER_FAULT)):
        return ContextOverflowError
    if status is None or status in _PASSING or (status >= _SERVER_FAULT and status not in _NEVER):
        return TransientError
    if (
        inner.get("param")
        and str(inner["param"]).startswith(("messages", "input[", "input."))
        and not inner.get("code")
    ):
        return InconsistentHistoryError
    return InconsistentHistoryError if _HISTORY.search(message) else RejectedError


def _status(error: BaseException) -> int | None:
    """The HTTP status; an error inside a stream that began well has none, whatever its response says."""
    for field in ("status_code", "code"):
        status = getattr(error, field, None)
        if _is_status(status):
            return status
    return None


def _is_status(number: object) -> TypeGuard[int]:
    """A status that does not mean success; the SDKs follow redirects, so a remaining one is an error."""
    return type(number) is int and 300 <= number < 600  # noqa: PLR2004 - the statuses of HTTP


def _status_in_stream(inner: Mapping[str, Any]) -> int | None:
    """The status that an error names in a stream that began well, as gateways do."""
    code = inner.get("code")
    if str(inner.get("type")).lower() in _REFUSALS:
        return _CLIENT_FAULT
    if isinstance(code, str) and code.isdigit() and len(code) == 3:  # noqa: PLR2004 - the statuses of HTTP
        code = int(code)
    return code if _is_status(code) and code >= _CLIENT_FAULT else None


def _inner(body: object) -> Mapping[str, Any]:
    """The object that describes the error, however deeply nested."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if isinstance(body, str):
        return {"message": body}
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    if isinstance(inner, Mapping):
        return inner
    return {**body, "message": inner} if isinstance(inner, str) else body


def _message(inner: Mapping[str, Any]) -> str:
    """The message of an error, wherever it is, with that of the provider behind a gateway."""
    detail = inner.get("detail")
    found = (inner.get("message"), str(detail) if detail else None, inner.get("msg"))
    said = next((text for text in found if isinstance(text, str) and text.strip()), "")
    if said.lstrip().startswith("<"):  # an HTML page
        said = _PAGE.sub(" ", said[:_MOST_PAGE])
    metadata = inner.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return f"{said} ({raw[:_MOST_PAGE]})" if said and isinstance(raw, str) and raw not in said else said


def _chain(error: BaseException) -> Iterable[BaseException]:
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        yield step
        step = step.__cause__ or step.__context__


def retry_after(headers: object) -> float | None:
    """The seconds a provider asks to wait: `retry-after-ms`, or `retry-after` as a number or a date."""
    get = getattr(headers, "get", None)
    if get is None:
        return None
    milliseconds = _number(get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    given = get("retry-after")
    seconds = _number(given)
    if seconds is not None or not isinstance(given, str):
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _delay(details: object) -> float | None:
    """The delay that Google puts into the body: a RetryInfo with a `retryDelay` such as "34s"."""
    for detail in details if isinstance(details, list) else ():
        given = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(given, str):
            return _number(given.removesuffix("s"))
    return None


def _number(text: str | float | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
