"""What a person can decide about a call that waits for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from glidepath import _wire
from glidepath._wire import Value
from glidepath.values import ConfigurationError, Unknown


class Decision(Value, frozen=True, kw_only=True):
    """A decision about one call; made by `approve`, `deny` and `answer`.

    Four do not come from a person. `make_unknown_decision`: a call that had begun when the process died, and may have
    taken effect; `text` says why nobody knows, as a value of `Unknown`. `void`: one that had not begun, and is not
    executed, as its stored arguments are redacted.
    `repeat`: one that had begun and is idempotent; it runs again under the same key, and is unknown where it may not.
    `ask`: a call from an imported journal, about which a person must be asked whatever its tool says.
    """

    kind: Literal["approve", "deny", "answer", "unknown", "repeat", "ask", "void"]
    text: str = ""
    arguments: Mapping[str, Any] | None = None
    digest: str = ""
    """`PendingCall.digest` of the call that the person was shown; empty when nobody said. Another call is refused."""

    @property
    def verdict(self) -> tuple[str, str, Mapping[str, Any] | None]:
        """What was decided, without the digest of what was shown."""
        return self.kind, self.text, self.arguments

    @property
    def in_doubt(self) -> bool:
        """True for a call that had begun: its outcome is its result or unknown, and nothing else."""
        return self.kind in ("unknown", "repeat")


def make_unknown_decision(why: Unknown) -> Decision:
    """Nobody knows the outcome of a call, for this reason."""
    return Decision(kind="unknown", text=why.value)


def approve(arguments: Mapping[str, Any] | None = None, *, digest: str = "") -> Decision:
    """Let the call run, as it was shown or with these arguments instead.

    `digest` is the `PendingCall.digest` of what the person was shown: the decision is refused for any other call.
    """
    if not isinstance(digest, str):
        raise ConfigurationError(f"approve(digest) takes the digest of a PendingCall, not {digest!r:.100}")
    if arguments is None:
        return Decision(kind="approve", digest=digest)
    if not isinstance(arguments, Mapping):
        raise ConfigurationError(f"approve(arguments) takes a mapping of arguments, not {arguments!r:.100}")
    return Decision(kind="approve", arguments=_plain("approve", arguments), digest=digest)


def _plain(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _wire.loads(_wire.encode(dict(arguments)))  # type: ignore[no-any-return]
    except Exception as error:
        raise ConfigurationError(f"{verb}(arguments) takes plain JSON data: {error}") from None


def deny(reason: str = "") -> Decision:
    """Do not let the call run; the model is told why."""
    return Decision(kind="deny", text=_text("deny(reason)", reason))


def answer(text: str | Mapping[str, Any]) -> Decision:
    """Do not let the call run: this text is its result, as if the tool had returned it.

    A call that waits with a form (`PendingCall.form`) takes a mapping with the form's fields, and continues with it.
    """
    if isinstance(text, Mapping):
        return Decision(kind="answer", arguments=_plain("answer", text))
    return Decision(kind="answer", text=_text("answer(text)", text))


def _text(field: str, text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"{field} takes a str, not {text!r:.100}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{field} has a lone surrogate at position {error.start}; remove it") from None
    if "\0" in text:
        raise ConfigurationError(f"{field} contains a NUL character; remove it")
    return str.__str__(text)
