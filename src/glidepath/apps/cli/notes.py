"""Shared by the commands that leave a note for a run, and by those that say how to leave one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.apps.cli.layers import LoadedSettings
    from glidepath.run import Decision
    from glidepath.spi import SessionStore
    from glidepath.values import RunResult

_SHOWN = 1_000


def add_decision(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the arguments of a decision: the call, the verdict and a text."""
    how = None if required else "?"
    parser.add_argument("call", nargs=how, help="the id of the pending call")
    parser.add_argument("verdict", nargs=how, choices=("approve", "deny", "answer"), help="what to do with it")
    parser.add_argument("text", nargs="*", help="the reason, for deny; the result, for answer")


def read_decision(options: argparse.Namespace) -> dict[str, Decision]:
    """The decision in the options; empty without one."""
    from glidepath.run import answer, approve, deny
    from glidepath.values import ConfigurationError

    if options.call is None:
        return {}
    text = " ".join(options.text)
    if options.verdict == "approve" and not text:
        return {options.call: approve()}
    if options.verdict == "deny":
        return {options.call: deny(text)}
    if options.verdict == "answer" and text:
        return {options.call: answer(text)}
    raise ConfigurationError("expected CALL approve, CALL deny [REASON], or CALL answer TEXT")


def suggest_next_commands(session: str, settings: LoadedSettings, result: RunResult | None) -> Iterator[str]:
    """What to type to continue a run that is not done, a line for each step: decide about its calls, resume it."""
    from glidepath.apps.cli.commands.run_command import resume_line
    from glidepath.apps.cli.exits import STUCK, exit_code

    if result is not None and exit_code(result) == STUCK:
        yield f"it got stuck; to continue with other instructions: {make_next_run_command(session, settings)}"
        return
    if result is not None:
        yield from _suggest_decisions(session, settings, result)
    yield f"to continue: {resume_line(session, settings, result)}"


def amount_used(key: str, result: RunResult | None) -> Any:
    """What a run has used of a limit, in the limit's own unit; 0 where nobody knows."""
    if result is None:
        return 0
    used = {
        "limits.max_iterations": result.all_turns,
        "limits.max_tokens": result.usage.total,
        "limits.max_cost": result.cost,
        "limits.timeout": result.elapsed,
        "limits.max_tool_calls": result.all_tool_calls,
    }
    return used.get(key) or 0


def _suggest_decisions(session: str, settings: LoadedSettings, result: RunResult) -> Iterator[str]:
    from glidepath.apps.cli.commands.run_command import repeat_flags
    from glidepath.apps.cli.display_text import call_line, escape_invisible

    of_store = settings.copy()
    of_store.known = {key: known for key, known in settings.known.items() if key == "store"}
    for one in result.pending:
        if len(result.pending) > 1:  # a single one was shown with the end of the run
            yield f"waiting for a decision: {call_line(one.call.name, one.call.arguments, _SHOWN)}"
        how, verdict = "to approve it (or write deny, or answer TEXT)", "approve"
        if one.form is not None:
            how, verdict = "it asks for a form: resume it on a terminal to fill it in, or to deny it", "deny"
        call = shlex.quote(escape_invisible(one.call.id))
        yield " ".join([f"{how}: glidepath decide", shlex.quote(session), call, verdict, *repeat_flags(of_store)])


def make_next_run_command(session: str, settings: LoadedSettings) -> str:
    """The command that gives a session another task, with the model, the tools and the store it was held with."""
    from glidepath.apps.cli.chat_cards import make_session_flags
    from glidepath.apps.cli.commands.run_command import repeat_flags

    flags = [*repeat_flags(settings), *make_session_flags(session, settings)]
    return " ".join(["glidepath run -r", shlex.quote(session), *flags, "TEXT"])


async def describe_outcome(store: SessionStore, session: str) -> str:
    """The outcome of a session's last run; empty while it runs, and when it was interrupted.

    Raises `ConfigurationError` for a session of another program: it cannot be continued here.
    """
    from glidepath.sessions import entry_of, refuse_foreign_entry

    entry = await entry_of(store, session)
    if entry is None:
        return ""
    refuse_foreign_entry(entry)
    return str(entry.summary.get("outcome") or "")
