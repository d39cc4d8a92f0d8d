"""A long conversation costs what a short one does, and looks the same."""

import asyncio
import re
import sys
import types

import pytest

pytest.importorskip("textual")

from glidepath.apps.cli.chat import app as chat_app
from glidepath.apps.cli.chat.app import ChatApp
from glidepath.apps.cli.chat.reply import ChatReply
from glidepath.testing import ScriptedModel, say

from .test_chat import talk

TURNS = 10


@pytest.fixture
def long_talk(tmp_path):
    module = types.ModuleType("long_answers")
    module.answer = lambda: ScriptedModel(
        [say(f"Answer {n}.\n\n```\ncode {n}\n```\n\nThe end of **it**.") for n in range(TURNS)]
    )
    sys.modules["long_answers"] = module
    yield lambda: talk(tmp_path, "hello", "--model", "python:long_answers:answer")
    del sys.modules["long_answers"]


async def settle(app, pilot):
    while any(not reply.complete for reply in app.query("ChatReply")):
        await pilot.pause(0.01)
    await pilot.pause()


def calls(work):
    """How many Python functions this calls."""
    count = 0

    def count_one(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(count_one)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def rows(app):
    """What is in the log, without the scroll bar; how long a turn took depends on the machine."""
    strips = app.screen._compositor.render_strips()[:-2]  # the last two rows are the status and the prompt
    shown = ["".join(segment.text for segment in strip)[:-2].rstrip() for strip in strips]
    return [re.sub(r"\b\d+:\d\d\b", "0:00", row) for row in shown]


async def come_to_rest(app, pilot):
    """Wait until the layout no longer changes."""
    before = None
    while (now := (app._pane.size, app._pane.virtual_size)) != before:
        before = now
        await pilot.pause(0.05)


def pages(app):
    """The whole log, page by page from its beginning."""
    pane = app._pane
    for top in (*range(0, pane.max_scroll_y, pane.size.height), pane.max_scroll_y):
        pane.scroll_to(y=top, animate=False, immediate=True, force=True)
        app.screen._refresh_layout(scroll=True)
        yield rows(app)


async def hold(app, pilot, turns, text="go"):
    for _ in range(turns):
        await app._run_turn(text)
        await settle(app, pilot)


def test_drawing_costs_the_same_after_many_replies(long_talk, monkeypatch):
    monkeypatch.setattr(chat_app, "_LIVE", 20)
    counts = []

    async def run():
        app = ChatApp(long_talk())
        async with app.run_test(size=(80, 30)) as pilot:
            for _ in range(TURNS):
                await hold(app, pilot, 1)
                counts.append(calls(app.screen._refresh_layout))

    asyncio.run(run())
    assert max(counts[4:]) <= 1.3 * max(counts[:4])


def test_the_log_looks_the_same_with_old_messages_put_away_and_after_a_change_of_width(long_talk, monkeypatch):
    async def run(live):
        monkeypatch.setattr(chat_app, "_LIVE", live)
        app = ChatApp(long_talk())
        async with app.run_test(size=(60, 20)) as pilot:
            await hold(app, pilot, 4, "a question that is long enough to be broken at the end of a narrow row")
            await come_to_rest(app, pilot)
            hidden = sum(not child.display for child in app._pane.children)
            wide = list(pages(app))
            await pilot.resize_terminal(40, 20)
            await come_to_rest(app, pilot)
            narrow = list(pages(app))
            again = sum(not child.display for child in app._pane.children)
            await app._run_slash_command("/clear")
            await hold(app, pilot, 1)
            return hidden, again, [wide, narrow, rows(app)]

    hidden, again, seen = asyncio.run(run(12))
    assert hidden >= 6
    assert again == hidden
    shown, _, wanted = asyncio.run(run(10_000))
    assert shown == 1  # nothing but the widget for what is put away
    assert sum("Answer" in row for page in seen[0] for row in page) >= 4
    assert seen == wanted


def test_a_reply_of_many_short_paragraphs_does_not_lag_behind(tmp_path, monkeypatch):
    """Twenty drawings a second, at two paragraphs each, would take eight seconds for what came at once."""
    drawings = []
    draw = ChatReply._show_more
    monkeypatch.setattr(ChatReply, "_show_more", lambda reply: drawings.append(0) or draw(reply))
    many = types.ModuleType("many_paragraphs")
    many.answer = lambda: ScriptedModel([say("\n\n".join(f"Paragraph {n}." for n in range(300)))])
    monkeypatch.setitem(sys.modules, "many_paragraphs", many)

    async def run():
        app = ChatApp(talk(tmp_path, "hello", "--model", "python:many_paragraphs:answer"))
        async with app.run_test(size=(80, 30)) as pilot:
            await hold(app, pilot, 1)

    asyncio.run(run())
    assert 2 < len(drawings) < 60
