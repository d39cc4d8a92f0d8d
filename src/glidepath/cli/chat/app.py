"""The screen of the chat."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events as keys
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static

from glidepath.cli.approval import ApprovalAsked, consult, sandboxed
from glidepath.cli.chat.prompt import Prompt
from glidepath.cli.chat.reply import ChatReply
from glidepath.cli.chat.talk import Talk
from glidepath.cli.screens import ending
from glidepath.cli.status import arguments_line, clip, closing_line, status_line
from glidepath.errors import ConfigurationError
from glidepath.events import AttemptDiscarded, Event, GuardTripped, MessageAdded, StreamChunk, ToolEnded, ToolStarted
from glidepath.outcome import PendingCall
from glidepath.run import Decision

__all__ = ["ChatApp"]

_TICK = 0.25
_LANDING = 3.0
_RESULT_LINES = 6
_WIDE = 60
_DRAWN = 1.0  # seconds at most until a question is taken to be on the screen
_BOX_COLUMNS, _BOX_LINES = 6, 5  # what is around the text of a question
_ALLOW = "y allows it, n does not; or say why not."
_STYLE = """
Screen { layout: vertical; }
#log { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#status { height: 1; padding: 0 1; background: $primary-background; color: $text; }
#prompt { border: none; height: 1; padding: 0 1; }
#line { height: 1; color: $text-muted; }
.you { margin: 1 0 0 0; color: $accent; text-style: bold; }
.note { color: $text-muted; margin: 0 0 1 0; }
.tool { color: $text-muted; border-left: thick $primary; padding: 0 1; margin: 0 0 1 0; }
.failed { border-left: thick $error; }
.ask { border: round $warning; padding: 0 1; margin: 0 0 1 0; }
"""
_WELCOME = "Say something, or type /help. Esc interrupts a turn, Ctrl-D leaves."


class ChatApp(App[int]):
    """Shows a `Talk`. Its return value is the exit code."""

    CSS = _STYLE
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt", priority=True),
        Binding("ctrl+c", "stop", "Stop", priority=True),
        Binding("ctrl+d", "leave", "Leave", priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
    ]

    def __init__(self, talk: Talk) -> None:
        super().__init__()
        self.talk = talk
        self._reply: ChatReply | None = None
        self._cards: dict[str, tuple[Static, str]] = {}
        self._asked: asyncio.Future[str] | None = None
        self._asked_at = 0.0
        self._waiting: list[str] = []
        self._leaving = False
        self._flight: asyncio.Task[None] | None = None
        self._goodbye: asyncio.Task[None] | None = None

    # --- layout ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """The log, the status line, the prompt."""
        yield VerticalScroll(id="log")
        yield Static("", id="status", markup=False)
        yield Prompt(placeholder="Message, or /help", id="prompt", select_on_focus=False)

    async def on_mount(self) -> None:
        """Say hello, and listen to signals."""
        self._pane.can_focus = False
        self._pane.anchor()
        self.query_one("#prompt", Input).focus()
        await self._note(f"{self.talk.model}\n{_WELCOME}")
        self.set_interval(_TICK, self._draw)
        self._draw()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: nobody sends us signals
                loop.add_signal_handler(number, self._terminated, number)

    def on_unmount(self) -> None:
        """Listen no more."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    @property
    def _pane(self) -> VerticalScroll:
        return self.query_one("#log", VerticalScroll)

    def _draw(self) -> None:
        width = max(self.size.width - 2, 8)
        hint = ""
        if self.talk.busy and width > _WIDE:
            hint = "  Esc to interrupt"
        line = self.talk.idle_line(width)
        if self.talk.busy:
            line = status_line(self.talk.status, width - len(hint), separator=" \u00b7 ")
        text = Text(line + hint.rjust(width - len(line)) if hint else line)
        for place in self.query("#status").results(Static):  # none any more when the screen is being closed
            place.update(text)

    async def _add(self, widget: Widget) -> None:
        if not self.is_running or not self._pane.is_attached:
            return
        await self._pane.mount(widget)

    async def _note(self, text: str, kind: str = "note") -> None:
        await self._add(Static(Text(text), classes=kind, markup=False))

    # --- what the person does -------------------------------------------------------------------------------------

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """A line was typed: an answer to a question, a command, or something to say."""
        text = event.value
        self._leaving = False
        self._pane.anchor()  # whoever says something wants to see the answer
        if self._asked is not None and not self._asked.done() and event.time >= self._asked_at:
            self._asked.set_result(text)
        elif text.startswith("/"):
            await self._command(text)
        elif text and self.talk.busy:
            self._waiting.append(text)
            await self._note(f"{text}\n(sent when this turn is over)")
        elif text:
            self._flight = asyncio.create_task(self._turns(text), name="glidepath-chat-turn")

    async def _command(self, line: str) -> None:
        if line in ("/quit", "/exit", "/q"):
            await self.action_leave()
            return
        await self._note(f"> {line}", "you")
        if line == "/clear" and not self.talk.busy:
            self.talk.clear()
            await self._pane.remove_children()
            await self._note(_WELCOME)
            return
        name, _, rest = line.partition(" ")
        try:
            if ":" in name or name == "/prompts":
                text = await self.talk.prompt(line)
                if text is not None and name != "/prompts" and not self.talk.busy:
                    self._flight = asyncio.create_task(self._turns(text), name="glidepath-chat-turn")
                    return
                await self._note(text or f"There is no {name}: /prompts lists the prompts of servers.")
                return
            await self._note(await self.talk.resume(rest.strip()) if name == "/resume" else self.talk.command(line))
        except ConfigurationError as error:
            await self._note(str(error))
        self._draw()

    async def action_interrupt(self) -> None:
        """Esc: stop the turn, keep what was said; what waits to be sent goes back into the line."""
        if self._waiting:
            line = self.query_one(Prompt)
            line.put_back(self._waiting)
            self._waiting.clear()
            await self._note("(not sent: it is in the line again)")
        if self.talk.interrupt("Esc") and self._asked is not None and not self._asked.done():
            self._asked.cancel()

    async def action_stop(self) -> None:
        """Ctrl-C: as Esc; twice with nothing in flight, leave."""
        if self.talk.busy:
            await self.action_interrupt()
        elif self._leaving:
            await self.talk.close()
            self.exit(0)
        else:
            self._leaving = True
            await self._note("Ctrl-C again to leave.")

    async def action_leave(self) -> None:
        """Ctrl-D: leave; a turn in flight is stopped."""
        await self._leave(0, "left")

    async def _leave(self, code: int, why: str) -> None:
        """Land what flies, then go: a run that was stopped is over in a moment."""
        self._waiting.clear()
        self.talk.interrupt(why)
        if self._asked is not None and not self._asked.done():
            self._asked.cancel()
        if self._flight is not None and not self._flight.done():
            await asyncio.wait([self._flight], timeout=_LANDING)
        await self.talk.close()
        self.exit(code)

    def action_page(self, way: int) -> None:
        """Page up and down in the log."""
        if way < 0:
            self._pane.scroll_page_up(animate=False)
        else:
            self._pane.scroll_page_down(animate=False)

    def _terminated(self, number: int) -> None:
        self._goodbye = asyncio.create_task(self._leave(128 + number, signal.Signals(number).name))

    # --- a turn ---------------------------------------------------------------------------------------------------

    async def _turns(self, text: str) -> None:
        while True:
            await self._turn(text)
            if not self._waiting or not self.is_running:
                return
            text = self._waiting.pop(0)

    async def _turn(self, text: str) -> None:
        await self._note(f"> {text}", "you")
        try:
            result = await self.talk.turn(text, self._show, self._decide)
        except ConfigurationError as error:
            await self._note(str(error))
            return
        finally:
            self._end_reply()
        words = ending(result)
        if words:
            await self._note(words)
        await self._note(closing_line(result, max(self.size.width - 4, 8)).replace(" | ", " \u00b7 "))
        self._draw()

    async def _show(self, event: Event) -> None:
        if not self.is_running:
            return
        if isinstance(event, StreamChunk):
            if event.text and not event.thinking:
                await self._write(event.text)
            await asyncio.sleep(0)  # however fast it comes, keys are looked at in between
            return  # the status line has its own beat
        if isinstance(event, AttemptDiscarded):
            reply = self._end_reply()
            if reply is not None:
                await reply.remove()
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            self._end_reply()
        elif isinstance(event, ToolStarted):
            await self._open_card(event)
        elif isinstance(event, ToolEnded):
            await self._close_card(event)
        elif isinstance(event, GuardTripped):
            await self._note(f"{event.guard}: {event.reason}")
        self._draw()

    async def _write(self, text: str) -> None:
        if self._reply is None:
            self._reply = ChatReply()
            await self._add(self._reply)
        self._reply.write(text)

    def _end_reply(self) -> ChatReply | None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.end()
        return reply

    async def _open_card(self, event: ToolStarted) -> None:
        self._end_reply()
        title = f"{event.tool_name} {arguments_line(event.arguments)}".rstrip()
        card = Static(Text(self._clip(title)), classes="tool", markup=False)
        self._cards[event.call_id] = (card, title)
        await self._add(card)

    async def _close_card(self, event: ToolEnded) -> None:
        card, title = self._cards.pop(event.call_id, (None, event.tool_name))
        if card is None:
            card = Static("", classes="tool", markup=False)
            await self._add(card)
        lines = event.result.text.splitlines()
        shown = [self._clip(line) for line in lines[:_RESULT_LINES]]
        if len(lines) > _RESULT_LINES:
            shown.append(f"... {len(lines) - _RESULT_LINES} more lines")
        text = Text(self._clip(title), style="bold")
        text.append("\n" + "\n".join(shown), style="not bold")
        card.update(text)
        card.set_class(event.result.is_error, "failed")

    def _clip(self, text: str) -> str:
        return clip(text, max(self.size.width - 7, 8))

    async def _decide(self, pending: Sequence[PendingCall]) -> Mapping[str, Decision]:
        decisions: dict[str, Decision] = {}
        tools = self.talk.agent.config.tools
        for waiting in pending:
            one = ApprovalAsked(name=waiting.call.id, pending=waiting, sandboxed=sandboxed(waiting, tools))
            if not self.is_running:
                self.talk.interrupt("left")
                return decisions
            columns, lines = max(self.size.width - _BOX_COLUMNS, 8), self._pane.size.height - _BOX_LINES
            decision = await consult(one, (columns, lines), self._answer, _ALLOW)
            if decision is None:
                return decisions  # Esc: the turn is over
            decisions[waiting.call.id] = decision
        return decisions

    async def _answer(self, rows: Sequence[str], prompt: str) -> str | None:
        """Show this in a box, and wait for a line that was typed after it stood there; None after Esc."""
        box = "\n".join([*rows, "", prompt.removesuffix(": ") + ("." if prompt.endswith(": ") else "")])
        await self._note(box, "ask")
        self._pane.anchor()
        self._draw()
        on_screen = asyncio.Event()
        if self.call_after_refresh(on_screen.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(on_screen.wait(), _DRAWN)
        line = self.query_one(Prompt)
        draft = line.forget_typed()
        self._asked_at = line.since
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked = asked
        try:
            return await asked
        except asyncio.CancelledError:
            if not asked.cancelled() or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise  # the turn itself is being stopped
            return None
        finally:
            self._asked = None
            if draft:
                line.put_back([draft])

    async def on_key(self, event: keys.Key) -> None:
        """Whatever has the focus, typing goes to the prompt."""
        prompt = self.query_one("#prompt", Input)
        if self.focused is not prompt and event.is_printable:
            prompt.focus()
