"""Thoughts between visible tags are told apart from the answer, however the tags arrive (SPEC 1.7)."""

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, Limits
from glidepath.events import StreamChunk
from glidepath.messages import StreamEnd, TextDelta, ThinkingBlock
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, raw, virtual

LIMITS = Limits(max_iterations=3)


async def split(*pieces, thinking_tags=True):
    """The visible text, the thoughts, and the two as they were streamed."""
    recorder = EventRecorder()
    turn = raw(*[TextDelta(piece) for piece in pieces], StreamEnd("end_turn"))
    agent = Agent(
        model=ScriptedModel([turn, "nothing was visible"]),
        limits=LIMITS,
        thinking_tags=thinking_tags,
        plugins=[recorder.as_plugin()],
    )
    result = await agent.run("go")
    reply = result.messages[1]
    thoughts = "".join(block.text for block in reply.blocks if isinstance(block, ThinkingBlock))
    first = recorder.events[: recorder.kinds().index("TurnEnded")]
    chunks = [event for event in first if isinstance(event, StreamChunk)]
    assert "".join(chunk.text for chunk in chunks if not chunk.thinking) == reply.text
    assert "".join(chunk.text for chunk in chunks if chunk.thinking) == thoughts
    recorder.assert_legal()
    return reply.text, thoughts


CASES = {
    "one piece": (["<think>hm</think>yes"], "yes", "hm"),
    "in the middle": (["so <think>hm</think>yes"], "so yes", "hm"),
    "split over deltas": (["<th", "in", "k", ">h", "m</", "think", ">ye", "s"], "yes", "hm"),
    "split at every character": (list("a<think>b</think>c"), "ac", "b"),
    "upper case": (["<THINK>hm</Think>yes"], "yes", "hm"),
    "spaces": (["< think >hm< / think >yes"], "yes", "hm"),
    "any synonym closes": (["<thinking>hm</reasoning>yes"], "yes", "hm"),
    "thought": (["<thought>hm</thought>yes"], "yes", "hm"),
    "reflection": (["<reflection>hm</reflection>yes"], "yes", "hm"),
    "twice": (["<think>a</think>1<think>b</think>2"], "12", "ab"),
    "unclosed hides its tail": (["yes <think>but then"], "yes ", "but then"),
    "an opening tag inside a thought is thought": (["<think>a<think>b</think>c"], "c", "a<think>b"),
    "a closing tag outside is text": (["a</think>b"], "a</think>b", ""),
    "not a tag": (["1 < 2 and <b>3</b> <thinker>"], "1 < 2 and <b>3</b> <thinker>", ""),
    "held back and not a tag": (["a <thi", "s> b"], "a <this> b", ""),
    "held back at the end": (["a <thi"], "a <thi", ""),
}


@pytest.mark.parametrize("case", CASES)
@virtual
async def test_thoughts_are_filtered_from_the_visible_text(case):
    pieces, visible, thoughts = CASES[case]
    assert await split(*pieces) == (visible, thoughts)


@virtual
async def test_nothing_is_filtered_unless_asked_for():
    assert await split("<think>hm</think>yes", thinking_tags=False) == ("<think>hm</think>yes", "")


@virtual
async def test_a_reply_of_thoughts_only_is_an_empty_answer():
    agent = Agent(model=ScriptedModel(["<think>hm", "yes"]), limits=LIMITS, thinking_tags=True)
    result = await agent.run("go")
    assert (result.text, result.iterations) == ("yes", 2)


tags = st.sampled_from(["<think>", "</think>", "< Thought >", "</ reasoning>", "<", ">", "a", " b ", "</", "think"])


@given(st.lists(tags, min_size=1, max_size=12), st.data())
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_how_a_text_is_cut_into_deltas_does_not_matter(parts, data):
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert VirtualClock().run(split(*pieces)) == VirtualClock().run(split(text))
