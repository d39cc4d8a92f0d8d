"""The live screen of `glidepath run` on a terminal: the answer as it is written, tool lines, and a status line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.text import Text

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.file_changes import Changes, color_rows, format_difference
from glidepath.apps.cli.markup import Blocks, MarkupBlock, render_block
from glidepath.apps.cli.screens import answer_of, console_on, describe_ending, write_answer
from glidepath.apps.cli.status import (
    Status,
    arguments_line,
    clip_line,
    closing_line,
    guard_line,
    status_line,
    strip_control_characters,
)
from glidepath.values import LoopOutcome, RunResult, events, pluralize

_FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_SIGNS = {"call": "\u25b8", "result": "\u2514", "failed": "\u2717", "note": "!", "dot": " \u00b7 "}
_PLAIN_FRAMES = "|/-\\"
_PLAIN_SIGNS = {"call": ">", "result": "<", "failed": "x", "note": "!", "dot": " | "}
_TICK = 0.1
_MARGIN = 2
_FIRST_LINES = 1
_VERBOSE_ROWS, _DIFF_ROWS = 40, 20
_KEPT_FREE = 3  # rows for the status line


class LiveScreen:
    """Shows a run on a terminal. What scrolls away is final; the last lines are rewritten in place.

    With `echo` the answer is shown here, too; without it, only tools and status are, and the answer goes to standard
    output when the run ends.
    """

    def __init__(
        self,
        world: CliContext,
        status: Status,
        *,
        echo: bool,
        streaming: bool,
        verbose: bool = False,
        out: Path | None = None,
        changes: Changes | None = None,
    ) -> None:
        environ = world.environ
        stream = world.stdout if echo else world.stderr
        self._console = console_on(stream, environ)
        self._world = world
        self._status = status
        self._echo = echo
        self._rows = _VERBOSE_ROWS if verbose else _FIRST_LINES
        self._out = out
        self._changes = changes
        self._streaming = streaming and echo
        self._blocks = Blocks()
        self._frame = 0
        self._shown = False
        self._told = ""
        self._pretty = (self._console.encoding or "").lower().startswith("utf")
        self._frames, self._signs = (_FRAMES, _SIGNS) if self._pretty else (_PLAIN_FRAMES, _PLAIN_SIGNS)
        self._live = Live(Text(""), console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._ticker: asyncio.Task[None] | None = None

    # --- what is shown ------------------------------------------------------------------------------------------

    def show(self, event: events.Event) -> None:
        """Record an event and redraw."""
        self._begin()
        self._status.record_event(event)
        if isinstance(event, events.StreamChunk):
            self._chunk(event)
        elif isinstance(event, events.ToolStarted):
            self._flush()
            call = f"{event.tool_name} {arguments_line(event.arguments)}".rstrip()
            self._print(clip_line(f"{self._signs['call']} {call}", self._width()), "cyan")
        elif isinstance(event, events.ToolEnded):
            self._result(event)
        elif isinstance(event, events.AttemptDiscarded):
            if self._shown:
                self._flush()
                self._print("  (that attempt does not count; trying again)", "dim")
            self._blocks, self._told, self._shown = Blocks(), "", False
        elif isinstance(event, events.RetryScheduled):
            self._print(clip_line(f"  {event.error}", self._width()), "yellow")
        elif isinstance(event, events.GuardTripped):
            self._print(clip_line(f"{self._signs['note']} {guard_line(event)}", self._width()), "yellow")
        elif isinstance(event, events.ApprovalRequested):
            self._flush()
        elif isinstance(event, events.MessageAdded) and event.message.role == "assistant":
            self._flush()
            self._shown = False
        self._draw()

    def print_line(self, text: str) -> None:
        """Print a line above the status."""
        self._status.finish_up()
        self._print(clip_line(text, self._width()), "bold yellow")
        self._draw()

    def finish(self, result: RunResult) -> None:
        """Remove the status line and report how the run ended."""
        self._flush()
        self.close()
        said = answer_of(result).strip()
        if self._out is not None:
            write_answer(self._out, said, self._world)
        if not self._echo:
            if said:
                self._world.write(f"{said}\n")
        elif said and not (self._streaming and self._told.rstrip().endswith(strip_control_characters(said))):
            self._shown = False
            self._place([*(blocks := Blocks()).feed(strip_control_characters(said)), *blocks.end()])
        if self._echo and (said or self._told):
            self._console.print()
        style = "green" if result.outcome is LoopOutcome.DONE and result.cause is None else "yellow"
        words = describe_ending(result)
        if words:
            self._console.print(Text(words, style="bold yellow"))
        closing = closing_line(result, self._width()).replace(" | ", self._signs["dot"])
        self._console.print(Text(closing, style=style if not words else "dim"))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._live.is_started:
            self._live.update(Text(""))
            self._live.stop()

    def pause(self) -> None:
        """Make room for a question to the person."""
        self._flush()
        self.close()

    # --- drawing ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._live.is_started:
            self._live.start()
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._redraw_forever(), name="glidepath-status")

    async def _redraw_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._frame += 1
            self._draw()

    def _width(self) -> int:
        return max(self._console.width - 1, 8)

    def _draw(self) -> None:
        if not self._live.is_started:
            return
        frame = self._frames[self._frame % len(self._frames)]
        line = f"{frame} {status_line(self._status, self._width() - _MARGIN, separator=self._signs['dot'])}"
        parts = [Text(line, style="reverse" if self._console.is_terminal else "", no_wrap=True, overflow="crop")]
        left = self._blocks.open
        if left is not None and left.text:
            rows = left.text.split("\n")[-max(self._console.height - _KEPT_FREE, 1) :]
            parts.insert(0, Text("\n".join([*([""] if self._shown and not left.more else []), *rows])))
        self._live.update(Group(*parts), refresh=True)

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=False)

    def _chunk(self, event: events.StreamChunk) -> None:
        if not self._streaming or event.thinking or event.finished:
            return
        text = strip_control_characters(event.text)
        self._told += text
        self._place(self._blocks.feed(text))

    def _place(self, blocks: Sequence[MarkupBlock]) -> None:
        """Print finished blocks above the status."""
        for block in blocks:
            if self._shown and not block.more:
                self._console.print()
            self._console.print(render_block(block) if self._pretty else Text(block.text))
            self._shown = True

    def _flush(self) -> None:
        blocks, self._blocks = self._blocks, Blocks()
        left = blocks.end()
        if left:
            self._draw()
            self._place(left)

    def _result(self, event: events.ToolEnded) -> None:
        change = None if self._changes is None else self._changes.take_done(event.call_id)
        if change is not None:
            for row, color in color_rows(format_difference(change, self._width(), most=_DIFF_ROWS)):
                self._print(row, color or "dim")
            return
        lines = [line.rstrip() for line in event.result.text.splitlines() if line.strip()] or ["(nothing)"]
        more = len(event.result.text.splitlines()) - self._rows
        sign, style = self._signs["result"], "dim"
        if event.result.is_error:
            sign, style = self._signs["failed"], "red"
        for number, line in enumerate(lines[: self._rows]):
            last = number == min(len(lines), self._rows) - 1
            tail = f" (+{pluralize(more, 'line')})" if last and more > 0 else ""
            shown = f"  {line}" if number else f"{sign} {line.strip()}"
            self._print(clip_line(shown, self._width() - len(tail)) + tail, style)
