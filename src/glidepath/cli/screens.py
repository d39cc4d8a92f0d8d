"""What a run shows: nothing but its answer, one JSON object, one event per line, or a live screen."""

from __future__ import annotations

from typing import Any, Protocol

from glidepath import _wire
from glidepath.cli.status import clip, printable
from glidepath.cli.world import World
from glidepath.events import Event
from glidepath.outcome import AgentState, LoopOutcome, RunResult

__all__ = ["JsonScreen", "PlainScreen", "Screen", "StreamScreen", "ending"]

_MOST_WORDS = 500
_encode = _wire.encoder(enc_hook=repr)


class Screen(Protocol):
    """Where a run is shown."""

    def show(self, event: Event) -> None:
        """An event happened."""
        ...

    def say(self, text: str) -> None:
        """The command itself has something to say."""
        ...

    def finish(self, result: RunResult) -> None:
        """The run ended."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; called on every path."""
        ...


class PlainScreen:
    """The answer on standard output and nothing else there; how it ended on the error stream, when it was not done."""

    def __init__(self, world: World) -> None:
        self._world = world

    def show(self, event: Event) -> None:
        """Nothing is shown while it runs."""

    def say(self, text: str) -> None:
        """Said on the error stream."""
        self._world.note(text)

    def finish(self, result: RunResult) -> None:
        """Print the answer, then say how it ended if that is not plain."""
        if result.text:
            # In a pipe every byte is the model's; a terminal could be steered by them.
            shown = printable(result.text) if self._world.is_terminal(self._world.stdout) else result.text
            self._world.write(shown.rstrip("\n") + "\n")
        words = ending(result)
        if words:
            self._world.note(f"[{words}]")

    def close(self) -> None:
        """Nothing to leave."""


class JsonScreen(PlainScreen):
    """The result as one JSON object on standard output."""

    def finish(self, result: RunResult) -> None:
        """Print the result."""
        self._world.write(_encode(result).decode() + "\n")


class StreamScreen(PlainScreen):
    """Every event as a line of JSON on standard output; the last is RunEnded with the result."""

    def show(self, event: Event) -> None:
        """Print the event."""
        self._world.write(_encode(event).decode() + "\n")

    def finish(self, result: RunResult) -> None:
        """The last event has said it all."""


def ending(result: RunResult) -> str:
    """How a run ended, in a few words; empty when it was simply done."""
    if result.outcome is LoopOutcome.DONE and result.cause is None:
        return ""
    why: Any = result.cause.reason if result.cause is not None else ""
    state = result.state.name.lower().replace("_", " ")
    words = result.outcome.name.lower().replace("_", " ")
    if result.outcome is LoopOutcome.PAUSED:
        waiting = ", ".join(pending.call.name for pending in result.pending)
        return f"paused: waits for a decision about {waiting}" if waiting else "paused"
    if result.state is not AgentState.COMPLETED and state != words:
        words = f"{words}, {state}"
    return clip(f"{words}: {why}", _MOST_WORDS) if why else words
