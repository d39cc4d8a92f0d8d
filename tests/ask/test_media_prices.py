"""Sound and pictures are reserved at their own price, like everything else before it is spent."""

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, Limits, LoopOutcome, Usage, tool
from glidepath.events import BudgetReserved
from glidepath.messages import (
    FileBlock,
    ImageBlock,
    ReplyInfo,
    StreamEnd,
    TextBlock,
    TextDelta,
    ToolCallDelta,
    UserMessage,
)
from glidepath.run import Price
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, raw, say, virtual
from glidepath.tools import block_tokens
from glidepath.values import PICO, Media

from .test_pictures import png

# Sound costs ten times what text costs, a picture four times.
PRICE = Price(1_000_000, 2_000_000, audio_input=10_000_000, image_input=4_000_000)
SOUND = FileBlock("audio/mpeg", b"x" * 200_000)
PICTURE = ImageBlock("image/png", png(1024, 1024))


def told(*blocks, text="What do you hear?"):
    return UserMessage((TextBlock(text), *blocks))


def make(model, limit=None, **options):
    limits = Limits(max_iterations=20) if limit is None else Limits(max_iterations=20, max_cost=limit)
    return Agent(model=model, limits=limits, prices={"scripted": PRICE}, **options)


def bill(request):
    """What a provider bills that counts as we do."""
    blocks = [one for m in request.messages if type(getattr(m, "content", "")) is tuple for one in m.content]
    audio = sum(block_tokens(one) for one in blocks if type(one) is FileBlock)
    image = sum(block_tokens(one) for one in blocks if type(one) is ImageBlock)
    usage = Usage(audio + image + 60, 12)
    return usage, Media(audio_input=audio, image_input=image)


@pytest.mark.parametrize(("block", "price"), [(SOUND, 10_000_000), (PICTURE, 4_000_000)])
@virtual
async def test_what_is_reserved_pays_for_sound_and_pictures(block, price):
    recorder = EventRecorder()
    await make(ScriptedModel([say("A bell.")]), "5", event_sink=recorder).run(told(block))
    assert recorder.one(BudgetReserved).picodollars >= block_tokens(block) * price


@virtual
async def test_a_call_whose_sound_cannot_be_paid_is_not_made():
    tokens = block_tokens(SOUND)
    limit = f"{tokens * 5 * 1_000_000 / PICO:.6f}"  # five times what text of this length costs
    model = ScriptedModel().forever(say("A bell."))
    result = await make(model, limit, landing="off").run(told(SOUND))
    assert (model.calls, result.outcome) == (0, LoopOutcome.CUT_OFF)
    text = "word " * (3 * tokens // 5)
    assert (await make(ScriptedModel([say("Words.")]), limit, landing="off").run(text)).outcome is LoopOutcome.DONE


@pytest.mark.parametrize("media", [None, Media()])
@virtual
async def test_a_report_that_knows_of_no_sound_is_charged_by_our_own_count(media):
    report = Usage(block_tokens(SOUND) + 60, 12)
    turn = raw(TextDelta("A bell."), StreamEnd("end_turn", report, ReplyInfo(media=media)))
    result = await make(ScriptedModel([turn])).run(told(SOUND))
    assert result.cost * PICO >= block_tokens(SOUND) * 10_000_000


@virtual
async def test_no_report_at_all_is_charged_with_the_sound():
    result = await make(ScriptedModel([say("A bell.").with_usage("missing")])).run(told(SOUND))
    assert result.cost * PICO >= block_tokens(SOUND) * 10_000_000


@virtual
async def test_a_report_with_the_sound_is_what_is_charged():
    usage = Usage(1_000, 10)
    turn = raw(TextDelta("A bell."), StreamEnd("end_turn", usage, ReplyInfo(media=Media(audio_input=900))))
    result = await make(ScriptedModel([turn])).run(told(FileBlock("audio/mpeg", b"x" * 2_000)))
    assert int(result.cost * PICO) == 1_000 * 1_000_000 + 900 * 9_000_000 + 10 * 2_000_000


@tool
async def listen(page: int) -> tuple:
    """Listen."""
    return (TextBlock(f"page {page}"), PICTURE)


@settings(max_examples=100, deadline=None)
@given(
    cents=st.integers(1, 300),
    blocks=st.lists(st.sampled_from([SOUND, PICTURE, FileBlock("audio/mpeg", b"x" * 20_000)]), max_size=3),
)
def test_a_run_with_sound_and_pictures_never_bills_more_than_its_limit(cents, blocks):
    billed = 0

    def answers(request):
        nonlocal billed
        usage, media = bill(request)
        billed += PRICE.cost(usage) + PRICE.surcharge(media)
        if request.tools:
            made = ToolCallDelta(0, f"c{len(request.messages)}", "listen", f'{{"page": {len(request.messages)}}}')
            return raw(made, StreamEnd("tool_use", usage, ReplyInfo(media=media)))
        return raw(TextDelta("Bells."), StreamEnd("end_turn", usage, ReplyInfo(media=media)))

    model = ScriptedModel(max_output_tokens=200).forever(answers)
    agent = make(model, f"{cents / 100}", tools=[listen])
    result = VirtualClock().run(agent.run(told(*blocks)))
    assert result.outcome in (LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF, LoopOutcome.DONE)
    assert billed <= cents * 10**10
    assert int(result.cost * PICO) >= billed
