"""Answers in Markdown: cut into blocks of bounded size, whatever comes, in whatever pieces."""

import asyncio
import gc
import io
import sys
import time
import types

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from glidepath.apps.cli import Blocks, render_block
from glidepath.apps.cli.chat import keep_heap
from glidepath.testing import ScriptedModel, say

from .test_chat import ChatApp, say as send, talk

LINES = st.sampled_from(
    ["", "prose", "- item", "1. one", "  more of it", "```python", "```", "~~~", "# Title", "| a | b |", "x = 1", "***"]
)


def blocks(text, size=1_000_000):
    cut = Blocks()
    found = [block for start in range(0, len(text), size) for block in cut.feed(text[start : start + size])]
    return found + cut.end()


@given(st.lists(LINES, max_size=60), st.integers(1, 9))
def test_it_does_not_matter_in_what_pieces_a_text_comes(lines, size):
    assert blocks("\n".join(lines), size) == blocks("\n".join(lines))


@given(st.lists(LINES, max_size=300))
def test_no_line_is_lost_and_no_block_is_long(lines):
    found = blocks("\n".join(lines))
    kept = [line.strip() for block in found for line in block.text.splitlines() if line.strip()]
    told = iter(line.strip() for line in lines)
    assert all(any(line == other for other in told) for line in kept)  # in their order
    fences = ("```python", "```", "~~~", "")
    missing = [line for line in lines if line.strip() not in kept and line.strip() not in fences]
    assert not missing
    assert all(len(block.text.splitlines()) <= 61 for block in found)


def test_an_answer_that_ends_inside_a_code_block_leaves_nothing_open():
    cut = Blocks()
    assert [block.text for block in [*cut.feed("```py\nx = 1\ny"), *cut.end()]] == ["x = 1\ny"]
    assert cut.open is None


def printed(text, width=40):
    console = Console(width=width, file=io.StringIO(), record=True)
    for block in blocks(text):
        console.print(render_block(block))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_markdown_is_laid_out():
    assert printed("# Title\n\nA **bold** `move`.\n\n- one\n- two\n\n```py\nx = 1\n```\n") == [
        "Title",
        "A bold move.",
        " \u2022 one",
        " \u2022 two",
        "x = 1",
    ]


def test_a_list_that_is_cut_keeps_its_numbers():
    rows = printed("\n".join(f"{number}. item" for number in range(1, 41)))
    assert rows[0] == "  1 item"
    assert rows[-1] == " 40 item"
    assert len(rows) == 40


@pytest.mark.parametrize("width", [30, 60, 100])
def test_a_long_table_is_laid_out_in_pieces_that_look_like_one(width):
    rows = [f"| {n} | a cell that is **long** enough to be broken | x{n % 7} |" for n in range(100)]
    shown = printed("\n".join(["| number | text | tail |", "|---|---:|:-:|", *rows, "", "The end."]), width)
    assert all(len(row) <= width for row in shown)
    assert sum(row.split()[:1] == ["number"] for row in shown) == 1  # one header
    tails = [(row.index("x"), row) for row in shown[2:] if "x" in row]
    assert len(tails) == 100
    assert len({place for place, _ in tails}) == 1
    assert "**" not in "".join(shown)
    assert shown[-1] == "The end."


def test_long_rows_of_something_that_is_not_a_table_stay_as_they_are():
    lines = [f"| just a line {n}" for n in range(100)]
    assert printed("\n".join(lines)) == lines


# --- what it costs --------------------------------------------------------------------------------------------------

PROSE = "\n\n".join("The quick brown fox jumps over the lazy dog and so on. " * 8 for _ in range(60))
CODE = "```python\n" + "\n".join(f"value_{n} = compute(value_{n - 1}, 'text')" for n in range(600)) + "\n```\n"
LIST = "\n".join(
    f"- item {n} with **some** `words` in it, and then some more of them, so that it is" for n in range(200)
)

TABLE = "| a | b | c |\n|---|---|---|\n" + "\n".join(f"| {n} | a **cell** of text | `c{n}` |" for n in range(600))

LINKS = "[a link](to) " * 4_000  # one paragraph


def number_of(app):
    return len(app.query("ChatReply"))


def costs(tmp_path, *texts):
    """For each answer, seconds of CPU until it is on the screen, and the longest gap in which no key was looked at."""
    module = types.ModuleType("long_answers")
    module.answer = lambda: ScriptedModel([say(text) for text in texts])
    sys.modules["long_answers"] = module
    gaps, found = [], []

    async def beat():
        while True:
            before = time.process_time()
            await asyncio.sleep(0.005)
            gaps.append(time.process_time() - before)

    async def run():
        app = ChatApp(talk(tmp_path, "hello", "--model", "python:long_answers:answer"), between_turns=keep_heap)
        async with app.run_test(size=(80, 30)) as pilot:
            await pilot.pause()
            keep_heap()  # as the command does
            beating = asyncio.create_task(beat())
            for number, _ in enumerate(texts, 1):
                gaps.clear()
                before = time.process_time()
                await send(
                    app, pilot, "go", lambda app, n=number: len(app.query("ChatReply")) == n and not app.talk.busy
                )
                reply = app.query("ChatReply").last()
                while not reply.complete:
                    await pilot.pause(0.02)
                found.append((time.process_time() - before, max(gaps)))
            beating.cancel()

    try:
        asyncio.run(run())
    finally:
        gc.unfreeze()
    return found


def too_dear(tmp_path):
    """The answers that cost more than twice what prose costs, or kept a key waiting."""
    answers = (CODE, LIST, TABLE, LINKS, CODE)
    _, (prose, _), *long = costs(tmp_path, CODE[:2000], PROSE, *answers)  # first what has to be imported
    return [
        (text[:20], took, prose, gap)
        for text, (took, gap) in zip(answers, long, strict=True)
        if took >= 2 * prose * max(1, len(text) / len(PROSE)) + 0.1 or gap >= 0.1
    ]


def test_a_long_code_block_list_table_or_line_costs_at_most_twice_what_prose_costs_and_keys_are_looked_at(tmp_path):
    found = too_dear(tmp_path)
    if found:  # CPU time, too, grows while others use the same cache: what is really dear is dear every time
        found = too_dear(tmp_path) and too_dear(tmp_path)
    assert not found


def heights(tmp_path, text):
    """The heights of the widgets that show this answer."""
    module = types.ModuleType("long_answers")
    module.answer = lambda: ScriptedModel([say(text)])
    sys.modules["long_answers"] = module

    async def run():
        app = ChatApp(talk(tmp_path, "hello", "--model", "python:long_answers:answer"))
        async with app.run_test(size=(80, 30)) as pilot:
            await send(app, pilot, "go", lambda app: number_of(app) == 1 and not app.talk.busy)
            reply = app.query("ChatReply").last()
            while not reply.complete or not all(child.size for child in reply.children):  # all laid out
                await pilot.pause(0.02)
            return [child.size.height for child in reply.children]

    return asyncio.run(run())


def test_paragraphs_share_widgets_and_look_as_they_did(tmp_path):
    """Every widget of the log is looked at whenever something is drawn: a long conversation must not have thousands."""
    *prose, code, last = heights(tmp_path, f"{PROSE}\n\n```\ncode\n```\n\n- one\n- two\n\nThe end.")
    assert len(prose) == 5
    assert sum(prose) == 60 * 6 + 59 - 4  # six rows each and an empty one between them, or a margin between widgets
    assert (code, last) == (1, 4)


def test_hundreds_of_short_blocks_do_not_share_one_widget(tmp_path):
    """All of a widget is drawn again whenever a block joins it."""
    shown = heights(tmp_path, "\n".join(f"## Title {n}\n\ntext\n" for n in range(150)))
    assert 3 <= len(shown) <= 8
    assert sum(shown) + len(shown) - 1 == 4 * 150 - 1  # two rows for each, and an empty one after each
