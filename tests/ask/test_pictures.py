"""Pictures have a size in tokens and a limit in bytes, and never poison a session."""

import struct
from itertools import pairwise

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, Session, tool
from glidepath.errors import ContextOverflowError, RejectedError
from glidepath.messages import ImageBlock, TextBlock, UserMessage
from glidepath.testing import ScriptedModel, call, fail, say, virtual
from glidepath.tools import picture_tokens, read_pixel_size

LIMITS = Limits(max_iterations=6)


def png(width, height, size=100):
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return head + bytes(max(0, size - len(head)))


def seen(*pictures):
    return UserMessage((TextBlock("look"), *[ImageBlock("image/png", data) for data in pictures]))


def pictures_in(request):
    blocks = [block for m in request.messages if isinstance(getattr(m, "content", ""), tuple) for block in m.content]
    return [block.data for block in blocks if isinstance(block, ImageBlock)]


HEADERS = {
    "png": png(640, 480),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(20),
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10"
    + bytes(14)
    + b"\xff\xff\xc2\x00\x11\x08"
    + struct.pack(">HH", 480, 640)
    + bytes(9),
    "webp lossy": b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480) + bytes(9),
    "webp lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14) + bytes(9),
    "webp extended": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_tells_the_size_in_pixels(kind):
    assert read_pixel_size(HEADERS[kind]) == (640, 480)


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_is_cut_anywhere_is_read_without_an_error(kind):
    for length in range(len(HEADERS[kind])):
        assert picture_tokens(ImageBlock("image/png", HEADERS[kind][:length])) >= 258


@pytest.mark.parametrize(
    ("image", "tokens"),
    [
        (ImageBlock("image/png", png(1, 1)), 258),
        (ImageBlock("image/png", png(1024, 1024)), 85 + 1024 * 1024 // 500),
        (ImageBlock("image/png", png(9_000, 9_000)), 5_000),
        (ImageBlock("image/png", bytes(100_000)), 85 + 2_000),
        (ImageBlock("image/png", url="https://example.com/a.png"), 5_000),
    ],
)
def test_a_picture_has_a_size_in_tokens(image, tokens):
    assert picture_tokens(image) == tokens


def test_a_picture_in_the_prompt_that_is_too_large_is_refused_before_the_first_call():
    model = ScriptedModel([])
    agent = Agent(model=model, limits=LIMITS, max_image_bytes=1_000)
    with pytest.raises(ConfigurationError, match=r"2000 bytes, more than max_image_bytes=1000"):
        agent.run_sync([seen(png(9, 9, 2_000))])


def test_pictures_in_the_prompt_that_are_too_many_are_refused_before_the_first_call():
    agent = Agent(model=ScriptedModel([]), limits=LIMITS, max_image_bytes_per_request=1_500)
    with pytest.raises(ConfigurationError, match=r"2000 bytes together, more than max_image_bytes_per_request=1500"):
        agent.run_sync([seen(png(9, 9, 1_000), png(9, 9, 1_000))])


@virtual
async def test_a_tools_picture_that_is_too_large_becomes_a_text_that_says_so():
    @tool
    def shoot() -> bytes:
        """Take a picture."""
        return png(9, 9, 2_000)

    agent = Agent(model=ScriptedModel([call("shoot"), "done"]), tools=[shoot], limits=LIMITS, max_image_bytes=1_000)
    result = await agent.run("go")
    assert result.outcome is LoopOutcome.DONE
    assert "its 2000 bytes are more than max_image_bytes=1000" in result.messages[2].text


@virtual
async def test_older_pictures_are_left_out_when_a_request_would_hold_too_many_bytes():
    @tool
    def shoot(number: int) -> bytes:
        """Take a picture."""
        return png(number, 9, 1_000)

    model = ScriptedModel([*[call("shoot", number=n) for n in range(1, 5)], "done"])
    agent = Agent(model=model, tools=[shoot], limits=LIMITS, max_image_bytes_per_request=2_500)
    result = await agent.run("go")
    assert [len(pictures_in(request)) for request in model.requests] == [0, 1, 2, 1, 2]
    assert read_pixel_size(pictures_in(model.requests[-1])[-1]) == (4, 9)
    assert (
        sum(m.role == "tool_result" and type(m.content[0]) is ImageBlock for m in result.messages) == 4
    )  # the transcript has all


@virtual
async def test_pictures_are_left_out_several_at_once_so_that_the_next_ones_only_add():
    @tool
    def shoot(number: int) -> bytes:
        """Take a picture."""
        return png(number, 9, 1_000)

    model = ScriptedModel([*[call("shoot", number=n) for n in range(1, 13)], "done"])
    agent = Agent(model=model, tools=[shoot], limits=Limits(max_iterations=20), max_image_bytes_per_request=8_000)
    await agent.run("go")
    assert [len(pictures_in(request)) for request in model.requests] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 6]
    sent = [request.messages for request in model.requests]
    changed = [now[: len(before)] != before for before, now in pairwise(sent)]
    assert sum(changed) == 2


@virtual
async def test_a_picture_that_alone_fills_what_a_request_may_hold_is_shown():
    @tool
    def shoot(number: int) -> bytes:
        """Take a picture."""
        return png(number, 9, 2_400)

    model = ScriptedModel([call("shoot", number=1), call("shoot", number=2), "done"])
    await Agent(model=model, tools=[shoot], limits=LIMITS, max_image_bytes_per_request=2_500).run("go")
    assert [read_pixel_size(picture) for picture in pictures_in(model.requests[-1])] == [(2, 9)]


@pytest.mark.parametrize("error", [RejectedError("image too large"), ContextOverflowError("too long")], ids=repr)
@virtual
async def test_a_refused_picture_fails_its_own_run_at_most_and_never_a_later_one(error):
    session = Session()
    model = ScriptedModel([fail(error), fail(error), "I see."])
    agent = Agent(model=model, limits=LIMITS, max_retries=0)
    assert (await agent.run([seen(png(9, 9))], session=session)).outcome is LoopOutcome.FAILED
    result = await agent.run("And without it?", session=session)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "I see.")
    assert pictures_in(model.requests[-1]) == []
    assert "[an image, left out]" in model.requests[-1].messages[0].text


@virtual
async def test_a_picture_from_a_tool_that_the_provider_refuses_is_left_out():
    @tool
    def shoot() -> bytes:
        """Take a picture."""
        return png(9, 9)

    model = ScriptedModel([call("shoot"), fail(RejectedError("unsupported image")), "done"])
    result = await Agent(model=model, tools=[shoot], limits=LIMITS, max_retries=0).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")


@virtual
async def test_g4_a_picture_is_reserved_for():
    from glidepath.events import BudgetReserved
    from glidepath.testing import EventRecorder

    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([say("ok")]), limits=Limits(max_tokens=50_000), event_sink=recorder)
    await agent.run([seen(png(1_500, 1_500))])
    assert recorder.one(BudgetReserved).tokens > 1_500 * 1_500 // 750 + 4_096
