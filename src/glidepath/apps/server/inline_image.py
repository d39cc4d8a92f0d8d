"""Pictures that clients send inside their requests, as base64."""

from __future__ import annotations

import base64

from glidepath.values import ImageBlock


def inline_image(media_type: str, data: str) -> ImageBlock:
    """The picture; raises `ValueError` with a sentence."""
    try:
        return ImageBlock(media_type=media_type, data=base64.b64decode(data, validate=True))
    except ValueError:
        raise ValueError("the image's data is not base64") from None
