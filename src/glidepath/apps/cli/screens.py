"""How a run is shown: the answer alone, one JSON object, one event per line, or a live screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from glidepath import _wire
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import call_line
from glidepath.apps.cli.status import clip_line, strip_control_characters
from glidepath.values import AgentState, Event, LoopOutcome, RunResult, ToolEnded, ToolStarted

if TYPE_CHECKING:
    from rich.console import Console

_MOST_WORDS, _MOST_ROWS = 500, 40
_FILLED_IN = ("No answer was written.", "Not started:", "The run waits for a decision.")
"""How texts begin that the runtime writes if there is no answer."""
_encode = _wire.encoder(enc_hook=repr)


class Screen(Protocol):
    """Where a run is shown."""

    def show(self, event: Event) -> None:
        """An event happened."""

    def print_line(self, text: str) -> None:
        """Show a message of the command itself."""

    def finish(self, result: RunResult) -> None:
        """The run ended."""

    def close(self) -> None:
        """Leave the terminal as it was; called on every path."""


class PlainScreen:
    """Only the answer goes to standard output; if the run did not finish, the error stream says how it ended."""

    def __init__(
        self,
        world: CliContext,
        *,
        out: Path | None = None,
        quiet: bool = False,
        verbose: bool = False,
        only_output: bool = False,
    ) -> None:
        self._world = world
        self._out = out
        self._quiet = quiet
        self._verbose = verbose
        self._only_output = only_output

    def show(self, event: Event) -> None:
        """Show nothing during the run; with `verbose`, every call and its result on the error stream."""
        if self._verbose and isinstance(event, ToolStarted):
            self._world.note(f"> {call_line(event.tool_name, event.arguments)}")
        elif self._verbose and isinstance(event, ToolEnded):
            self._world.note(
                "\n".join(f"  {row}" for row in strip_control_characters(event.result.text).splitlines()[:_MOST_ROWS])
            )

    def print_line(self, text: str) -> None:
        """Print a note on the error stream."""
        if not self._quiet:
            self._world.note(text)

    def finish(self, result: RunResult) -> None:
        """Print the answer, then how it ended unless it is done. Text of the runtime itself is not an answer."""
        said = answer_of(result)
        if self._only_output:
            said = "" if result.output is None else _encode(result.output).decode()
        if said:
            # A pipe gets the model's bytes unchanged; in a terminal they could be control sequences.
            shown = strip_control_characters(said) if self._world.is_terminal(self._world.stdout) else said
            self._world.write(shown.rstrip("\n") + "\n")
        if self._out is not None:
            write_answer(self._out, said, self._world)
        words = describe_ending(result) or ("" if said else "no answer was written")
        if words and not self._quiet:
            self._world.note(f"[{words}]")
        elif words and not said:
            self._world.complain(words)

    def close(self) -> None:
        """Nothing to clean up."""


class JsonScreen(PlainScreen):
    """The result as one JSON object on standard output."""

    def finish(self, result: RunResult) -> None:
        """Print the result."""
        self._world.write(_encode(result).decode() + "\n")
        if self._out is not None:
            write_answer(self._out, answer_of(result), self._world)


class StreamScreen(PlainScreen):
    """Every event as a line of JSON on standard output; the last is RunEnded with the result."""

    def show(self, event: Event) -> None:
        """Print the event."""
        self._world.write(_encode(event).decode() + "\n")

    def finish(self, result: RunResult) -> None:
        """Nothing: the last event has the result."""


def answer_of(result: RunResult) -> str:
    """The text of the model, or of the tool that ended the run; empty if the runtime wrote the text."""
    text = result.text
    if not text.startswith(_FILLED_IN):
        return text
    said = any(message.text.strip() and text.startswith(message.text.strip()) for message in result.new_messages)
    return text if said else ""


def console_on(stream: TextIO, environ: Mapping[str, str]) -> Console:
    """A rich console for a stream, without rich's own decorations."""
    from rich.console import Console

    plain = bool(environ.get("NO_COLOR"))
    return Console(file=stream, highlight=False, no_color=plain, emoji=False, markup=False, _environ=environ)


def write_answer(path: Path, text: str, world: CliContext) -> None:
    """Write the answer to a file; a failure is reported, not raised, because the answer is on the screen."""
    try:
        path.write_text(f"{text.rstrip()}\n" if text else "", encoding="utf-8")
    except OSError as error:
        world.complain(f"--out: {path} cannot be written: {error.strerror or error}")


def describe_ending(result: RunResult) -> str:
    """How a run ended, in a few words; empty if it is done."""
    if result.outcome is LoopOutcome.DONE and result.cause is None:
        return ""
    why: Any = result.cause.reason if result.cause is not None else ""
    if result.cause is not None and result.cause.source == "output_type":
        why = why.replace("output_type", "the schema")  # here it is a file, not a setting
    state = result.state.name.lower().replace("_", " ")
    words = result.outcome.name.lower().replace("_", " ")
    if result.outcome is LoopOutcome.PAUSED:
        waiting = "; ".join(call_line(one.call.name, one.call.arguments, _MOST_WORDS) for one in result.pending)
        return f"paused: waiting for a decision about {waiting}" if waiting else "paused"
    if result.state is not AgentState.COMPLETED and state != words:
        words = f"{words}, {state}"
    return clip_line(f"{words}: {why}", _MOST_WORDS) if why else words
