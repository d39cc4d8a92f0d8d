"""Sound and pictures in a prompt: what they cost above text that is as long, before the provider has counted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.tools import block_tokens
from glidepath.values import FileBlock, ImageBlock, Media

if TYPE_CHECKING:
    from glidepath.run import Price, Run
    from glidepath.values import Message

_NONE = Media()


def media_in(messages: Sequence[Message]) -> Media:
    """The tokens of sound and pictures in these messages, by our own count, which errs on the high side."""
    audio = image = 0
    for message in messages:
        content: Any = getattr(message, "content", "")
        for block in content if type(content) is tuple else ():
            if type(block) is ImageBlock:
                image += block_tokens(block)
            elif type(block) is FileBlock and block.kind == "audio":
                audio += block_tokens(block)
    return Media(audio_input=audio, image_input=image) if audio or image else _NONE


def media_in_view(run: Run) -> Media:
    """The same of what the model is sent. What was counted before is not counted again."""
    transcript = run.transcript
    known: Media
    view, counted, known = transcript.weighed_media
    if view is not transcript.view or counted > len(transcript.view):
        counted, known = 0, _NONE
    if counted < len(transcript.view):
        more = media_in(transcript.view[counted:])
        known = Media(
            audio_input=known.audio_input + more.audio_input, image_input=known.image_input + more.image_input
        )
        transcript.weigh_media(known)
    return known


def media_reserve(run: Run, price: Price | None) -> int:
    """Pico-dollars to reserve above the price of text for sound and pictures in the view."""
    # Nearly always there are none, or they cost what text costs.
    if price is None or not run.transcript.picture_bytes or not price.prices_media:
        return 0
    return price.reserve_media(media_in_view(run))
