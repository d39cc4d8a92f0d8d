"""Ids that the scripted upstream gives out, and recognizes again without remembering them."""

from __future__ import annotations

import secrets
from hashlib import blake2s
from itertools import count

SALT = b"scripted"


class IssuedIds:
    """Makes ids such as `msg_0f3c...`: unique across upstreams, with a checksum that says they are genuine."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(4)
        self._count = count(1)

    def issue(self, prefix: str) -> str:
        """A new id."""
        middle = f"{self._nonce}{next(self._count):08x}"
        return f"{prefix}{middle}{_check(middle)}"


def is_issued(given: str, prefix: str) -> bool:
    """Whether an upstream of this kind gave that id out; false for ids that others made up."""
    tail = given[len(prefix) :]
    return given.startswith(prefix) and tail[16:] == _check(tail[:16])


def sign(text: str) -> str:
    """A signature of hidden thinking, as vendors put one beside it."""
    return "sig" + blake2s(text.encode(), key=SALT, digest_size=18).hexdigest()


def _check(middle: str) -> str:
    return blake2s(middle.encode(), key=SALT, digest_size=4).hexdigest()
