"""The screen of the chat."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import ClassVar

from rich.text import Text
from textual import events as keys
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from glidepath.apps.cli.approval import is_sandboxed
from glidepath.apps.cli.approval_dialog import ApprovalAsked, ResizedError, consult, describe_refusal
from glidepath.apps.cli.chat.chat_conversation import Conversation
from glidepath.apps.cli.chat.input_history import InputHistory
from glidepath.apps.cli.chat.old_messages import LogEntry, OldMessages, StatusLine, answer_entries, diff_text
from glidepath.apps.cli.chat.prompt import Prompt
from glidepath.apps.cli.chat.reply import ChatReply
from glidepath.apps.cli.chat.slash import describe_turn_end, last_answer, last_answer_of, rename_chat
from glidepath.apps.cli.file_changes import format_difference
from glidepath.apps.cli.session_names import data_folder
from glidepath.apps.cli.status import (
    arguments_line,
    clip_line,
    closing_line,
    guard_line,
    status_line,
    strip_control_characters,
)
from glidepath.apps.cli.user_shell import describe_command_output, run_user_command, tail_output
from glidepath.guards.approvals import AlwaysAllowed
from glidepath.run import Decision
from glidepath.values import (
    AttemptDiscarded,
    ConfigurationError,
    Event,
    GuardTripped,
    MessageAdded,
    PendingCall,
    StreamChunk,
    ToolEnded,
    ToolStarted,
    pluralize,
)

_TICK = 0.25
_LANDING = 3.0
_RESULT_LINES = 6
_DIFF_LINES = 30
_WIDE = 60
_LIVE, _KEPT = 40, 6  # widgets that are laid out at most, and messages among them at least
_DRAWN = 1.0  # seconds after which a question is presumed to be on the screen
_BOX_COLUMNS, _BOX_LINES = 6, 7  # the frame around a question, and the lines below it
_ALLOW = "allow it? y or a (always) and Enter; n no, e edit, r refuse and say why"
_STYLE = """
Screen { layout: vertical; }
#log { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
#status { height: 1; padding: 0 1; background: $primary-background; color: $text; }
#menu { height: auto; padding: 0 1; color: $text-muted; }
#line { height: 1; color: $text-muted; }
.you { margin: 1 0 0 0; color: $accent; text-style: bold; }
.note { color: $text-muted; margin: 0 0 1 0; }
.answer { margin: 0 0 1 0; }
.tool { color: $text-muted; border-left: thick $primary; padding: 0 1; margin: 0 0 1 0; }
.failed { border-left: thick $error; }
.ask { border: round $warning; padding: 0 1; margin: 0 0 1 0; }
"""
_WELCOME = "Say something, or type /help. Esc interrupts a turn, Ctrl-D leaves."


class ChatApp(App[int]):
    """Shows a `Conversation`. Its return value is the exit code."""

    CSS = _STYLE
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt", priority=True),
        Binding("ctrl+c", "stop", "Stop", priority=True),
        Binding("ctrl+d", "leave", "Leave", priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
    ]

    def __init__(
        self, talk: Conversation, resume: str | None = None, *, between_turns: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self.talk = talk
        self._between_turns = between_turns
        self._begin_with = resume
        self._hint = ""
        self._always: dict[str, AlwaysAllowed] = {}  # by conversation
        self._command_run: asyncio.Task[None] | None = None
        self._reply: ChatReply | None = None
        self._cards: dict[str, tuple[LogEntry, str]] = {}
        self._asked: asyncio.Future[str] | None = None
        self._asked_at, self._asked_in = 0.0, self.size
        self._waiting: list[str] = []
        self._leaving = False
        self._flight: asyncio.Task[None] | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self._past = OldMessages()
        self._pane = VerticalScroll(self._past, id="log")
        self._status = StatusLine("status")
        kept = data_folder() if talk.kept and not talk.redacts else None
        history = InputHistory(None if kept is None else kept / "chat_history.jsonl")
        self._menu = LogEntry("", id="menu", markup=False)
        self._menu.display = False
        self._prompt = Prompt(history, talk.complete, "Message, or /help")

    # --- layout ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """The log, the status line, the prompt."""
        yield self._pane
        yield self._status
        yield self._menu
        yield self._prompt

    async def on_mount(self) -> None:
        """Greet the person and install signal handlers."""
        self._pane.can_focus = False
        self._pane.anchor()
        self._prompt.focus()
        await self._note(f"{self.talk.model}\n{_WELCOME}")
        await self._show_notes()
        self.set_interval(_TICK, self._draw)
        self._draw()
        if self._begin_with is not None:
            await self._show_answer("/resume", await self.talk.resume(self._begin_with))
            self._draw()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: no signals arrive here
                loop.add_signal_handler(number, self._on_terminate, number)

    def on_unmount(self) -> None:
        """Remove the signal handlers."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    def _draw(self) -> None:
        width = max(self.size.width - 2, 8)
        hint = "  Esc to interrupt" if self.talk.busy and width > _WIDE else ""
        line = self.talk.idle_line(width)
        if self.talk.busy:
            line = status_line(self.talk.status, width - len(hint), separator=" \u00b7 ")
        if self._hint:
            line, hint = clip_line(self._hint, width), ""
        self.talk.columns = width - 1  # the scroll bar
        text = Text(line + hint.rjust(width - len(line)) if hint else line)
        if self._status.is_attached:
            self._status.show(text)

    async def _add(self, widget: Widget) -> None:
        if not self.is_running or not self._pane.is_attached:
            return
        self._put_away()
        await self._pane.mount(widget)

    def _put_away(self) -> None:
        """Leave only the last few messages to be laid out again and again."""
        live = [child for child in self._pane.displayed_children if child is not self._past]
        if sum([1 + len(child.children) for child in live]) > _LIVE:
            self._past.take(list(takewhile(self._is_settled, live[:-_KEPT])))

    def _is_settled(self, widget: Widget) -> bool:
        cards = [card for card, _ in self._cards.values()]
        return widget not in cards and (not isinstance(widget, ChatReply) or widget.complete)

    async def _note(self, text: str, kind: str = "note") -> None:
        await self._add(LogEntry(Text(strip_control_characters(text)), classes=kind, markup=False))

    async def _show_notes(self) -> None:
        """Show the notes of the command line, which cannot print them while the chat has the screen."""
        for text in self.talk.take_notes():
            await self._note(text)

    def on_text_area_changed(self) -> None:
        """Show the commands that begin like what is typed, above the line."""
        rows = self.talk.menu(self._prompt.text, max(self.size.height // 3, 2))
        self._menu.display = bool(rows)
        if rows:
            self._menu.update(Text("\n".join(self._clip(row) for row in rows)))

    # --- what the person does -------------------------------------------------------------------------------------

    def on_prompt_hint(self, event: Prompt.Hint) -> None:
        """Show a hint about the text being typed."""
        text = event.text or ("your command is running: Esc stops it" if self._commanding else "")
        if text != self._hint:
            self._hint = text
            self._draw()

    async def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Handle a line: an answer to a question, a command, or a message."""
        text = event.value
        self._leaving = False
        self._pane.anchor()  # scroll down to the answer
        asked = self._asked is not None and not self._asked.done() and event.time >= self._asked_at
        if self._asked is not None and asked and not (event.prompt.single and text.startswith(("/", "!"))):
            self._asked.set_result(text)
            return
        event.prompt.past.add(text)
        if text.startswith("/"):
            await self._run_slash_command(text)
        elif text.startswith("!"):
            await self._run_shell_command(text[1:].strip())
        elif text and self.talk.busy:
            self._waiting.append(text)
            await self._note(f"{text}\n(sent when this turn is over)")
        elif text:
            self._start_turn(text)
        if asked:
            await self._note(f"The call above still waits for your answer. {event.prompt.placeholder}.")

    def _start_turn(self, text: str) -> None:
        self._flight = asyncio.create_task(self._run_turns(text), name="glidepath-chat-turn")

    async def _run_slash_command(self, line: str) -> None:
        if line in ("/quit", "/exit", "/q"):
            await self.action_leave()
            return
        await self._note(f"> {line}", "you")
        if line == "/clear" and self.talk.busy:
            await self._note("A turn is running: Esc interrupts it.")
            return
        if line == "/clear":
            self.talk.clear()
            await self._pane.remove_children()
            self._past = OldMessages()
            await self._pane.mount(self._past)
            await self._note(_WELCOME)
            return
        try:
            answer = await self._answer_to(line)
        except ConfigurationError as error:
            answer = str(error)
        if answer is not None:
            await self._show_answer(line, answer)
        await self._show_notes()
        self._draw()

    async def _show_answer(self, line: str, answer: str) -> None:
        for entry in answer_entries(line, answer, last_answer_of(self.talk.session.messages)):
            await self._add(entry)

    async def _answer_to(self, line: str) -> str | None:
        """The answer to a command; None if its text goes to the model."""
        name, _, rest = line.partition(" ")
        if ":" in name or name == "/prompts":
            text = await self.talk.read_server_prompt(line)
            if text is None or name == "/prompts":
                return text or f"There is no {name}: /prompts lists the prompts of servers."
        else:
            text = self.talk.custom_command_text(line)
        if text is not None:
            if self.talk.busy:
                self._waiting.append(text)
                return "(sent when this turn is over)"
            self._start_turn(text)
            return None
        if name == "/copy":
            return self._copy()
        return await self._answer_about_session(name, rest.strip(), line)

    async def _answer_about_session(self, name: str, rest: str, line: str) -> str:
        if name == "/rewind":
            answer, back = await self.talk.rewind(rest)
            if back:
                self._prompt.put_back([back])
            return answer
        if name == "/resume":
            self.talk.title = "" if rest else self.talk.title
            return await self.talk.resume(rest)
        return await rename_chat(self.talk, rest) if name == "/name" else self.talk.answer_command(line)

    def _copy(self) -> str:
        said = last_answer(self.talk.session.messages)
        if not said:
            return "There is no answer to copy yet."
        self.copy_to_clipboard(said)
        return f"{pluralize(len(said), 'character', f'{len(said):,}')} copied."

    async def _run_shell_command(self, command: str) -> None:
        """Run a `!command` as the person; the model sees it with the next message."""
        await self._note(f"! {command}", "you")
        if not command:
            await self._note("!command runs a command in the workspace, as you.")
        elif self._commanding:
            await self._note("Another command is running: Esc stops it.")
        else:
            self._command_run = asyncio.create_task(self._run_command(command), name="glidepath-chat-command")
            self._command_run.add_done_callback(lambda _: self._prompt.show_hint(""))
            self._prompt.show_hint("")

    @property
    def _commanding(self) -> bool:
        return self._command_run is not None and not self._command_run.done()

    async def _run_command(self, command: str) -> None:
        code, output = await run_user_command(command, self.talk.folder)
        self.talk.asides.append(describe_command_output(command, code, output))
        await self._note(tail_output(code, output, self._clip), "tool")

    async def action_interrupt(self, why: str = "Esc") -> None:
        """Esc: stop the turn and keep its text; unsent messages go back into the line."""
        if self._prompt.search.active:
            self._prompt.search.leave()
            return
        if self._command_run is not None:
            self._command_run.cancel()
        if self._waiting:
            self._prompt.put_back(self._waiting)
            self._waiting.clear()
            await self._note("(not sent: it is back in the input line)")
        if self.talk.interrupt(why) and self._asked is not None and not self._asked.done():
            self._asked.cancel()

    async def action_stop(self) -> None:
        """Ctrl-C: like Esc; else empty the line, or leave the second time. Up brings the line back."""
        if self.talk.busy or self._commanding:
            await self.action_interrupt("Ctrl-C")
        elif self._prompt.said:
            self._prompt.past.add(self._prompt.discard_input())
        elif self._leaving:
            await self.talk.close()
            self.exit(0)
        else:
            self._leaving = True
            await self._note("Ctrl-C again to leave.")

    async def action_leave(self) -> None:
        """Ctrl-D: stop the turn and leave."""
        await self._leave(0, "left")

    async def _leave(self, code: int, why: str) -> None:
        """Land the running turn, then leave: a stopped run ends within a moment."""
        self._waiting.clear()
        self.talk.interrupt(why)
        if self._asked is not None and not self._asked.done():
            self._asked.cancel()
        if self._flight is not None and not self._flight.done():
            await asyncio.wait([self._flight], timeout=_LANDING)
        self._prompt.past.add(self._prompt.said)  # a draft is not lost: Up brings it back
        await self.talk.close()
        self.exit(code)

    def action_page(self, way: int) -> None:
        """Page up and down in the log."""
        scroll = self._pane.scroll_page_up if way < 0 else self._pane.scroll_page_down
        scroll(animate=False)

    def _on_terminate(self, number: int) -> None:
        self._goodbye = asyncio.create_task(self._leave(128 + number, signal.Signals(number).name))

    # --- a turn ---------------------------------------------------------------------------------------------------

    async def _run_turns(self, text: str) -> None:
        while True:
            await self._run_turn(text)
            self._between_turns()
            if not self._waiting or not self.is_running:
                return
            text = self._waiting.pop(0)

    async def _run_turn(self, text: str) -> None:
        await self._note(f"> {text}", "you")
        asides = self.talk.asides
        try:
            message, sent = self.talk.make_message(text)
            if sent:
                await self._note("\n".join(sent))
            result = await self.talk.run_turn(message, self._show, self._decide)
        except ConfigurationError as error:
            await self._note(str(error))
            self._prompt.put_back([text])
            self.talk.asides[:0] = asides
            return
        finally:
            self._end_reply()
        await self._show_notes()
        words = describe_turn_end(result, self.talk)
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
            await asyncio.sleep(0)  # let keys be handled, however fast text arrives
            return  # the status line has its own timer
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
            await self._note(guard_line(event))
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
        card = LogEntry(Text(self._clip(title)), classes="tool", markup=False)
        self._cards[event.call_id] = (card, title)
        await self._add(card)

    async def _close_card(self, event: ToolEnded) -> None:
        card, title = self._cards.pop(event.call_id, (None, event.tool_name))
        if card is None:
            card = LogEntry("", classes="tool", markup=False)
            await self._add(card)
        lines = event.result.text.splitlines()
        shown = [self._clip(line) for line in lines[:_RESULT_LINES]]
        if len(lines) > _RESULT_LINES:
            shown.append(f"... {pluralize(len(lines) - _RESULT_LINES, 'more line')}")
        change = self.talk.changes.take_done(event.call_id)
        if change is not None:
            rows = format_difference(change, self._room, most=_DIFF_LINES)
            text = Text(self._clip(event.tool_name), style="bold").append("\n").append_text(diff_text(rows))
        else:
            text = Text(self._clip(title), style="bold").append("\n" + "\n".join(shown), style="not bold")
        card.update(text)
        card.set_class(event.result.is_error, "failed")

    @property
    def _room(self) -> int:
        return max(self.size.width - 7, 8)

    def _clip(self, text: str) -> str:
        return clip_line(text, self._room)

    async def _decide(self, pending: Sequence[PendingCall]) -> Mapping[str, Decision]:
        decisions: dict[str, Decision] = {}
        tools = self.talk.agent.config.tools
        for waiting in pending:
            call = waiting.call
            one = ApprovalAsked(
                name=call.id,
                pending=waiting,
                sandboxed=is_sandboxed(waiting, tools),
                tools=tuple(tools),
                change=self.talk.changes.plan_change(call.name, call.arguments, tools),
            )
            if not self.is_running:
                self.talk.interrupt("left")
                return decisions
            decision = await self._ask_person(one)
            if decision is None:
                return decisions  # Esc: the turn is over
            decisions[waiting.call.id] = decision
        return decisions

    async def _ask_person(self, one: ApprovalAsked) -> Decision | None:
        """The decision about a call; a refusal is shown. When the window has changed, the question begins again."""
        always = self._always.setdefault(self.talk.session.id, AlwaysAllowed())
        while True:
            columns, lines = max(self.size.width - _BOX_COLUMNS, 8), self.size.height - _BOX_LINES
            with contextlib.suppress(ResizedError):
                decision = await consult(one, (columns, lines), self._answer, _ALLOW, always)
                if decision is not None and decision.kind == "deny":
                    await self._note(describe_refusal(decision))
                return decision

    def on_resize(self) -> None:
        """Lay an open question out again, once the rest is."""
        self.set_timer(_TICK, self._ask_again)

    def _ask_again(self) -> None:
        open_question = self._asked is not None and not self._asked.done() and self._prompt.single
        if self._asked is not None and open_question and not self._prompt.text and self.size != self._asked_in:
            self._asked.set_exception(ResizedError())

    async def _answer(
        self, rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = "", *, decides: bool = False
    ) -> str | None:
        """Show this in a box, and wait for a line typed after it appeared; None after Esc."""
        self._asked_in = self.size
        box = LogEntry(diff_text([*rows, *([""] if rows else []), prompt.rstrip()]), classes="ask", markup=False)
        await self._add(box)
        self._pane.anchor()
        self._draw()
        on_screen = asyncio.Event()
        if self.call_after_refresh(on_screen.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(on_screen.wait(), _DRAWN)
        line = self._prompt
        typed = line.discard_input(self.talk.unread if decides else 0.0)
        line.value = draft
        line.expect_keys(keys, "y or a" if decides else "")
        self._asked_at = line.since
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked = asked
        try:
            return await asked
        except asyncio.CancelledError:
            if not asked.cancelled() or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise  # the turn itself is being stopped
            line.value = ""  # what was being typed answered the question
            return None
        except ResizedError:
            await box.remove()
            raise
        finally:
            self._asked = None
            line.expect_keys(())
            if typed:
                line.put_back([typed])

    async def on_key(self, event: keys.Key) -> None:
        """Send typing to the prompt, wherever the focus is."""
        if self.focused is not self._prompt and event.is_printable:
            self._prompt.focus()
