"""What a fleet writes beside its journals, put through a redaction hook: tasks, metadata, users and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.sessions import Hook, RedactingStore, Redactor
from glidepath.spi import SessionStore
from glidepath.values import ConfigurationError, StoreError

_HIDDEN = "the reason may not be stored: the redaction hook failed"


class FleetRedaction:
    """The hook of a fleet or of a worker; without one, everything is written as it is."""

    def __init__(self, hook: Hook | None) -> None:
        if hook is not None and not callable(hook):
            raise ConfigurationError(f"redact must be a function of a str, not {hook!r:.80}")
        self._hook = hook

    def store(self, store: SessionStore) -> Any:
        """The store, whose content goes through the hook."""
        return store if self._hook is None else RedactingStore(store, self._hook)

    def redact_tasks(self, tasks: Sequence[str]) -> list[str]:
        """The tasks as they are queued, and as the models will read them. Raises `StoreError` if the hook fails."""
        kept = [self._text(task) for task in tasks]
        if not all(task.strip() for task in kept):
            raise ConfigurationError("the redaction hook leaves nothing of a task, so there is nothing to do")
        return kept

    def redact_metadata(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """The user and the metadata of a run; the name of its wallet is kept, as it is in a journal."""
        found = dict(about)
        if "user" in found:
            found["user"] = self._text(found["user"])
        if "metadata" in found:
            found["metadata"] = {name: self._text(text) for name, text in found["metadata"].items()}
        return found

    def reason(self, reason: str | None) -> str | None:
        """Why a run ended; a sentence instead of it if the hook fails, because every run must end."""
        try:
            return None if reason is None else self._text(reason)
        except StoreError:
            return _HIDDEN

    def _text(self, text: str) -> str:
        return text if self._hook is None else Redactor(self._hook).text(text)
