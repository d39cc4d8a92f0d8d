"""What is answered where a handler raises: the refusal, in the form that the protocol of the path has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from glidepath import _wire
from glidepath.apps.server.hub import refusal_of
from glidepath.apps.server.refusals import HttpError
from glidepath.values import ConfigurationError, StoreError

__all__ = ["ERROR_HANDLERS", "raise_not_found"]


def _path_of(request: Request) -> str:
    """The path below the one under which somebody has mounted this application."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


async def raise_not_found(_: Request) -> Response:
    """Answer that there is no such path."""
    raise HTTPException(404)


def _answer(refused: HttpError, request: Request, headers: Mapping[str, str]) -> Response:
    body = _wire.encode(refused.body_for(_path_of(request)))
    return Response(body, refused.status, media_type="application/json", headers=dict(headers))


async def _make_refusal_response(request: Request, error: Exception) -> Response:
    refused: Any = error
    headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
    return _answer(refused, request, headers)


async def _make_http_error_response(request: Request, error: Exception) -> Response:
    known: Any = error
    code = {404: "not_found", 405: "method_not_allowed"}.get(known.status_code, "refused")
    message = "there is no such path: GET /openapi.json lists them" if code == "not_found" else str(known.detail)
    return _answer(HttpError(known.status_code, code, message), request, known.headers or {})


async def _make_unavailable_response(request: Request, error: Exception) -> Response:
    known: Any = error
    return await _make_refusal_response(request, refusal_of(known))


ERROR_HANDLERS: dict[Any, Any] = {
    HttpError: _make_refusal_response,
    HTTPException: _make_http_error_response,
    ConfigurationError: _make_unavailable_response,
    StoreError: _make_unavailable_response,
}
