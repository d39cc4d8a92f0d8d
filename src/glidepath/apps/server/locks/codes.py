"""One-time codes: what a browser is given instead of the token, so that no secret is on a command line or in a log."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

__all__ = ["OneTimeCodes"]


class OneTimeCodes:
    """One code is good at a time. The first caller who brings it gets the token, and the next code takes its place."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._code = secrets.token_urlsafe(32)
        self.on_change: Callable[[str], None] | None = None
        """Called with the next code when one was used."""

    @property
    def code(self) -> str:
        """The code that is good now."""
        return self._code

    def redeem(self, code: str) -> str | None:
        """The token for a code that is good; None for any other, which changes nothing."""
        if not hmac.compare_digest(self._code.encode(), code.encode("utf-8", "replace")):
            return None
        self._code = secrets.token_urlsafe(32)
        if self.on_change is not None:
            self.on_change(self._code)
        return self._token
