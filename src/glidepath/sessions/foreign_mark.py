"""Sessions of programs that are not glidepath's own: the gate has written their journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.sessions.fold import Folded
    from glidepath.spi import Entry

GATE = "gate"
"""The kind of such a session in its summary, the start of its id, and the name of the gate's note in its state."""
RECORDING = "recording"
"""The kind, in its summary, of the session that holds what the gate has recorded of another one, as a child of it."""
TAPE_HEAD, TAPED_CALL, TAPE_END = RECORDING, "exchange", "recorded"
"""The records of a recording."""


def is_recording(entry: Entry) -> bool:
    """True for the session that holds a recording: no run has ever been in it."""
    return entry.summary.get("kind") == RECORDING


def is_foreign(entry: Entry) -> bool:
    """True for a session of a program that went through the gate. A fork of one is ours."""
    return entry.summary.get("kind") == GATE and not entry.summary.get("forked")


def foreign_program(folded: Folded) -> str | None:
    """The program whose session this is; None for one of ours, a fork of a foreign one included."""
    per_run = folded.fields.get("per_run")
    notes = per_run.get("notes") if isinstance(per_run, dict) else None
    if not isinstance(notes, dict) or GATE not in notes or folded.forked is not None:
        return None
    return "another program" if folded.began is None or not folded.began.agent else folded.began.agent


def refuse_foreign(folded: Folded) -> Folded:
    """The same, when it is a session of ours; raises `ConfigurationError` for one that only its program continues."""
    if folded.session.id.rpartition("/")[2].startswith(f"{RECORDING}.") and folded.began is None:
        raise _refuse_recording(folded.session.id)
    program = foreign_program(folded)
    if program is not None:
        raise _refusal(folded.session.id, program)
    return folded


def refuse_foreign_entry(entry: Entry) -> None:
    """Raise `ConfigurationError` for a session that only its program continues."""
    if is_recording(entry):
        raise _refuse_recording(entry.session_id)
    if is_foreign(entry):
        raise _refusal(entry.session_id, str(entry.summary.get("agent") or "another program"))


def _refuse_recording(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"session {name!r:.120} is a recording: there is no run in it to continue. Replay it with `glidepath replay "
        f"{name.rpartition('/')[0]} -- COMMAND`"
    )


def _refusal(name: str, program: str) -> ConfigurationError:
    return ConfigurationError(
        f"session {name!r:.120} is a run of {program} that went through the gate: glidepath does not have its tools, "
        f"and cannot continue in its place. Continue it in {program}, through the gate, or copy what was said with "
        f"`glidepath sessions fork {name}` and run an agent of yours in the copy"
    )
