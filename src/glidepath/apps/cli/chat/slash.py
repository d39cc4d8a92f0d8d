"""Slash commands about a conversation: what it cost, what it holds, what it changed, where to keep it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from glidepath._wire import encode
from glidepath.apps.cli.attachments import INTERRUPTED, read_typed_part
from glidepath.apps.cli.chat.chat_limits import limit_used_up, limits_command
from glidepath.apps.cli.chat.plan_mode import plan_command
from glidepath.apps.cli.display_text import call_line, escape_invisible
from glidepath.apps.cli.file_changes import format_difference
from glidepath.apps.cli.screens import describe_ending
from glidepath.apps.cli.session_names import find_session
from glidepath.apps.cli.status import format_count, format_money, tokens_of
from glidepath.kernel import CharEstimator, make_sizer
from glidepath.values import (
    ConfigurationError,
    ImageBlock,
    LoopOutcome,
    Message,
    RunResult,
    StoreError,
    TextOrigin,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.apps.cli.chat.chat_conversation import Conversation
    from glidepath.sessions import Folded

_UNDONE = "I have undone your last changes to these files; they are as they were before"
_BAR, _CALL = 30, 300
_UNKNOWN = "Its outcome is unknown, because it had begun"


def _cost(talk: Conversation, _: str) -> str:
    totals, limit = talk.session.totals, talk.agent.config.limits.max_cost
    if totals.cost is None:
        return f"{tokens_of(totals.usage.total)}. There is no price for {talk.model}, so the cost is unknown."
    rows = [
        f"{format_money(totals.cost)} so far, {tokens_of(totals.usage.total)} in {pluralize(totals.runs, 'message')}."
    ]
    if limit is not None:
        most = Decimal(str(limit))
        rows.append(
            f"The conversation may cost {format_money(most)}; {format_money(max(most - totals.cost, Decimal(0)))} "
            "is left."
        )
    last = talk.last
    if last is not None and last.cost is not None:
        rows.append(f"The last message cost {format_money(last.cost)}: {tokens_of(last.usage.total)}.")
    return "\n".join(rows)


_SYSTEM, _TOOLS, _SERVED, _YOU = "the system prompt", "descriptions of tools", "tools of MCP servers", "you"
_NAMES = {"user": _YOU, "assistant": "the model", "tool_result": "results of tools", "system": _SYSTEM}


def estimate_next_message(talk: Conversation) -> dict[str, int]:
    """About how many tokens the next message sends beside itself, by who they come from.

    The whole is what the model counted last, as long as nothing has changed since; before that, it is estimated.
    """
    config = talk.agent.config
    estimator = config.token_estimator or CharEstimator()
    size: Callable[[Message], int] = make_sizer(estimator)
    tools = tuple(tool.spec for tool in config.tools)
    shares = dict.fromkeys((_SYSTEM, _TOOLS, _SERVED, _YOU), 0)
    known = config.system_prompt if isinstance(config.system_prompt, str) else ""
    shares[_SYSTEM] += estimator.estimate(known) if known else 0
    shares[_TOOLS] += estimator.estimate(encode(tools).decode()) if tools else 0
    for message in talk.session.messages:
        name = _NAMES.get(message.role, message.role)
        shares[name] = shares.get(name, 0) + size(message)
    estimated = sum(shares.values())
    if talk.counted[:2] == (talk.session.id, len(talk.session.messages)) and estimated:
        counted = talk.counted[2]
        if config.tool_sources:
            shares[_SERVED] = max(0, counted - estimated)
        elif counted:
            shares = {name: round(share * counted / estimated) for name, share in shares.items()}
    shares[_YOU] += sum(estimator.estimate(one) for one in take_attachments(talk) if isinstance(one, str))
    return {name: count for name, count in shares.items() if count}


def _context(talk: Conversation, _: str) -> str:
    shares, window = estimate_next_message(talk), talk.agent.config.context_window
    total = sum(shares.values())
    rows = [f"Your next message sends about {tokens_of(total)}, and what you type:"]
    rows += [f"  {name:<21} {format_count(count):>6}" for name, count in shares.items()]
    if talk.agent.config.tool_sources and _SERVED not in shares:
        rows.append(f"  {_SERVED:<21} {'?':>6}  known after your first message")
    if window:
        full = min(_BAR, _BAR * total // window)
        rows.append(f"The model can read {format_count(window)} [{'#' * full}{'.' * (_BAR - full)}]")
    ways = "/clear starts a new conversation." if talk.kept else "/compact shortens them, /clear starts again."
    rows.append(f"{pluralize(len(talk.session.messages), 'message')} so far. {ways}")
    return "\n".join(rows)


def _diff(talk: Conversation, _: str) -> str:
    changes = talk.changes.all()
    if not changes:
        none = "There are no changes to show. Only what write and edit have changed in this chat counts."
        return none + talk.changes.describe_unseen(talk.session.messages)
    return "\n".join(row for change in changes for row in format_difference(change, talk.columns))


def _undo(talk: Conversation, _: str) -> str:
    if talk.busy:
        return "A turn is running: Esc interrupts it."
    tail = "" if talk.changes.all() else talk.changes.describe_unseen(talk.session.messages)
    said, restored = talk.changes.undo()
    if restored:
        talk.asides.append(f"{_UNDONE}: {', '.join(restored)}")
    return "\n".join(said) + tail


def _export(talk: Conversation, path: str) -> str:
    if not talk.session.messages:
        return "There is nothing to export yet."
    stamp = datetime.now(UTC).astimezone().strftime("%Y-%m-%d-%H%M")
    file = talk.folder / Path(path or f"glidepath-{stamp}.md").expanduser()
    if file.exists():
        return f"{file} already exists: name another file."
    try:
        file.write_text(write_transcript(talk.session.messages, cut_off(talk.session.last)), encoding="utf-8")
    except OSError as error:
        return f"{file} cannot be written: {error.strerror or error}"
    return f"Written to {file}"


def _tools(talk: Conversation, _: str) -> str:
    tools, sources = talk.agent.config.tools, talk.agent.config.tool_sources
    if not tools and not sources:
        return "The model has no tools. Restart with --tools read,list,grep."
    wide = 2 + max([len(tool.name) for tool in tools], default=0)
    rows = []
    for tool in tools:
        asks = " (asks you first)" if tool.requires_approval or talk.changes.needs_approval(tool.name) else ""
        about = tool.description.splitlines()[0] if tool.description else ""
        rows.append(fill(f"{tool.name:<{wide}}{about}{asks}", talk.columns, subsequent_indent=" " * wide))
    return "\n".join([*rows, *(f"and those of the MCP server {source.name}" for source in sources)])


SLASHES: dict[str, Callable[[Conversation, str], str]] = {
    "cost": _cost,
    "limits": limits_command,
    "context": _context,
    "tools": _tools,
    "diff": _diff,
    "undo": _undo,
    "plan": plan_command,
    "export": _export,
}


def write_transcript(messages: list[Message], begun: str = "") -> str:
    """A conversation as Markdown, with the reply that was begun last and interrupted."""
    parts = []
    for message in messages:
        if message.role == "user" and getattr(message, "internal", False):
            continue
        if message.role == "user":
            parts.append(f"## You\n\n{message.text}")
        elif message.role == "assistant":
            parts += [f"## Model\n\n{message.text}"] if message.text else []
            parts += [f"`{call_line(call.name, call.arguments, 300)}`" for call in message.tool_calls]
        elif message.role == "tool_result":
            fence = "`" * max(3, 1 + _longest_fence(message.text))
            parts.append(f"{fence}text\n{message.text}\n{fence}")
    parts += [f"## Model (interrupted)\n\n{begun}"] if begun else []
    return "\n\n".join(parts) + "\n"


def cut_off(last: RunResult | None) -> str:
    """The beginning of a reply that a person interrupted: it is not among the messages. Empty if there is none."""
    if last is None or last.outcome is not LoopOutcome.CANCELLED or last.text_origin is not TextOrigin.MODEL:
        return ""
    text = last.text.strip()
    return "" if last_answer(list(last.messages)).strip().endswith(text) else text


def take_attachments(talk: Conversation) -> list[str | ImageBlock]:
    """What is sent with the next message: the reply that was interrupted, commands run with `!`, and pictures."""
    begun = cut_off(talk.session.last)
    return [*([f"{INTERRUPTED}\n\n{begun}"] if begun else []), *talk.asides]


def _longest_fence(text: str) -> int:
    longest = run = 0
    for sign in text:
        run = run + 1 if sign == "`" else 0
        longest = max(longest, run)
    return longest


def describe_turn_end(result: RunResult, talk: Conversation) -> str:
    """How a turn ended, in a few words, and what to do when a limit of the conversation is used up; empty if done."""
    if result.outcome is not LoopOutcome.PAUSED:
        words = describe_ending(result)
        if result.outcome is LoopOutcome.CANCELLED and result.cause is not None:
            words = f"interrupted ({result.cause.reason})"
        limit = limit_used_up(talk, result)
        if not limit:
            return words
        back = f", or leave and type: {talk.return_command()}" if talk.kept else ""
        more = "a larger budget" if limit == "cost" else "a higher limit"
        return f"{words}\nTo continue with {more}, type /limits {limit} AMOUNT{back}"
    calls = "; ".join(call_line(one.call.name, one.call.arguments, _CALL) for one in result.pending)
    return f"interrupted, before this ran: {calls}" if calls else "interrupted"


def last_answer(messages: list[Message]) -> str:
    """What the model said last; empty when it has said nothing."""
    return next((message.text for message in reversed(messages) if message.role == "assistant" and message.text), "")


def describe_end(folded: Folded) -> str:
    """The end of a stored conversation: what the person said last, the answer, and calls that were cut off."""
    from glidepath.sessions import open_calls

    messages = folded.messages
    rows = (
        [f"> {_safe_text(read_typed_part(messages[_index_of_last_prompt(messages)].text), _CALL)}"] if messages else []
    )
    answer = last_answer_of(messages)
    begun = cut_off(folded.session.last)
    rows += [answer] if answer else []
    rows += [_safe_text(begun), "(interrupted)"] if begun else []
    for call in () if folded.result is None else folded.result.unknown_effects:
        rows.append(f"{_UNKNOWN}: {call_line(call.name, call.arguments, _CALL)}")
    lost = open_calls(folded)
    for call in lost:
        intent = folded.intents.get(call.id)
        used = call.arguments if intent is None or intent.arguments is None else intent.arguments
        rows.append(f"{'Not run' if intent is None else _UNKNOWN}: {call_line(call.name, used, _CALL)}")
    if folded.result is None and messages and not lost:
        rows.append("The turn was cut off here.")
    return "".join(f"\n{row}" for row in rows)


def _index_of_last_prompt(messages: list[Message]) -> int:
    return next((at for at, one in reversed([*enumerate(messages)]) if one.role == "user" and not one.internal), 0)


def last_answer_of(messages: list[Message]) -> str:
    """The answer to the last message of the person, as a resumed conversation shows it; empty if there is none."""
    return _safe_text(last_answer(messages[_index_of_last_prompt(messages) :]).strip())


def _safe_text(text: str, most: int = 0) -> str:
    """A text of the conversation without what could steer the terminal, cut after `most` characters (0: never)."""
    return escape_invisible(text if not most or len(text) <= most else f"{text[:most]} ...", keep="\n\t")


async def rename_chat(talk: Conversation, name: str) -> str:
    """Give a conversation a name, and tell how to come back to it."""
    from glidepath.sessions import annotate

    store = talk.agent.config.store
    if store is None:
        return "Sessions are not being saved. Restart with --store default."
    if not name or not talk.session.messages:
        return "Say something first." if name else "/name TEXT gives this conversation a name."
    try:
        await annotate(store, talk.session.id, title=name)
        talk.title = ""
    except (ConfigurationError, StoreError) as error:
        return str(error)
    with contextlib.suppress(ConfigurationError, StoreError):  # another one may have the same name
        if await find_session(store, name) == talk.session.id:
            return f"This conversation is now called {name!r}. To come back: {talk.return_command(name)}"
    return f"This conversation is now called {name!r}, and so is another one. To come back: {talk.return_command()}"
