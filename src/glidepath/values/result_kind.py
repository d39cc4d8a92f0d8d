"""The kinds of results that calls get for other reasons than what their tool returned or raised."""

from __future__ import annotations

from enum import Enum
from typing import Self


class ResultKind(str, Enum):
    """Why a call has the result it has, where that is not simply what its tool returned or raised.

    `ran`: its tool was called. `failed`: it counts as a failure of the tool, or of the model that called it; what a
    person, a hook or a limit refused does not. `early`: it may be refused before its tool is looked up. A new kind says
    all of it here, and nobody keeps its own list.
    """

    ran: bool
    failed: bool
    early: bool

    UNKNOWN_TOOL = ("unknown_tool", False, True, True)
    HIDDEN_TOOL = ("hidden_tool", False, False)
    INVALID_ARGUMENTS = ("invalid_arguments", False, True)
    POLICY_FAILED = ("policy_failed", False, True, True)
    BREAKER_OPEN = ("breaker_open", False, True)
    CUT = ("cut", False, True)
    WITHDRAWN = ("withdrawn", False, False, True)
    SKIPPED = ("skipped", False, False, True)
    BLOCKED = ("blocked", False, False)
    DENIED = ("denied", False, False)
    NOT_DECIDED = ("not_decided", False, False)
    INTERRUPTED = ("interrupted", False, False, True)
    ANSWERED = ("answered", False, True)
    CANCELLED = ("cancelled", True, False, True)
    """Stopped while it ran, or before: what it has done is not known to be nothing."""
    ABORTED = ("aborted", True, False)
    TIMEOUT = ("timeout", True, True)
    NOT_STOPPED = ("not_stopped", True, True)
    CANCELLED_INSIDE = ("CancelledError", True, True)
    NOT_SHOWN = ("not_shown", True, True)
    UNKNOWN_EFFECT = ("unknown_effect", True, True)
    LANDING = ("landing", True, True)

    def __new__(cls, value: str, ran: bool, failed: bool, early: bool = False) -> Self:  # noqa: D102 - of an enumeration
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.ran, kind.failed, kind.early = ran, failed, early
        return kind


_DIED = "the process died while this call was running"


class Unknown(str, Enum):
    """Why nobody knows the outcome of a call, in a word or two; `reason` says it to the model.

    The result of such a call has it in its details, as `unknown`.
    """

    reason: str

    DIED = ("died in it", _DIED)
    REDACTED = ("redacted", f"{_DIED}, and its stored arguments are redacted")
    TOOL_GONE = ("tool gone", f"{_DIED}, and its tool no longer exists")
    ARGUMENTS = ("arguments no longer fit", f"{_DIED}, and its tool no longer takes its arguments")
    IMPORTED = ("imported", "this call had begun elsewhere, before its session was imported")
    CHILD_LOST = ("child lost", "an agent that this call had started cannot be found any more")
    STATE_LOST = ("state lost", "this call had begun, and what it needs to continue was not kept")
    NOT_CONTINUED = ("not continued", "this call had begun, and did not continue")
    DAMAGED = ("damaged", "the part of the journal that may have had the result of this call is damaged")
    SERVER_LOST = ("server lost", "the server was lost while this call was in flight")
    STOPPED = ("stopped", "the run ended while this call was running in the background, and stopped it")
    RUN_FAILED = ("run failed", "the run failed while this call may have been running")

    def __new__(cls, value: str, reason: str) -> Self:  # noqa: D102 - of an enumeration
        why = str.__new__(cls, value)
        why._value_ = value
        why.reason = reason
        return why

    @classmethod
    def from_value(cls, value: str) -> Unknown:
        """The one of this value; an unknown one is the most common."""
        return next((why for why in cls if why.value == value), cls.DIED)

    def details(self) -> dict[str, str]:
        """What the result of such a call has in its details."""
        return {"unknown": self.value}
