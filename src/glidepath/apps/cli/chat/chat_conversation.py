"""A conversation without its screen: the session, the current agent, and the running turn."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from textwrap import fill

from glidepath.agent import Agent
from glidepath.apps.cli.agent_maker import make_agent, workspace_folder
from glidepath.apps.cli.attachments import attach_files, files_to_name
from glidepath.apps.cli.chat.chat_limits import conversation_limits, key_to_raise, message_limits
from glidepath.apps.cli.chat.plan_mode import PlanMode
from glidepath.apps.cli.chat.slash import SLASHES, describe_end, estimate_next_message, take_attachments
from glidepath.apps.cli.chat_cards import chat_list, keep_card
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.file_changes import Changes
from glidepath.apps.cli.instructions import load_custom_commands
from glidepath.apps.cli.layers import Known, LoadedSettings
from glidepath.apps.cli.screens import describe_ending
from glidepath.apps.cli.session_names import find_session, label_session, remember_here, shorten_id
from glidepath.apps.cli.status import Status, clip_line, format_count, format_money, reserved_output_of, tokens_of
from glidepath.apps.cli.stores import wallet_of
from glidepath.kernel import CharEstimator, make_sizer
from glidepath.kernel.context import Compact
from glidepath.run import CancelToken, Decision
from glidepath.sessions import Session
from glidepath.values import (
    ConfigurationError,
    Event,
    ImageBlock,
    LoopOutcome,
    Message,
    PendingCall,
    RunResult,
    RunStarted,
    StoreError,
    UserMessage,
    pluralize,
)
from glidepath.workspace import Workspace

COMMANDS = {
    "help": "what you can type",
    "status": "how much this conversation has used",
    "cost": "what it cost, and what is left",
    "limits": "show the limits, or set one for the conversation: /limits tokens 50k",
    "context": "how much is sent with the next message",
    "model": "show the model, or change it: /model NAME",
    "tools": "the tools the model may call",
    "prompts": "the prompts of MCP servers; send one with /SERVER:PROMPT words",
    "diff": "what the agent has changed in files",
    "undo": "undo the file changes of the last turn",
    "rewind": "take back your last message and what followed: /rewind [HOW MANY]",
    "plan": "let the model only read and plan; /plan off ends it",
    "compact": "shorten a conversation that is not saved",
    "export": "write the conversation to a file: /export [FILE]",
    "copy": "copy the last answer to the clipboard",
    "name": "give the conversation a name: /name TEXT",
    "resume": "continue another conversation: /resume [ID or name]",
    "clear": "begin a new conversation",
    "quit": "leave",
}
"""Every slash command with its line in /help."""

_KEYS = {
    "Enter": "send; Shift-Enter or Ctrl-J begins another line",
    "Up, Ctrl-R": "what you sent before; search it",
    "Tab": "complete a /command or an @file",
    "@file": "send a file, or a picture, with the message",
    "!command": "run a command yourself; the model sees it with your next message",
    "Esc": "interrupt the turn, keep its text",
    "Ctrl-C": "the same; else empty the line, or leave the second time",
    "Ctrl-D": "leave",
}
_ROW = 100

Show = Callable[[Event], Awaitable[None]]
Decide = Callable[[Sequence[PendingCall]], Awaitable[Mapping[str, Decision]]]


class Conversation:
    """One conversation. `run_turn` says something to the agent; the slash commands answer with text."""

    def __init__(self, settings: LoadedSettings, world: CliContext) -> None:
        self.settings = settings
        self._world = world
        self.unread = world.unread
        self.folder = workspace_folder(settings, world)
        self.workspace = Workspace(self.folder, allow_protected=settings.get("allow_protected") or ())
        asks = settings.get("edits") or ("ask" if settings["approve"] == "ask" else "apply")
        self.changes = Changes(self.workspace, asking=asks == "ask")
        self.planning = PlanMode()
        self.own = load_custom_commands(world)
        """Slash commands of this folder and of the user."""
        self.columns = 80
        self.counted = ("", 0, 0)
        """A conversation, its messages so far, and how many tokens the model counted in them."""
        self.last: RunResult | None = None
        self.worked = 0.0
        """Seconds that the agent has worked in this conversation, since the chat was opened."""
        self.asides: list[str | ImageBlock] = []
        """What the person ran with `!`, and pictures: sent with the next message."""
        self.agent: Agent = make_agent(settings.copy(), world, plugins=(self.changes, self.planning))
        self.model = str(settings.get("model") or "")
        self.session = self.make_session()
        self.title = ""
        """The name for the conversation that begins with the next message; empty once it has it."""
        self.status = Status(self.agent.config.limits, world.now, reserved_output_of(self.agent.config))
        self.status.phase = "ready"
        self._token: CancelToken | None = None
        self._entered: Agent | None = None
        self._served: dict[str, str] = {}

    async def close(self) -> None:
        """End the servers of the agent's tools."""
        entered, self._entered = self._entered, None
        if entered is not None:
            await entered.__aexit__(None, None, None)

    async def read_server_prompt(self, line: str) -> str | None:
        """The text of a server's prompt, for `/SERVER:PROMPT words`; None for any other line."""
        from glidepath.apps.cli.servers import prompt_of

        text, origin = await prompt_of(line, self.agent.config.tool_sources)
        if text is not None and origin:
            self._served[text] = origin
        return text

    def make_session(self, name: str | None = None, messages: Sequence[Message] = ()) -> Session:
        """A session with the limits of the whole conversation."""
        return Session(name, messages=messages, limits=conversation_limits(self))

    def use_agent(self, agent: Agent) -> None:
        """An agent with other limits answers from now on."""
        self.agent, self.status.limits = agent, agent.config.limits
        self.session.limits = conversation_limits(self)

    @property
    def kept(self) -> bool:
        """True when this conversation is saved."""
        return self.agent.config.store is not None

    @property
    def redacts(self) -> bool:
        """True when what is saved of it goes through a hook: then nothing of it is written anywhere else."""
        return getattr(self.agent.config.store, "redact", None) is not None

    @property
    def busy(self) -> bool:
        """True while a turn is running."""
        return self._token is not None

    def interrupt(self, why: str) -> bool:
        """Stop the running turn and keep its text; False if none is running."""
        if self._token is None:
            return False
        self._token.cancel(why)
        return True

    async def run_turn(self, text: str | UserMessage, show: Show, decide: Decide) -> RunResult:
        """Send a message, show what happens, and ask about calls that need a person, until the run has ended."""
        limits = message_limits(self)
        token = self._token = CancelToken()
        self.status.restart(self.session.totals.cost)
        self.changes.start_turn()
        if self._entered is not self.agent:
            await self.close()
            self._entered = await self.agent.__aenter__()  # tool servers stay up for the whole conversation
        try:
            # The store has the whole conversation.
            home = self.make_session(self.session.id) if self.kept else self.session
            above = await wallet_of(self.settings, self.agent)
            stream = self.agent.stream(text, session=home, cancel=token, parent=above, limits=limits)
            while True:
                async with stream:
                    async for event in stream:
                        self.status.record_event(event)
                        if self.kept and isinstance(event, RunStarted):  # from now on, whatever ends this process
                            remember_here(self._world.folder, self.session.id)
                            keep_card(self.session, text, self.model, self.settings, self._world.folder)
                            await self._name_it()
                        await show(event)
                result = stream.result
                if self.kept and not result.messages:  # such as while another process has the conversation
                    raise ConfigurationError(f"Not sent: {describe_ending(result)}")
                before = self.last if self.last is not None and self.last.run_id == result.run_id else None
                self.worked += result.elapsed - (0.0 if before is None else before.elapsed)
                self.last = result
                if self.kept:
                    self.session.messages[:] = result.messages
                    self.session.close_run(result)
                if result.outcome is not LoopOutcome.PAUSED or token.cancelled:
                    return result
                self.status.phase = "your decision"
                decisions = await decide(result.pending)
                if token.cancelled:
                    return result
                stream = self.agent.stream(resume=home, decisions=decisions, cancel=token, parent=above)
        finally:
            self._token = None
            self.status.phase = "ready"
            self.counted = (self.session.id, len(self.session.messages), self.status.last_call)

    def take_notes(self) -> list[str]:
        """The notes of the command line since the last call."""
        notes = self._world.notes
        found = list(notes or ())
        if notes:
            notes.clear()
        return found

    def idle_line(self, width: int) -> str:
        """The status line while nothing is running."""
        totals = self.session.totals
        parts = [
            "planning" if self.planning.on else "ready",
            tokens_of(totals.usage.total),
            "" if totals.cost is None else format_money(totals.cost),
        ]
        line = " \u00b7 ".join(part for part in parts if part)
        full = f"{line} \u00b7 {self.model}"
        return full if len(full) <= width else clip_line(line, width)

    # --- slash commands -------------------------------------------------------------------------------------------

    def answer_command(self, line: str) -> str:
        """The answer to a slash command."""
        name, _, rest = line[1:].partition(" ")
        if name in SLASHES:
            return SLASHES[name](self, rest.strip())
        if name not in COMMANDS:
            from glidepath.tools import find_closest

            meant = find_closest(name, [*COMMANDS, *self.own])
            return f"There is no /{name}." + (f" Did you mean /{meant}?" if meant else " Type /help.")
        answers: dict[str, Callable[[str], str]] = {
            "help": self._help,
            "status": self._status,
            "model": self._model,
            "compact": self._compact,
        }
        return answers[name](rest.strip()) if name in answers else ""

    def _help(self, _: str) -> str:
        wide = max(map(len, [*COMMANDS, *self.own, *_KEYS])) + 1
        lines = [f"/{name:<{wide}} {text}" for name, text in COMMANDS.items()]
        lines += [f"/{name:<{wide}} {_first_line(own.about)}" for name, own in self.own.items() if name not in COMMANDS]
        lines += [f"{key:<{wide + 1}} {text}" for key, text in _KEYS.items()]
        return "\n".join(fill(line, self.columns, subsequent_indent=" " * (wide + 2)) for line in lines)

    def _status(self, _: str) -> str:
        totals = self.session.totals
        turns, calls = pluralize(totals.iterations, "model turn"), pluralize(totals.tool_calls, "tool call")
        parts = [f"{pluralize(totals.runs, 'message')} from you, {turns}, {calls}"]
        most = self.agent.config.limits.max_cost
        of = "" if most is None else f" of {format_money(Decimal(str(most)))}"
        spent = "" if totals.cost is None else f", {format_money(totals.cost)}{of}"
        parts.append(f"{tokens_of(totals.usage.total)}{spent}")
        parts.append(f"your next message sends about {tokens_of(sum(estimate_next_message(self).values()))}")
        parts.append(f"model {self.model}")
        return "\n".join(parts)

    def _model(self, name: str) -> str:
        if not name:
            return f"The model is {self.model}. /model NAME changes it."
        if self.busy:
            return "A turn is running: Esc interrupts it."
        self.agent = make_agent(self.settings.copy(), self._world, model=name, plugins=(self.changes, self.planning))
        self.model = name
        self.settings.known["model"] = Known(name, "flag --model", name)
        return f"{name} answers from now on."

    def _compact(self, _: str) -> str:
        if self.busy:
            return "A turn is running: Esc interrupts it."
        if self.kept:
            return "A saved conversation stays whole; the model gets what fits its window. /clear starts a new one."
        messages = self.session.messages
        size = make_sizer(CharEstimator())
        sizes = [size(message) for message in messages]
        before = sum(sizes)
        pinned = [0] if messages else []
        shaped = Compact().shape_listing_calls(None, messages, sizes, before // 2, pinned)[0]
        if not shaped.dropped:
            return "There is nothing to shorten."
        messages[:] = list(shaped.messages)
        after = format_count(sum(map(size, messages)))
        return f"{pluralize(shaped.dropped, 'message')} left out: about {tokens_of(before)} became {after}."

    async def resume(self, wanted: str) -> str:
        """Continue a stored conversation; without an id, list the last ones."""
        from glidepath.sessions import read_journal

        store = self.agent.config.store
        if store is None:
            return "Sessions are not being saved. Restart with --store default."
        if self.busy:
            return "A turn is running: Esc interrupts it."
        try:
            if not wanted:
                return await chat_list(store, self.columns, self.session.id)
            wanted = await find_session(store, wanted)
            folded = (await read_journal(store, wanted)).folded
        except (ConfigurationError, StoreError) as error:
            return str(error)
        self.session = self.make_session(wanted, folded.messages)
        self.session.totals, self.session.last = folded.session.totals, folded.session.last
        self.worked = 0.0
        count = pluralize(len(folded.messages), "message")
        return f"Continuing {shorten_id(wanted)} ({count}).{describe_end(folded)}"

    async def rewind(self, text: str) -> tuple[str, str]:
        """Go back before one of the person's last messages: what to say about it, and that message."""
        from glidepath.apps.cli.chat.rewinding import rewind_chat

        return ("A turn is running: Esc interrupts it.", "") if self.busy else await rewind_chat(self, text)

    async def _name_it(self) -> None:
        title, self.title = self.title, ""
        store = self.agent.config.store
        if title and store is not None:
            await label_session(store, self.session.id, title, self._world)

    async def name(self) -> str:
        """The name of this conversation; empty when it has none, or one that does not lead back to it."""
        from glidepath.sessions import each_session

        store = self.agent.config.store
        with contextlib.suppress(ConfigurationError, StoreError):
            if store is not None:
                async for entry in each_session(store, prefix=self.session.id):
                    if entry.session_id == self.session.id and entry.title:
                        return entry.title if await find_session(store, entry.title) == self.session.id else ""
        return ""

    def remember(self) -> None:
        """Make this the conversation that `--continue` continues in this folder."""
        if self.kept and self.session.messages:
            remember_here(self._world.folder, self.session.id)

    def return_command(self, name: str = "") -> str:
        """The command that returns to this conversation, by its id unless a name is given; empty if it is not saved."""
        if not self.kept or not self.session.messages:
            return ""
        from glidepath.apps.cli.commands.run_command import repeat_flags, suggest_raised_limit

        sign = "=" if name.startswith("-") else " "
        which = f"--resume{sign}{shlex.quote(name or shorten_id(self.session.id))}"
        most = key_to_raise(self, self.session.last)  # with the same limit, no message would be answered
        flags = [*repeat_flags(self.settings, but=most), *suggest_raised_limit(self.settings, most, self.session.last)]
        return " ".join(["glidepath chat", which, *flags])

    def complete(self, word: str) -> list[str]:
        """Completions for the start of a /command or an @file."""
        if word.startswith("@"):
            return files_to_name(word, self.folder)
        names = [*COMMANDS, *self.own]
        return sorted({f"/{name}" for name in names if f"/{name}".startswith(word)})

    def menu(self, typed: str, most: int) -> list[str]:
        """The commands that begin like what is typed, each with its line; none once the command is complete."""
        if not typed.startswith("/") or len(typed.split()) != 1 or typed != typed.rstrip():
            return []
        found = [name.rstrip() for name in self.complete(typed)]
        if found == [typed]:
            return []
        about = {**{name: _first_line(own.about) for name, own in self.own.items()}, **COMMANDS}
        rows = [f"{name:<10} {about.get(name[1:], '')}".rstrip() for name in found[:most]]
        return [*rows[:-1], f"... and {len(found) - most + 1} more"] if len(found) > most else rows

    def custom_command_text(self, line: str) -> str | None:
        """The text that a custom slash command sends; None for any other command."""
        name, _, rest = line[1:].partition(" ")
        own = None if name in COMMANDS else self.own.get(name)
        return None if own is None else own.fill_in(rest)

    def make_message(self, text: str) -> tuple[str | UserMessage, list[str]]:
        """The message for a line: with the files it names and the commands run with `!`."""
        message = attach_files(text, self.workspace, take_attachments(self), self._served.pop(text, ""))
        self.asides = []
        return message

    def clear(self) -> None:
        """Begin a new conversation."""
        self.remember()
        self.asides.clear()
        self.worked = 0.0
        self.session = self.make_session()


def _first_line(text: str) -> str:
    return clip_line(next((line.strip("# ") for line in text.splitlines() if line.strip()), ""), _ROW)
