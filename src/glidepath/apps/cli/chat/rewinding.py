"""`/rewind`: the conversation as it was before one of the last messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.apps.cli.attachments import read_typed_part
from glidepath.apps.cli.session_names import shorten_id
from glidepath.values import ConfigurationError, StoreError, UserMessage, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glidepath.apps.cli.chat.chat_conversation import Conversation
    from glidepath.values import Message

_FILES = "Files are not changed: /undo restores those of the last turn. What was spent stays spent."


async def rewind_chat(talk: Conversation, text: str) -> tuple[str, str]:
    """What to say, and the message that was taken back. A saved conversation is forked: the old one does not change."""
    try:
        many = int(text or 1)
    except ValueError:
        many = 0
    if many < 1:
        return f"/rewind HOW MANY of your messages, such as /rewind 2, not {text!r:.40}.", ""
    old = talk.session.id
    try:
        messages: Sequence[Message] = (
            await _whole(talk) if talk.kept and talk.session.messages else talk.session.messages
        )
        asked = [at for at, one in enumerate(messages) if isinstance(one, UserMessage) and not one.internal]
        if many > len(asked):
            return f"There are {pluralize(len(asked), 'message')} of yours to take back, not {many}.", ""
        place = asked[-many]
        if place == asked[0]:
            talk.clear()
        elif talk.kept:
            await _fork(talk, messages[:place])
        else:
            del talk.session.messages[place:]
    except (ConfigurationError, StoreError) as error:
        return str(error), ""
    rows = [f"{pluralize(many, 'message')} of yours taken back, with what followed. {_FILES}"]
    if talk.kept and old != talk.session.id:
        rows.append(f"The conversation as it was is {shorten_id(old)}: /resume {shorten_id(old)}")
    return "\n".join(rows), read_typed_part(messages[place].text)


async def _whole(talk: Conversation) -> Sequence[Message]:
    from glidepath.sessions import read_journal

    store = talk.agent.config.store
    assert store is not None  # noqa: S101 - it is kept
    return (await read_journal(store, talk.session.id)).folded.messages


async def _fork(talk: Conversation, kept: Sequence[Message]) -> None:
    from glidepath.sessions import fork

    store = talk.agent.config.store
    assert store is not None  # noqa: S101 - it is kept
    replies = sum(one.role == "assistant" for one in kept)
    made = await fork(store, talk.session.id, at=replies)
    await talk.resume(made.session_id)
