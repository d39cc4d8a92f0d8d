"""What a session was held with: the model, the folder and the first words, so that it can be found and continued.

A store does not know them. They are kept beside the other files of the user, one small file for each session.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, WireError, decode, encode, replace
from glidepath.apps.cli.attachments import read_typed_part
from glidepath.apps.cli.cli_context import CliContext, screen_size
from glidepath.apps.cli.display_text import call_line, escape_invisible, width_of
from glidepath.apps.cli.layers import Known, LoadedSettings
from glidepath.apps.cli.notes import describe_outcome, make_next_run_command
from glidepath.apps.cli.session_names import choose_session, decode_place, keep_file, shorten_id
from glidepath.apps.cli.setting_values import read_text
from glidepath.apps.cli.settings import BY_KEY
from glidepath.apps.cli.status import clip_line
from glidepath.apps.cli.stores import add_redaction, make_store, on_store
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.sessions import Session
    from glidepath.spi import SessionStore
    from glidepath.values import PendingCall, UserMessage

_LISTED, _WORDS = 10, 200
_NARROW, _NARROWEST, _LEAST, _MOST = 70, 55, 10, 40  # columns: without a year, without a folder, those of the folder
_HOW = "(its id, the start of it, or its name)"


class ChatCard(Value, frozen=True, kw_only=True):
    """What is kept about one session."""

    model: str = ""
    folder: str = ""
    tools: str = ""
    """What was passed as --tools."""
    first: str = ""
    """The beginning of the first message; empty where a hook redacts what is stored."""


def card_of(session: str) -> ChatCard:
    """What is known about a conversation: an empty card when nothing is."""
    place = _place(session)
    with contextlib.suppress(OSError, WireError, ValueError):
        if place is not None:
            card: ChatCard = decode(place.read_bytes(), ChatCard)
            return card
    return ChatCard()


def keep_card(session: Session, said: str | UserMessage, model: str, settings: LoadedSettings, folder: Path) -> None:
    """Keep what this conversation is held with; without secrets, and without its words where a hook redacts them."""
    known = card_of(session.id)
    first = next((message for message in session.messages if message.role == "user"), said)
    words = read_typed_part(first if isinstance(first, str) else first.text)
    card = ChatCard(
        model=_drop_if_secret(model),
        folder=str(folder),
        tools=(settings.known["tools"].typed if "tools" in settings.known else "") or known.tools,
        first="" if settings.get("redact") else known.first or " ".join(words.split())[:_WORDS],
    )
    _keep(session.id, card, known)


def keep_run_card(session: str | None, settings: LoadedSettings, folder: Path) -> None:
    """Keep what a run is made with, if it is saved. Its words are in the store."""
    if session is None:
        return
    known, typed = card_of(session), settings.known["tools"].typed if "tools" in settings.known else ""
    model = _drop_if_secret(str(settings.get("model") or ""))
    _keep(session, replace(known, model=model, folder=str(folder), tools=typed or known.tools), known)


def _drop_if_secret(model: str) -> str:
    from glidepath.apps.cli.commands.config_command import HIDDEN, to_safe_json

    return "" if HIDDEN in str(to_safe_json(model)) else model


def _keep(session: str, card: ChatCard, known: ChatCard) -> None:
    if card != known:
        keep_file(_place(session), encode(card))


def make_session_flags(session: str, settings: LoadedSettings) -> list[str]:
    """The flags to add to those of this command line for the model and the tools that a session was held with."""
    card = card_of(session)
    model = [] if card.model in ("", settings.get("model")) else ["--model", shlex.quote(card.model)]
    tools = ["--tools", shlex.quote(card.tools)] if card.tools and not settings.is_set_by_person("tools") else []
    return [*model, *tools]


def forget_cards(sessions: Iterable[str]) -> None:
    """These sessions were deleted: forget what was kept about them."""
    for place in filter(None, map(_place, sessions)):
        with contextlib.suppress(OSError):
            place.unlink()


def _place(session: str) -> Path | None:
    return decode_place("chats", session.encode(errors="surrogateescape"))


# --- the list -------------------------------------------------------------------------------------------------------


async def chat_rows(store: SessionStore, width: int, but: str = "") -> list[str]:
    """The last conversations in rows of at most `width` columns: id, date, messages, folder, first words."""
    from glidepath.sessions import find_sessions

    try:
        found = (await find_sessions(store, limit=_LISTED + 1)).sessions
    except StoreError as error:
        if error.kind != "missing":
            raise
        found = ()
    entries = [entry for entry in found if entry.session_id != but][:_LISTED]
    if not entries:
        return []
    table = [("SESSION", "LAST ACTIVE", "MESSAGES", "FOLDER" if width >= _NARROWEST else "", "NAME OR FIRST WORDS")]
    date = "%m-%d %H:%M" if width < _NARROW else "%Y-%m-%d %H:%M"
    room = min(_MOST, max(_LEAST, (width - 40) // 3))
    for entry in entries:
        card, known = card_of(entry.session_id), entry.summary
        when = datetime.fromtimestamp(entry.updated).astimezone().strftime(date)
        words = entry.title or card.first or str(known.get("task", ""))
        folder = _shorten_home(card.folder, room) if width >= _NARROWEST else ""
        row = (shorten_id(entry.session_id), when, str(known.get("messages", "-")), folder, words)
        table.append(tuple(escape_invisible(" ".join(cell.split())) for cell in row))  # type: ignore[arg-type]
    return [clip_line(row, width) for row in _align_rows(table)]


def _align_rows(table: list[tuple[str, str, str, str, str]]) -> Iterable[str]:
    wide = [max(width_of(row[column]) for row in table) for column in range(4)]
    for name, when, messages, folder, words in table:
        row = f"{name:<{wide[0]}}  {when:<{wide[1]}}  {messages:>{wide[2]}}  {folder}"
        yield f"{row}{' ' * (wide[3] - width_of(folder))}  {words}"


def _shorten_home(folder: str, most: int) -> str:
    home = str(Path.home())
    near = f"~{folder.removeprefix(home)}" if folder == home or folder.startswith(f"{home}/") else folder
    return near if width_of(near) <= most else clip_line(f".../{Path(folder).name}", most)


async def chat_list(store: SessionStore, width: int, but: str) -> str:
    """The answer to /resume without an id."""
    rows = await chat_rows(store, width, but)
    return "\n".join(
        [*rows, f"To continue one: /resume ID {_HOW}"] if rows else ["There is no other conversation yet."]
    )


# --- which one to continue ------------------------------------------------------------------------------------------


def print_chats(settings: LoadedSettings, world: CliContext) -> int:
    """Print the list; raises `ConfigurationError` when it would be empty."""
    store = _open_store(settings, world)
    width = max(screen_size(world.stdout)[0] - 1, 40)
    rows = [] if store is None else on_store(store, lambda kept: chat_rows(kept, width))
    if not rows:
        raise ConfigurationError("there is no conversation to continue yet; start one: glidepath chat --model NAME")
    world.write("\n".join([*rows, f"To continue one: glidepath chat -r ID {_HOW}", ""]))
    return 0


def run_to_resume(options: Namespace, settings: LoadedSettings, world: CliContext) -> str:
    """The session whose run is to be resumed; a note says when that run is done. Raises `ConfigurationError`."""
    which, notes = Namespace(go_on=False, last=options.last, resume=options.session), []

    async def look(store: SessionStore, session: str) -> bool:
        ended = await describe_outcome(store, session)
        if ended == "done":
            more = make_next_run_command(session, settings)
            notes.append(f"nothing ran: this run is already done, and this is its answer; to say more: {more}")
        elif ended == "paused":
            await _check_pending(store, session, settings)
        return ended != "done"

    found = choose_chat(which, settings, world, look) or ""
    for one in notes:  # not before a model is known: without one there is an error, and no answer
        world.note(one)
    return found


def make_pending_notes(
    settings: LoadedSettings, world: CliContext, *, tell: bool = True
) -> Callable[[SessionStore, str], Awaitable[bool]]:
    """For `choose_chat`: a note on each call that waited for a decision, because a new task comes instead of one.

    It raises `ConfigurationError` for a call that was approved and has not run: its approval would be lost.
    """

    async def look(store: SessionStore, session: str) -> bool:
        ended = await describe_outcome(store, session)
        if ended in ("", "paused"):
            await _refuse_approved_calls(store, session, settings)
        if ended == "paused" and tell:
            for one in await _read_pending(store, session):
                line = call_line(one.call.name, one.call.arguments)
                world.note(f"given up, because a new task comes instead of a decision: {line}")
        return True

    return look


async def _refuse_approved_calls(store: SessionStore, session: str, settings: LoadedSettings) -> None:
    from glidepath.apps.cli.commands.run_command import resume_line
    from glidepath.sessions import find_approved_calls

    of_store = settings.copy()
    of_store.known = {key: known for key, known in settings.known.items() if key == "store"}
    for call in await find_approved_calls(store, session):
        line = " ".join([resume_line(session, of_store), *make_session_flags(session, of_store)])
        raise ConfigurationError(
            f"{call_line(call.name, call.arguments)} was approved in this session and has not run yet: run it first, "
            f"with: {line}"
        )


async def _read_pending(store: SessionStore, session: str) -> tuple[PendingCall, ...]:
    from glidepath.sessions import read_journal

    result = (await read_journal(store, session)).folded.result
    return result.pending if result is not None else ()


async def _check_pending(store: SessionStore, session: str, settings: LoadedSettings) -> None:
    """Raise `ConfigurationError` when the tool of a call that waits is not passed again: the call would be lost."""
    had = card_of(session).tools
    given = [name.rpartition(":")[2] for name in settings.get("tools") or ()]
    before = [name.strip().rpartition(":")[2] for name in had.split(",")]
    for name in [one.call.name for one in await _read_pending(store, session)]:
        if name in before and name not in given:
            raise ConfigurationError(
                f"a call of {escape_invisible(name)} is waiting in this run and cannot be made without its tool: "
                f"pass --tools {shlex.quote(had)}"
            )


def choose_chat(
    options: Namespace,
    settings: LoadedSettings,
    world: CliContext,
    look: Callable[[SessionStore, str], Awaitable[bool]] | None = None,
) -> str | None:
    """The conversation to continue, "" for the list of them, None for a new one; raises `ConfigurationError`.

    Where no model is named, the conversation's own one is taken. `look` looks at it in its store: False when no tool
    will be called.
    """
    if not (options.go_on or options.last or options.resume):
        return None if options.resume is None else ""
    store = _open_store(settings, world)

    async def find(kept: Any) -> tuple[str, bool]:
        found = await choose_session(options, kept, world.folder) or ""
        return found, look is None or await look(kept, found)

    session, works = asyncio.run(find(None)) if store is None else on_store(store, find)
    if not settings.get("model"):
        settings.known["model"] = Known(_model_of(session, settings, world), f"session {shorten_id(session)}")
    if works and settings.agent is None and not settings.is_set_by_person("tools"):
        _remember_tools(session, settings, world)
    return session


def _remember_tools(session: str, settings: LoadedSettings, world: CliContext) -> None:
    """Give a conversation the tools it was held with; one's own only in the folder where they were named."""
    card = card_of(session)
    if not card.tools:
        return
    if "python:" in card.tools and card.folder != str(world.folder):
        said = (
            f"This conversation was held with other tools; to have them again, pass --tools {shlex.quote(card.tools)}"
        )
        world.note(said)
        return
    settings.known["tools"] = Known(read_text(BY_KEY["tools"], card.tools, "--tools"), f"session {shorten_id(session)}")
    world.note(f"with the tools of this conversation: {escape_invisible(card.tools)}")


def _open_store(settings: LoadedSettings, world: CliContext) -> Any:
    name = settings.get("store")
    return add_redaction(make_store(str(name), world), settings, world, reads=True) if name else None


def _model_of(session: str, settings: LoadedSettings, world: CliContext) -> str:
    card = card_of(session)
    if card.model.startswith("python:") and "model" in settings.ignored:
        return ""  # code of a folder that is not trusted: the agent's maker says so
    if not card.model:
        raise ConfigurationError(f"{shorten_id(session)} does not know which model it was held with: pass --model NAME")
    if card.model.startswith("python:") and card.folder != str(world.folder):  # another module of that name, perhaps
        raise ConfigurationError(
            f"{shorten_id(session)} was held with {escape_invisible(card.model)} in {escape_invisible(card.folder)}: "
            "continue it there, or "
            "pass --model NAME"
        )
    return card.model
