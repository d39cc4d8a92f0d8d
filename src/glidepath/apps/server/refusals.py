"""What the server refuses: a status, a word for programs, and one sentence with the fix."""

from __future__ import annotations

from glidepath.values import GlidepathError

_OPENAI = "/v1/"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class HttpError(GlidepathError):
    """A request that is answered with an error; nothing was changed."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: int | None = None, *, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.param = param
        """The field of the request that is wrong, where there is one."""

    def body_for(self, path: str) -> dict[str, dict[str, str | None]]:
        """The answer's JSON, as the protocol behind this path has it."""
        error: dict[str, str | None] = {"code": self.code, "message": str(self)}
        if path.startswith(_OPENAI):
            error |= {"type": _TYPES.get(self.status, _type_of(self.status)), "param": self.param}
        return {"error": error}


def _type_of(status: int) -> str:
    return "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - where the server's own begin
