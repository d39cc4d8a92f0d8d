"""What the server refuses: a status, a word for programs, and one sentence with the fix."""

from __future__ import annotations

from glidepath.values import GlidepathError


class HttpError(GlidepathError):
    """A request that is answered with an error; nothing was changed."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, dict[str, str]]:
        """The answer's JSON."""
        return {"error": {"code": self.code, "message": str(self)}}
